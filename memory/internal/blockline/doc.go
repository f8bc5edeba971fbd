// Package blockline has what is the same for every block of a segment, whatever is in it: where
// its words are, what its guard and its version say, and the checksum of its first line.
// Package memory, which finds free blocks by it, and package memory/record, which makes records
// of blocks, share it.
//
// The first line of a block, by the offsets of its words:
//
//	 0  version   transaction that wrote the block: its coordinator's number in the upper 24 bits
//	 8  meta      state, lengths, class, table: see record.Meta
//	16  checksum  of address, version, meta and contents
//	24  contents  32 bytes; of a free block the number of its freeing, and zeros
//	56  guard     the version, or, with bit 0 set, the transaction that has the lock
package blockline
