// Package indextest has the conformance suites of indexes: [RunNodes] checks any [index.Ranged],
// and [Run] any [index.Slots], over the in-process fabric and a memory that has just enough of an
// allocator ([Memory]).
//
// [NodeClient] does with an index of nodes what a transaction does, one key at a time: it reads the
// nodes to which the index leads, locks those that it changes, decides, writes all copies, and
// releases. What was decided is kept as a log record keeps it, so that another client can finish
// it. [Client] does so with slots: it writes a locked block and links it, finds a key by reading
// the candidates, locks a record and unlinks or moves it.
package indextest
