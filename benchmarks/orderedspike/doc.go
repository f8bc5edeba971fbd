// Orderedspike measures, on the simulated RNIC, what an ordered table costs whose nodes are record blocks that
// the commit changes: verbs and round trips of single operations, and the rate of inserts by 1 to 768 coroutines.
// It was written before the table itself, to decide on its design; docs/ordered.md has the figures and what
// followed from them.
//
//	go run ./benchmarks/orderedspike                                   # everything; some 5 minutes
//	go run ./benchmarks/orderedspike -table counts
//	go run ./benchmarks/orderedspike -table append -locks early -coroutines 8,96 -rows 10
//
// # What is real
//
// Nodes are those of package index/blink, in blocks of package memory/record with version, checksum and guard. Two
// blades hold two copies of each block (f = 1). Verbs go through package rdma with all of SMART's techniques, on
// sim.ConnectX6 with persistent memory, as in package simbench. A commit locks the guard of the leaf, writes the log
// record to both blades with the images for the backups behind it, waits, and publishes rows and leaf in the
// background. The first line of the leaf comes last and releases the lock. The right part of a split is in place
// before its left part is published, and a transaction of its own posts the separator. Inner nodes are cached in
// the process and never validated.
//
// At the end of each measurement the tree is read at rest: fences tile, copies are equal, no lock is held, and
// the tree has exactly the keys that were committed, each once.
//
// # What is not
//
// There is no recovery, no second process, no epoch and no merge. The log record has the size of a real one but not
// its header. The fabric promises that completed WRITEs are placed (rdma.Caps.Placed). Without that promise each
// blade takes one FLUSH more per commit. Processor time of the engine is charged as a constant per transaction
// (sim.Engine), per node that is read and per node that is changed (-node-read, -node-apply).
package main
