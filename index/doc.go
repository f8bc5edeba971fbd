// Package index defines what the engine asks of an index: to find the blocks that may hold a key,
// to prove that a key has none, and to plan how commits link, relink and unlink blocks.
//
// The nodes of an [Index] are blocks that commits change, as they change records. The index is
// pure, and package occ posts all verbs: indexes share reads, locks, log, copies and recovery with
// records. [Lookup] searches one outside of transactions.
//
// An index stores pointers. The caller reads the block, and so learns whether it really holds the
// key, and in which state the record is. Package indextest has the conformance suite.
package index
