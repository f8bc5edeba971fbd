// Command peers runs SmallBank and TATP, by the same workload code, on several
// stores of this one process, and prints what they commit per second and the
// ratios between them:
//
//	go run . --workload smallbank --threads 2 --rounds 5 --duration 2s
//
// It is a Go module of its own, so that nobody who uses txnode downloads the
// stores that it is compared with.
//
// # Method
//
// All stores are opened and loaded first. Then come the rounds; in each, every
// store runs alone for the duration, after a garbage collection, in an order that
// moves on by one from round to round. So a slow minute of the machine hits all
// stores. A ratio is taken within each round, and the median of the rounds is
// printed, with the lowest and highest throughput beside the median one. A round
// of the same length before the first is not counted. GOMAXPROCS is the number
// of threads, for all stores and whatever they do in the background. At the end
// the books of every store are checked (Driver.Verify), and it is a failure if
// they do not balance.
//
// Each store gets as many workers per thread as suit it: one, unless more make
// it faster (badger gathers the commits of concurrent transactions; the engine
// hides latency with coroutines).
//
// # Stores
//
// All stores pass one conformance suite, package storetest: all are strictly
// serializable, which for badger means its conflict detection, on, as is the
// default. None of the peers keeps a log on disk or a replica here.
//
//	sharded map  package reference: Go maps in shards, ordered two-phase locking
//	badger       github.com/dgraph-io/badger, in memory, no compression, no metrics
//	buntdb       github.com/tidwall/buntdb, in memory
//
// To add a store, write a function that opens it and add a line to contenders.
package main
