// Package etcd has package cluster take the addresses of catalogs in an etcd. A program imports
// it for that effect:
//
//	import _ "txnode/cluster/etcd"
//
// An address names the members of the etcd, and the beginning of the catalog's keys:
//
//	etcd://HOST:PORT,HOST:PORT/PREFIX
//
// Without a prefix it is etcd.DefaultPrefix of package memory/catalog/etcd: "txnode/". Each
// database has a prefix of its own. All processes of a database give the same prefix, and
// any of the members.
//
// Of cluster.Options, these count for the catalog:
//
//	TCP.TLS      connections to all members use it, and show its certificate; so do
//	             TCP.Credentials
//	TCP.Control  bounds the connecting, and each request
//
// The secret of cluster.Options is for blades. An etcd with users takes the common name of the
// certificate as the user (--client-cert-auth). For a user with a password, register another scheme
// with a dialer that calls etcd.Open.
package etcd
