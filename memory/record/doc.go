// Package record defines the bytes of a record block: header, key, value, and
// the checksum by which a READ of many lines verifies itself.
//
//	line 0
//	  0  version    TxID of the transaction that wrote this image
//	  8  meta       value length 24 | key length 12 | state 4 | class 8 | table 16   (from bit 0)
//	 16  checksum   of everything else but the guard, and of the block's address
//	 24  key, if at most 32 bytes, padded to 8; then the value if it fits before 56
//	 56  guard      free: the version; held: TxID of the holder with bit 0 set
//	lines 1...
//	 64  key, if longer than 32 bytes, padded to 8; then the value, if it is not in line 0
//
// A block in state [Node] belongs to an index. Commits lock, log, replicate and release it like a
// record. Its table is that of the rows, its value is the node, and it has no key. Rows have keys,
// so nobody takes a node for a row.
//
// # The guard
//
// Lock and version share one word, and it is the last of its line. Both matter.
//
// A READ copies the words of a line in increasing order, so the guard is what it
// copied last: a guard that is free with the version of the image says that at
// that instant the record was unlocked and the image current. With two words
// there is no order that serves: read lock last, and a writer that committed long
// ago may release between the two; read it first, and a WRITE of the image cannot
// release last. And where the fabric places the words of a line in order
// (Caps.OrderedLine), one WRITE of a block of one line publishes the image and
// releases the lock, in this order: no verb is spent on the release.
//
// The price is that a lock needs a compare-and-swap under a mask (any version,
// but not held). Cards since ConnectX-4 have it; elsewhere the lock takes a READ
// first (rdma.Coro.MaskedCAS).
//
// Versions are transaction ids ([TxID]): never reused, so a version identifies
// one image of one key for ever, across aborts, deletes and coordinators.
//
// Blocks never change their class or purpose, so a verb that comes late or from
// a stale address meets a record header, and is detected by state, key, table or
// checksum (docs/layout.md, section 2; RACE, section 3.3).
package record
