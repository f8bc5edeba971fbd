// Package index defines what the engine asks of an index: to find the blocks
// that may hold a key, to prove that a key has none, and to link, replace and
// unlink blocks, all with one-sided verbs.
//
// A lookup is split into appending READs to the caller's batch (Search) and
// interpreting what they brought (Resolve), so that the lookups of many keys
// share one round trip. Changes are complete operations on a coroutine.
//
// An index stores pointers; whether a block really holds the key, and what state
// the record is in, is for the caller to read. Package indextest has the
// conformance suite.
package index
