package occ

import (
	"bytes"
	"slices"

	"txnode/memory/record"
)

// A loop meets each record once, as it was at the loop's first step: what its transaction writes
// from then on is not part of the walk. Else a loop that moves records forward would come to them
// again, and what it meets would depend on how far it reads ahead.
//
// Nothing is copied at the first step. A write notes what its key was before, if a scan is open
// that may come to the key and has begun since the last such note. So a transaction whose loops do
// not write pays nothing, and one whose loops do keeps each value that it replaces once for each
// loop around the write.

// before is what an item was when a write replaced that.
type before struct {
	prev  int32  // the note of the same item before this one; -1: there is none
	wrote bool   // the transaction had written it before; else it was as it was read
	has   bool   // it had a value then, if wrote
	value []byte // which is copied, since the next image may take its place
}

// notes are what items were before writes that were staged while scans were open.
type notes struct {
	list []before
	last map[int]int32 // of items, the last note
}

// reset forgets all notes.
func (n *notes) reset() {
	if len(n.list) > 0 {
		clear(n.list)
		n.list = n.list[:0]
		clear(n.last)
	}
}

// mayMeet reports whether the scan reads records of a table.
func (s *Scan) mayMeet(t *Table) bool { return s.table == t || s.beside == t }

// note notes what an item is, before a write of it, if an open scan may ask for that.
func (tx *Tx) note(i int) {
	it := &tx.items[i]
	last, ok := tx.notes.last[i]
	if !ok {
		last = -1
	}
	if !slices.ContainsFunc(tx.loops, func(s *Scan) bool { return int(last) < s.since && s.mayMeet(it.table) }) {
		return
	}
	b := before{prev: last, wrote: it.write != writeNone, has: it.has}
	if b.wrote && b.has {
		b.value = bytes.Clone(tx.value(it))
	}
	if tx.notes.last == nil {
		tx.notes.last = map[int]int32{}
	}
	tx.notes.last[i] = int32(len(tx.notes.list))
	tx.notes.list = append(tx.notes.list, b)
}

// wrote returns what the transaction had written to item i at the first step of the scan: live is
// false if it had deleted it. ok is false if it had written nothing.
func (s *Scan) wrote(i int) (value []byte, live, ok bool) {
	tx := s.tx
	it := &tx.items[i]
	if n, noted := tx.notes.last[i]; noted && int(n) >= s.since {
		b := &tx.notes.list[n]
		for b.prev >= 0 && int(b.prev) >= s.since {
			b = &tx.notes.list[b.prev]
		}
		return b.value, b.has, b.wrote
	}
	if it.write == writeNone {
		return nil, false, false
	}
	value, live = tx.Read(i)
	return value, live, true
}

// Read returns the value of item i, which has been executed, at the first step of the scan; live
// is false if it had none. The error is ErrCorrupt: the transaction has replaced a record that
// could not be read.
func (s *Scan) Read(i int) (value []byte, live bool, err error) {
	if value, live, ok := s.wrote(i); ok {
		return value, live, nil
	}
	it := &s.tx.items[i]
	switch {
	case it.state != record.Live:
		return nil, false, nil
	case it.unread:
		return nil, false, s.tx.damaged(it, record.ErrTorn)
	case it.write == writeNone:
		value, live = s.tx.Read(i)
		return value, live, nil
	}
	return s.tx.image(it).Value(), true, nil // as it was read
}

// Beside has [Scan.Read] know the items of another table, too.
func (s *Scan) Beside(t *Table) { s.beside = t }

// SkipValidation has the transaction not depend on what the scan, of an ordered table, reads. It
// still meets each key that has a value from its first step to its end, since the leaves tile the
// range. Of other keys it says nothing. The caller makes sure by other means that the keys it looks
// for stay as they are. Only what it reads ahead takes memory.
func (s *Scan) SkipValidation() { s.unvalidated = true }

// shed forgets the evidence of a scan that is loose.
func (s *Scan) shed() {
	if s.unvalidated {
		s.found, s.o.leaves, s.seen = s.found[:0], s.o.leaves[:0], nil
	}
}

// close takes the scan from the open ones.
func (s *Scan) close() {
	s.shed()
	if i := slices.Index(s.tx.loops, s); i >= 0 {
		s.tx.loops = slices.Delete(s.tx.loops, i, i+1)
	}
}
