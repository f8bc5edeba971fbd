// Package index defines what the engine asks of an index: to find the blocks that may hold a key,
// to prove that a key has none, and to link, replace and unlink blocks.
//
// There are two kinds. The nodes of an [Index] are blocks that commits change, as they change
// records. The index is pure, and package occ posts all verbs: indexes of this kind share reads,
// locks, log, copies and recovery with records. [Lookup] searches one outside of transactions. The
// words of [Slots] are changed by the index itself, by complete operations on a coroutine: tables
// of kind hash have one of this kind (package race).
//
// An index stores pointers. The caller reads the block, and so learns whether it really holds the
// key, and in which state the record is. Package indextest has the conformance suites.
package index
