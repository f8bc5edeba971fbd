// Example is a small bank behind HTTP: a program that embeds a database as one in production would.
//
//	go run ./example -listen 127.0.0.1:8080 -dir data
//	curl -X POST '127.0.0.1:8080/accounts/1?add=100'
//	curl -X POST '127.0.0.1:8080/transfer?from=1&to=2&amount=30'
//	curl 127.0.0.1:8080/accounts/2
//	curl 127.0.0.1:8080/metrics
//
// Every connection has deadlines, and so has every request's transaction. SIGINT or SIGTERM ends it
// in order: no new requests, those that are under way end, then the database is closed.
package main
