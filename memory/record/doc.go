// Package record defines the bytes of a record block: header, key, value, and
// the checksum by which a READ of many lines verifies itself.
//
//	line 0
//	  0  version    TxID of the transaction that wrote this image
//	  8  meta       value length 24 | key length 12 | state 4 | class 8 | table 16   (from bit 0)
//	 16  checksum   of version, meta, key, value and the block's address
//	 24  key, if at most 32 bytes, padded to 8; then the value if it fits before 56
//	 56  lock       TxID of the holder, 0: free
//	lines 1...
//	 64  key, if longer than 32 bytes, padded to 8; then the value, if it is not in line 0
//
// The lock is the last word of its line. On a fabric whose WRITEs place the
// words of a line in order, one WRITE of a block of one line therefore publishes
// the new image and releases the lock, in this order.
//
// Versions are transaction ids ([TxID]): never reused, so a version identifies
// one image of one key for ever, across aborts, deletes and coordinators.
//
// Blocks never change their class or purpose, so a verb that comes late or from
// a stale address meets a record header, and is detected by state, key, table or
// checksum (DESIGN section 6; RACE, section 3.3).
package record
