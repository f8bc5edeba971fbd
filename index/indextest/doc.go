// Package indextest is the conformance suite of indexes: [Run] checks any
// [index.Index], over the in-process fabric and a memory that has just enough of
// an allocator ([Memory]).
//
// [Client] does with an index what a transaction does, one key at a time: it
// writes a locked block and links it, finds a key by reading the candidates,
// locks a record and unlinks or moves it. The suite is built on it.
package indextest
