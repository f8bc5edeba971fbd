// Package blink has the nodes of a B-link tree as functions from bytes to bytes: search, change,
// split, merge and root growth. It issues no verb, holds no lock and keeps no state.
//
// A node is the value of a record block. Header, checksum, version and guard are those of any
// record (package memory/record). A commit locks, logs, replicates and releases a node like a row.
//
// # The tree
//
// Each node is responsible for a range of keys: from its low fence, inclusive, to its high fence,
// exclusive. Lehman and Yao call the latter the high key. The ranges of the nodes of one level tile
// the key space. The first low fence is the empty key, and the last high fence is unbounded. Keys
// are ordered as bytes (bytes.Compare).
//
// The right link of a node is the address of the node whose low fence is this node's high fence. An
// entry of an inner node is a separator and a child. The separator is the child's low fence.
//
// A split leaves the left part of the entries in place, and writes the right part to a new
// block. The right link leads there at once. The separator is posted to the parent later, by
// another transaction. Until then a search that comes to the left node finds its key at or
// above the high fence, and goes right ([GoRight]). So inner nodes are hints: a search through
// a stale one, however old, arrives at the right leaf, or at a block that is recognizably no
// ancestor of it ([NotHere]), and then starts at the root. The leaf alone proves, by its
// fences, that it is responsible.
//
// A node is merged into its left neighbour, which takes over its range, entries and right link. The
// same transaction removes its separator from the parent and frees its block. The separator must
// not be the parent's first entry, whose child has no left neighbour under this parent. Merges of
// inner nodes bring it under one in the end.
//
// # Layout
//
// All numbers are little-endian and need no alignment:
//
//	 0  level      8   0: leaf
//	 1  flags      8   0
//	 2  count     16   entries
//	 4  prefix    16   length of the prefix, which entries leave out
//	 6  low       16   length of the low fence
//	 8  high      16   length of the high fence; 0xffff: unbounded
//	10  end       16   length of the node
//	12  right     48   right link; 0: the last node of its level
//	18  low fence
//	    high fence
//	    slots     16 each: offset of each entry, in the order of the keys
//	    entries
//
// The prefix is the common one of the two fences, which all keys between them begin with. The last
// leaf has no high fence: its prefix is the common one of its low fence and its last key. The last
// inner node of a level has none. An entry holds the rest of its key, the suffix, behind a payload:
//
//	inner   child 48 | suffix
//	leaf    row 48 | class 8 | suffix
//
// Entries lie in the order of their keys and without gaps. So a node has one image: level, fences,
// right link and contents determine each byte. An image is valid if [Node.Check] says so.
//
// A row is a record block of the table.
//
// The separator of two leaves is the shortest key that is above the last key of the left one, and
// not above the first key of the right one. Splits prefer cuts with short separators, and keep keys
// that are inserted in order, rising or falling, in full leaves ([Builder.Apply]).
//
// # Use
//
// [Decode] makes a [Node], a view of an image, and rejects bytes whose use would be unsafe.
// [Node.Cover], [Node.Search] and [Node.Child] look up a key. [Node.Above], [Node.Below] and
// [Node.Rank] do so for the bounds of a scan. A [Builder] applies a list of changes to a node and
// returns one image, or several with a separator each. [Builder.Merge], [AppendLeaf] and
// [AppendRoot] make the other images. [Verify] walks over a whole tree at rest.
//
// # Sources
//
//   - Lehman, Yao: "Efficient Locking for Concurrent Operations on B-Trees", TODS 6(4), 1981: right
//     link, high key, splits in two steps. Their nodes have no low fence, and are never merged.
//   - Bayer, Unterauer: "Prefix B-Trees", TODS 2(1), 1977: shortest separators, and the freedom to
//     cut near the middle where they are shorter.
//   - Graefe: "Modern B-Tree Techniques", Foundations and Trends in Databases 3(4), 2011: fence
//     keys, prefix truncation against the fences, suffix truncation of separators.
//   - Wang, Lu, Shu: "Sherman: A Write-Optimized Distributed B+Tree Index on Disaggregated Memory",
//     SIGMOD 2022: fences instead of trust in cached inner nodes, on one-sided verbs.
//   - Luo et al.: "SMART: A High-Performance Adaptive Radix Tree for Disaggregated Memory", OSDI
//     2023, and "CHIME: A Cache-Efficient and High-Performance Hybrid Index on Disaggregated
//     Memory", SOSP 2024: the alternatives, against which the costs of this tree are compared.
package blink
