// Package tree is the compute-side handle of an ordered index: a B-link tree whose nodes (package
// index/blink) are guarded blocks that commits change (package occ). It implements index.Ranged.
//
// # What it has
//
//   - The root, a block of one line whose place never changes. It says where the first node of the
//     highest level is.
//   - A cache of inner nodes, as they were read. It is never validated. A leaf proves by its
//     fences that it is responsible for a key. A search that a stale inner node has led too far
//     to the left goes right; one that it has led elsewhere drops what it has followed and
//     begins at the root.
//   - Separators that are owed: what a split leaves to be added to the level above by a transaction
//     of its own. If the process that owes one dies, searches find the new node by the right link
//     of the old one. Whoever had to go right twice to the same node owes the separator then.
//
// # Hashes
//
// Below the same inner nodes there may be leaves of hashes ([NewHashed], package index/bucket).
// Then keys are those of hashes, of 5 bytes, a leaf may link several blocks of one key, and leaves
// are found by a directory: an array by the first bits of hashes. Inner nodes are asked where the
// directory knows nothing. What they say goes to the directory, and those just above leaves are
// not cached besides. A leaf merges with the one that a split has parted it from. No table has
// such an index yet.
//
// It posts verbs only in Search, Validate and Resolve, for lookups outside of transactions: those
// of recovery and of checks.
//
// Sources: Lehman and Yao, TODS 6(4), 1981 (right links); Wang, Lu and Shu, SIGMOD 2022 (Sherman:
// cached inner nodes on disaggregated memory, checked against the fences of what is read).
package tree
