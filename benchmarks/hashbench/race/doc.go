// Package race is the hash table of RACE (Zuo et al., "One-sided RDMA-Conscious Extendible Hashing
// for Disaggregated Memory", ATC'21, sections 3.2 and 3.3), as far as package hashbench measures
// it: searches, inserts and updates of slots by compare-and-swap, in a table of a fixed size. The
// engine has no slots: its hash tables have leaves (package index/bucket). SMART's figures were
// measured with RACE's table, so they are predicted with RACE's table.
//
// There are no splits, no deletes, no copies on other blades, and no recovery. A table is made for a
// number of keys, each key is inserted once, and a key that finds no room is [ErrFull].
//
// # Layout
//
// The root is an extent:
//
//	 0  magic "TXNSLOTS"
//	 8  groups of a sub-table 32 | depth 8 | 0 8 | table 16   (from bit 0)
//	64  the directory: the addresses of 1<<depth sub-tables
//
// A sub-table is an extent of groups of three buckets of 64 bytes: main, overflow, main. A bucket
// is seven slots ([Slot]) and a header ([Header]).
//
// A hash has 64 bits. Its low bits, as many as the depth, choose the sub-table. The high 8 are the
// fingerprint. The bits between, and a product of all, choose two combined buckets: a main bucket
// and the overflow bucket that it shares with the other main bucket of its group. They are the
// first choice and the second, and lie in different groups.
//
// # Marks
//
// A lookup of the paper reads both choices (see [Table.ReadBoth]). Here a key goes to its first
// choice while that has many empty slots, and a key in its second choice is marked in the header of
// the first. So most lookups read one combined bucket. A mark is there before its slot is set, and
// is never taken back.
package race
