// Package race is RACE hashing (Zuo et al., "One-sided RDMA-Conscious Extendible
// Hashing for Disaggregated Memory", sections 3.2 to 3.4): an extendible hash
// table in the memory of the blades, which clients search, change and grow with
// one-sided verbs alone. A lookup is one READ, rarely two (below, "Marks"); the slots
// of a bucket point to record blocks.
//
// # Layout
//
// The root extent:
//
//	  0  magic "TXNRACE3"; the last letter is the version of the format
//	  8  geometry: groups 32 | maximum depth 8 | slots per bucket 8 | table 16   (from bit 0)
//	 56  checksum of the line
//	 64  global depth
//	 72  owner of the lock of the directory, 0: none
//	 80  where part k of the directory is, for k from 3 to 19; 0: nowhere yet
//	256  the first 8 entries of the directory ([Entry]), of 1<<globalDepth
//
// Part k of the directory has its entries from 1<<k to 2<<k:
//
//	 0  magic "TXNRDIR1"
//	 8  geometry
//	16  the root
//	24  k
//	56  checksum of the line
//	64  entries
//
// Entries never move. Doubling the directory fills in the upper half (RACE, figure 9): in the
// paper room for it is reserved when the index is made, here it is the next part, an extent that
// the root names before the depth changes. A sub-table is an extent of its own:
//
//	 0  magic "TXNSUBTB"
//	 8  geometry
//	16  suffix 32 | depth 8, with which it was made
//	24  the sub-table that it was split from, 0: none
//	32  the root
//	40  checksum of the line up to here
//	48  the sub-table that it is being split into, 0: none
//	56  owner of the lock of a split, 0: none
//	64  groups of three buckets of 64 bytes: main, overflow, main
//
// A bucket is seven slots ([Slot]) and a header ([Header]), which says for which
// hashes it is responsible, and has the marks. Unlike in the paper the header comes
// last: see below.
//
// A hash has 64 bits. Its low bits, as many as the local depth of the sub-table,
// are the suffix that chooses the sub-table; the high 8 are the fingerprint; the
// places of the two combined buckets (a main bucket and the overflow bucket that
// it shares with the other main bucket of its group), the first choice and the
// second, come from those between and from a product. They are in different groups.
//
// # Replicas
//
// All of it is replicated. A change of a word is a CAS on the primary, and when that has succeeded
// the same CAS on every backup, repeated until it succeeds: see step. (Slots that a split clears:
// the other way round.) Operations return when the backups are done. Only the primary is read.
//
// # Lookups are linearizable
//
// A key is linked when a slot points to its block. Claim: a lookup during which
// the key was linked all the time has the block among its candidates; so a lookup
// without it proves that there was a moment when the key was not linked. Slots
// change by inserts (0 to a), removes (a to 0), replaces (a to b, in place), and by
// the moves of a split; 0 stands for whatever is empty, a trace too ([Slot]). Only
// moves can hide a key from a reader, whose READs are four lines that are copied at
// any times, each in increasing order of its words.
//
// A split of sub-table T of depth d and suffix s makes T1 of suffix s+2^d. Its steps,
// each complete on the primary before the next begins:
//
//	S1  T1 is written, empty, with headers of depth d+1.
//	S2  The directory entries of the suffix of T1 point to it, marked as filling.
//	S3  The headers of T change to depth d+1: it is not responsible any more for
//	    the keys that are to move.
//	S4  For each slot that moves: it is marked in T; set at the same place in T1;
//	    cleared in T, on the backups first.
//	S5  The entries lose their mark.
//
// Consider a key K that moves. Where it may be:
//
//	(i)   An insert puts K into a line of T only if it saw, after its CAS, that the
//	      line's header was still responsible; else it takes the slot back, or, if it
//	      dies, the recovery that undoes the insert does (late.go). It puts
//	      K into T1 only if it saw before that none of K's four lines in T was.
//	(ii)  A move takes K out of a line of T after the line's header has changed, and
//	      it is in T1 then.
//	(iii) Only the mover changes a marked slot, and T1 is not split before S5.
//
// A reader whose directory says T, stale or not, accepts what it has read if all headers are
// responsible for K. Let it read all four lines. In each line the header was copied last, so when
// any of the line's slots was copied the header had not changed (it never changes back), and
// nothing had been moved out of the line (ii). Nor was K in T1 when the first slot was copied: by
// (i) and (ii) some header would have been changed by then, and would have been read after. So K
// was in a line of T, and stayed there until that line had been copied. Had the header been the
// first word of its line, as in the paper, a reader could see the old header, and then miss the
// slots that were moved out between the two.
//
// If a header is not responsible, S2 is over: the reader reads the directory anew,
// which says T1 now. A reader whose entry is marked as filling reads K's lines in
// T, and when these READs are complete, those in T1, and takes the union. If K was
// in T while its line was copied, it is found; if not, it had been moved or
// inserted into T1 before the second READs were posted, and stays there. (The paper,
// algorithm 6, reads T1, T, and T1 again.) That T1 is itself split
// meanwhile, after S5, shows in its headers, which are checked as above. A reader
// whose entry is not marked reads T1 alone: S4 was over when the entry was read.
//
// The paper lets inserts into T1 begin with S2. A reader with a stale directory
// then finds all of K's headers in T responsible, and misses a K that was inserted
// into T1 and whose insert has returned. Hence the second half of (i).
//
// Keys that stay in T are covered by the old headers and the new; the mover does
// not touch their slots.
//
// # Marks
//
// In the paper a key goes to the less loaded of its two combined buckets, so a lookup
// reads both. Here it goes to its first choice while that is not full by half, and
// to the less loaded one after that ([Index.Insert]). Before a slot is set in a second
// choice, a bit in the header of the main bucket of the first choice is: that of
// the key's fingerprint, one of eleven. That is its mark. A lookup reads the first
// choice; if it finds the bit clear, it does not read the second. So a key counts
// as linked when its slot is set and, in its second choice, its mark is, too.
//
// A mark is made on all copies before its slot is set on any, so it comes with its
// slot whatever copy survives. A crash between the two leaves a spurious mark: extra
// READs, no harm. Marks are not taken back when keys go. Only a split does that, for
// the buckets of T, since it has to see all slots of T anyway.
//
//	S3  A header that has marks gets the flag "recount" with its new depth.
//	S4  The mover notes which marks the slots need that stay. In T1 it makes the
//	    mark of a slot before it sets the slot.
//	S4' A header that still has the flag gets the marks that were noted, and loses it.
//
// An insert that relies on a mark clears the flag if it meets it. When it has set
// its slot it reads the header again, in the lookup that every insert ends with, and
// returns only if the mark is there, without the flag, and the depth is that at which
// it made the mark or saw it (else it makes it again, and looks again). Claim: no mark
// is lost that a slot needs whose insert has returned. If S4' takes it back, the flag
// was on the header from S3 to S4', and the mover did not see the slot in between:
// so the slot was set after S3. Its insert saw the header without the flag later
// than that: not before S4', since the flag was on; so after it, without the mark, or
// with one that was made at this depth after S4', which stays until the next S3.
//
// The argument for lookups holds with marks. Let a reader read the two lines M and O
// of the first choice of K, and both headers be responsible. All moves begin when all
// headers have changed, so it is enough that M's had not when it was copied: K
// was in a line of T, and was not moved until then. If that line was M or O, K is
// found there. If not, K's mark was in M when it was copied, and the lines of the
// second choice are read now; if their headers are responsible, K was still there
// when they were copied. While T1 is filled, lookups read both choices of both.
//
// Operations that change slots read both choices whatever the marks say (the second look
// of an insert, removes, replaces), so that two inserts of one key meet each other even
// when the mark of one of them is not there yet.
//
// # Absence that is validated
//
// Unchanged tells from a second copy of the same lines whether an insert that
// returned after the lookup could have been missed. If only T was read: the headers
// must be responsible still, so by (i) and (ii) such an insert left its slot in K's
// lines; if only those of the first choice were read, its mark must still be clear,
// so the slot is in these. If T1 was being filled: the headers of T must be the same as before. If
// all of K's were changed then, later inserts are in T1 when they return,
// whatever line they went through; if some were not, such an insert is in one of
// those, or has been moved, which would have changed a header.
//
// # Two inserts of a key never both succeed
//
// An insert sets its slot, and then looks up the key. Of two inserts the one that
// set its slot later meets the other's slot, since that stays until its owner
// clears it (lookups do not miss it, in T or T1). An insert that meets another slot of
// its key gives in, unless its own comes first in the order of bucket and slot numbers
// and the other's block is an insert in progress. Then it looks again, and gives in
// after a while. It returns nil only after a lookup that found no other slot of the
// key. So if both returned nil, each looked before the other had set its slot,
// which is impossible. That a record with a value is never removed in favour of a
// newer slot is a refinement of the paper's rule.
//
// Keys are compared by reading the blocks of slots with equal fingerprints. A block
// that is linked keeps its key; but when it is read, its record may have been moved to
// another block since its slot was read, and the block wiped, or used again: blocks
// are used again at once. So "another key" is believed when it was read twice,
// with the same version, before and after a lookup that found the slot as it
// was. Versions never repeat, so it was true when that lookup read the slot.
// The mover of a split believes in the same way that a slot stays; of those that
// move it reads the block again when the slot is marked, which pins the key.
//
// # Splits do not stop others
//
// Searches, replaces and removes go on, and inserts, but for those that find their
// buckets full. A remove or replace waits while its slot is marked, for a few round
// trips of the mover. In T1 the mover needs the place that the slot has in T: while
// T1 is filled, inserts leave alone those places whose like in T is in use.
//
// The lock of a split is a word of T's first line, and names its owner. T stays for
// ever at the directory index that is its suffix, and is never freed, so a stale
// directory leads nowhere else. The entries of the directory change under a lock of
// their own, which is held for a few round trips; readers ignore it.
//
// # When a blade is lost
//
// A change that a client has made on the primary, and on no backup when it died, is undone
// when the blade of the primary is lost, though others have seen it and gone on.
// What they have made of it, with the change undone, has to be right, too:
//
//   - The directory (S2, S5) is cached; the cache is good for the epoch in which it was read.
//   - Headers of T (S3) may be responsible again for keys that have come to T1. All
//     directories are of the new epoch, and say that T1 is being filled, since S2 had been
//     complete on all copies: so lookups read both. An insert into T leaves alone the
//     places whose like in T1 is in use, or has been.
//   - A slot that was cleared in T (S4) would lead to a block that may be another key's,
//     after its like in T1 has been removed. So slots that are marked are cleared on the
//     backups first, on the last of them before the others; so are those of Vacate.
//   - With two backups, the one that is left may be ahead of the one that is the primary
//     now. A mark counts as made when it is on all copies, whatever their depth.
//
// A slot that only an insert or a remove had changed is the business of the recovery of
// its transaction, whose lock the block has.
//
// # Death
//
// A client that dies within a split leaves marks and locks. Lookups go on, and so
// does everything that does not need the marked slots or more room, which fails
// with index.ErrBusy after some seconds; [Index.Recover] finishes the split or
// takes it back.
//
// Slots that lead to blocks which no client has or will have are emptied under the
// same lock, with the same marks ([Index.Vacate], [Index.Scour]): an insert that is undone can
// leave them behind when its block is lost with a blade.
//
// # What is asked of others
//
// Blocks must be placed before they are linked ([rdma.Coro.Fence], where the fabric
// does not promise it), with table and key, and keep both while they are linked. A client
// that removes or replaces a block holds its lock. A client that concludes from a
// candidate of another key that its own key is absent sets the candidate's version for
// Validate: if the block has been used again for this key since, by an insert that has
// returned, its version is another one.
package race
