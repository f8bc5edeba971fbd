// Package bucket has the leaves of a hash index as functions from bytes to bytes: search,
// change, split and merge; and the directory by which a process finds them. It issues no verb
// and holds no lock.
//
// A leaf is the value of a record block, like a node of package blink. A commit locks, logs,
// replicates and releases it like a row.
//
// # Extendible hashing with linked buckets
//
// A hash has 40 bits. A leaf of depth d is responsible for all hashes that begin with d given bits.
// The leaves tile the space of hashes. The right link of a leaf is the address of the leaf whose
// range follows. A split halves the range of a leaf by its next bit, and writes the right half to a
// new block. The right link leads there at once. So a leaf is found by the addresses in a
// [Directory], or by inner nodes of package blink, however old they are: it proves itself by low
// end and depth, and a search that comes too far left goes right.
//
// Ranges are halved, not contents, so all leaves of a depth are as wide, and an array by the first
// bits of hashes leads to each exactly.
//
// # Layout
//
// All numbers are little-endian and need no alignment, but those of hashes, which are big-endian:
//
//	head
//	  0  level      8   0
//	  1  flags      8   1: a leaf of this package
//	  2  count      8   entries
//	  3  depth      8   d, at most 40
//	  4  low       40   the lowest hash of the range: d bits, then zeros
//	  9            8    0
//	 10  right     48   right link; 0: the last leaf
//	body
//	  0  entries, in the order of hash and address
//
// An entry is the hash without its first d/8 bytes, at most 3, which are those of low, and a word
// of 48 bits: bits 6 to 47 of the block's address, and its class in the 6 bits above. Hashes are
// never cut off, so a split reads no row. A leaf has one image: head and contents determine each
// byte. Several entries may have the same hash, and stay in one leaf.
//
// # One choice
//
// RACE gives each key two buckets, and its tables are 90 % full before they split. Leaves are 69 %
// full on average. A second choice would make that 74 %, not 90 %: RACE's buckets wait for all of
// their sub-table, while a leaf splits as soon as its own second choices are full. And nine of ten
// leaves would have keys elsewhere, so that nearly each absent key took a second READ. So a key has
// one leaf. The figures are a simulation's: go test ./index/bucket -run TestSecondChoice -v
//
// # Sources
//
//   - Fagin, Nievergelt, Pippenger, Strong: "Extendible Hashing", TODS 4(3), 1979:
//     directory, depth, halving.
//   - Ellis: "Extendible Hashing for Concurrent Operations and Distributed Data", PODS 1983: right
//     links, by which a search recovers from a stale directory (after Lehman and Yao).
//   - Zuo et al.: "One-sided RDMA-Conscious Extendible Hashing for Disaggregated Memory"
//     (RACE), ATC 2021: one READ by a directory that is cached and may be stale, and that
//     the bucket refutes.
package bucket
