// Command peers runs SmallBank, TATP, TPC-C and single operations on rows, by the same workload
// code, on several stores of this one process, and prints what they commit per second and the
// ratios between them:
//
//	go run . --workload smallbank --threads 2 --rounds 5 --duration 2s
//	go run . --workload tpcc --warehouses 2 --stores txnode,badger,sqlite
//	go run . --workload rows --rows 1000000 --threads 1,2 --stores txnode,badger,pebble,btree
//	go run . --workload rows --rows 100000,10000000 --stores txnode
//	go run . --workload smallbank --stores txnode-unix,txnode-tcp,txnode-shm,redis,postgres
//
// It is a Go module of its own, so that a program that uses txnode does not download the
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
// they do not balance: for TPC-C, if one of the 12 consistency conditions does not hold.
//
// Each store gets as many workers per thread as suit it: one, unless more make it faster (badger
// gathers the commits of concurrent transactions; the engine hides latency with coroutines). More
// than one do not in TPC-C, where two workers of a warehouse conflict, nor with rows. Heap objects
// are those that the whole process makes during the rounds, divided by the transactions.
//
// # Rows
//
// The rows workload is one ordered table with values of 100 bytes. Its keys are the numbers from 0
// on. They are loaded in their order, 100 in a transaction, or with --shuffle in an order that is
// drawn. Each type of transaction is measured by itself: get reads a row that is drawn; scan-10,
// scan-100 and scan-1000 read so many rows from such a row on; insert appends a row, and all
// workers take its key from one counter. The books are the whole table. Several numbers of --rows
// open a store for each, and the first is compared with all.
//
// # Stores
//
// All stores pass one conformance suite, package storetest. None of the peers keeps a log on disk
// or a replica here.
//
//	sharded-map  package reference: Go maps in shards, ordered two-phase locking
//	badger       github.com/dgraph-io/badger, in memory, no compression, no metrics
//	buntdb       github.com/tidwall/buntdb, in memory
//	pebble       github.com/cockroachdb/pebble, files in memory, no log, no compression, all
//	             blocks cached
//	btree        github.com/tidwall/btree, a tree for each table
//	sqlite       modernc.org/sqlite, SQLite translated to Go, in memory, statements prepared,
//	             below database/sql
//
// The sharded map, badger and buntdb have transactions of their own. Pebble has batches and
// snapshots: here an update is an indexed batch under a lock, and a reader has a snapshot. The
// trees are under one read-write lock. SQLite has one connection under a lock, which is faster here
// than connections that lock the database and drop their caches.
//
// All are strictly serializable, with one exception: badger notices that a key has changed which a
// transaction has read or an iterator has passed, but no key that was inserted between those. TPC-C
// is serializable there all the same: an update reads two kinds of ranges, the lines of an order,
// which never change, and the oldest new order, in front of which none is inserted.
//
// # Servers
//
// Stores with processes of their own take part if --stores names them. Each starts its own in a
// temporary directory, and ends them. A server that is not installed is left out, and a line says
// so. Processes and the workload share the processors. Before the rounds each store tries some
// numbers of workers per thread, for the duration of a round, and keeps the best (unless
// --coroutines says one).
//
//	txnode-unix  two blades (txnode serve), one backup, a catalog; unix sockets
//	txnode-tcp   the same over TCP on loopback
//	txnode-shm   the same in shared memory
//	redis        Redis of Debian: no files, unix socket, one script for a transaction of
//	             SmallBank; workers share pipelined connections
//	postgres     PostgreSQL of Debian: unix socket, a connection for each worker, SERIALIZABLE,
//	             statements prepared and sent
//	             together: a transaction begins and reads in one round trip, writes and commits in
//	             another; synchronous_commit=off, fsync=off
//
// To add a store, write a function that opens it and add a line to contenders.
package main
