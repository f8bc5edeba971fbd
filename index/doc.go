// Package index defines what the engine asks of an index, all with one-sided verbs: to find the
// blocks that may hold a key, to prove that a key has none, and to link, replace and unlink blocks.
//
// A lookup has two parts. Search appends READs to the caller's batch, and Resolve interprets what
// they brought. So the lookups of many keys share one round trip. Changes are complete operations
// on a coroutine.
//
// An index stores pointers. The caller reads the block, and so learns whether it really holds the
// key, and in which state the record is. Package indextest has the conformance suite.
package index
