// Package snapshot is the file format of backups: a consistent copy of a
// database, written in one pass while it is being changed, and verified whole
// before anything of it is used.
//
//	file  = magic "TXNSNAP1" | frame...
//	frame = kind 8 | 0 24 | length of the payload 32 | payload | xxhash64 of all of the frame
//	before it, with that of the last frame
//
// All numbers are little-endian. The frames are, in this order, except that base
// and change frames are mixed:
//
//	header   JSON: format, time, geometry
//	base     records as they were at some moment of the pass:
//	         (table 16 | key length 16 | value length 32 | key | value)...
//	change   writes of a transaction that committed during the pass:
//	         number 64, then (table 16 | key length 16 | value length 32, or
//	         2^32-1: deleted | key | value)...
//	end      JSON: cut, number of base records and of changes, tables
//
// # What the copy is
//
// Transactions that write are numbered in a serial order while the copy is made
// (see occ.Tap). The copy is the state after all of those up to the cut: for each
// key the change with the highest number up to the cut, and where there is none,
// its last base record. Changes with higher numbers are in the file only because
// they were written before the cut was known.
//
// A file without an end frame is the trace of a backup that did not finish: Open
// refuses it, as it does one with any bit changed, or with frames of another file: a
// backup that was written over an older one, and did not finish.
package snapshot
