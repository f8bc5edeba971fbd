// Package indextest has the conformance suite of indexes: [Run] checks any [index.Ranged], over the
// in-process fabric and a memory that has just enough of an allocator ([Memory]).
//
// A [Client] does with an index what a transaction does, one key at a time: it reads the nodes to
// which the index leads, locks those that it changes, decides, writes all copies, and releases.
// What was decided is kept as a log record keeps it, so that another client can finish it.
package indextest
