// Package log defines the records by which a transaction that stops half-way can
// be finished or undone, and the log areas on the blades that hold them.
//
// A coordinator has a log area on every blade; each of its transactions writes
// one record, a single contiguous WRITE, to the blades that its commit policy
// chooses.
//
//	 0  magic 32 | format 8 | kind 2 | ahead 6 | entries 16      (from bit 0)
//	 8  transaction id
//	16  length of the record in bytes 32 | generation 32, see memory.Space.Checkpoint
//	24  checksum of everything else: of the images, of their checksums and guards,
//	    and of what room they leave
//	32  entries, each:
//	     0  block address 48 | entry kind 8
//	     8  version that is replaced, 0: none
//	    16  length of the image 32 | offset from the image to the next entry 32
//	    24  of a Move, address of the block that it leaves; of an Update or a New, how
//	        many blocks had been freed so far, see memory.Space.Frees, or 0
//	    32  image of the block
//
// Images lie in the record exactly as they go to the blade, so one buffer serves
// the log WRITE and the WRITEs of the records.
//
// # Redo and undo
//
// Policy default writes a [Redo] record after validation: it holds the new
// images, and its presence on any blade is the decision to commit. Policy ford
// writes an [Undo] record before or beside validation, like FORD; it holds the
// old images, and the decision is whether every replica carries the new version.
//
// # Truncation
//
// Space is reused in a ring when everything of a transaction is in place,
// including the release of its locks. Nothing says that a record is over: one whose
// transaction holds none of its locks and whose versions have been installed or
// passed has nothing left to say. Versions never repeat, so an old record can not
// be mistaken for a pending one. A [Mark] is needed only where a large record leaves
// no room beside the newest complete one, which says how far the coordinator has
// come: it says that instead (see [Ring]).
package log
