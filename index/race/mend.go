package race

import (
	"txnode/index"
	"txnode/memory/layout"
	"txnode/rdma"
)

// SetStall sets how long an operation waits for another client's change that stands
// in its way, in nanoseconds of the fabric's clock, before it fails with
// index.ErrBusy. The handle is not in use yet.
func (ix *Index) SetStall(ns int64) { ix.stall = ns }

// SetGone sets a function that says whether a change that stands in the way will never be finished.
// Either the owner of a lock is dead, or, where the owner is not known (0), some client is dead
// whose changes were not looked after yet. An operation that has waited for a little then fails
// with index.ErrBusy at once, so that the caller can have the index recovered. The function is
// called often, by any thread. The handle is not in use yet.
func (ix *Index) SetGone(f func(owner uint64) bool) { ix.gone = f }

// After so many pauses it is asked whether who stands in the way is dead: some 60
// microseconds where the owner is known, about a millisecond where it is not.
const (
	askOwner   = 6
	askAnybody = 14
)

// hopeless reports whether waiting on is in vain, after so many pauses.
func (ix *Index) hopeless(owner uint64, tries int) bool {
	least := askOwner
	if owner == 0 {
		least = askAnybody
	}
	return ix.gone != nil && tries >= least && ix.gone(owner)
}

// Resync completes a change of the slot of a block that a client has left half-done between the
// copies. The client has stopped and is fenced. Resync makes the backups of every slot of the key
// that points to block a like the primary. It takes a out of backups whose primary does not point
// to it any more, and says whether the primary does. If was is 0, slots of the key are also those
// that came too late: see late.go.
//
// The caller has resolved q and holds the lock of a, or is the only one that may decide what
// becomes of it. So only the mover of a split may change such a slot meanwhile. was is the block
// that the slot pointed to before, if the change was a Replace; 0: it was an Insert or a Remove.
//
// A word of a backup that holds neither a nor what was there before belongs to another transition,
// whose turn comes first: see step.
func (ix *Index) Resync(c *rdma.Coro, q *index.Query, was, a layout.Addr) (linked bool, err error) {
	s := ix.get()
	defer ix.put(s)
	t := c.Thread()
	reads := queryLines
	if q.State[stSecond] != 0 {
		reads = 2 * queryLines
	}
	var lines []layout.Addr
	for i := range reads {
		lines = append(lines, slotAddr(q, i, 0))
	}
	if was == 0 {
		lines = append(lines, ix.originLines(q)...)
	}
	copies := 0
	for _, line := range lines {
		copies = max(copies, q.View.Copies(line))
	}
	size := len(lines) * copies * lineSize
	buf, err := t.Alloc(size)
	if err != nil {
		return false, err
	}
	defer t.Free(buf, size)
	at := func(i, k, j int) uint32 { return buf + uint32((i*copies+k)*lineSize+8*j) }
	wait := waiting{}
	for {
		s.batch.Reset()
		for i, line := range lines {
			for k := range q.View.Copies(line) {
				s.batch.Read(q.View.At(line, k), at(i, k, 0), lineSize)
			}
		}
		if err := c.Do(&s.batch); err != nil {
			return false, err
		}
		linked = false
		left := 0
		s.batch.Reset()
		for i, line := range lines {
			for j := range slotsPerLine {
				p := t.Word(at(i, 0, j))
				here := Slot(p).Addr() == a
				linked = linked || here
				for k := 1; k < q.View.Copies(line); k++ {
					b := t.Word(at(i, k, j))
					there := Slot(b).Addr() == a
					if b == p || !here && !there {
						continue
					}
					switch {
					case here && !there:
						left++
						if Slot(b).Addr() != was {
							continue // somebody else's turn
						}
					case here: // the mark of a split, whose mover sees to it
						continue
					default:
						left++
					}
					g := q.View.At(line, k)
					g.Off += uint64(8 * j)
					s.batch.CAS(g, b, p)
				}
			}
		}
		if left == 0 {
			return linked, nil
		}
		if s.batch.Len() == 0 {
			if err := ix.waitFor(c, &wait, a, 0, "a change of a copy of a slot"); err != nil {
				return linked, err
			}
			continue
		}
		if err := c.Do(&s.batch); err != nil {
			return linked, err
		}
	}
}

// Extents returns the extents that the index consists of: the root, the parts of its directory, and
// the sub-tables that the directory names. While no split is under way, these are all. A directory
// with a damaged entry is an error: the sub-table that the entry has named would be missing.
func (ix *Index) Extents(c *rdma.Coro) ([]layout.Addr, error) {
	d, err := ix.readDirectory(c, nil)
	if err != nil {
		return nil, err
	}
	r := recovery{ix: ix, c: c, s: ix.get(), begun: map[layout.Addr]bool{}}
	defer ix.put(r.s)
	out := []layout.Addr{ix.root}
	for _, a := range d.parts {
		if a != 0 { // a part that is not in use yet is kept for the next doubling
			out = append(out, a)
		}
	}
	seen := map[layout.Addr]bool{}
	for i, e := range d.entries {
		if err := r.vouched(d, uint32(i), e); err != nil {
			return nil, err
		}
		if t := e.Table(); !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	return out, nil
}

// vouched fails if the sub-table of an entry is not that of its index, unless a split has changed
// the entry meanwhile.
func (r *recovery) vouched(d *directory, i uint32, e Entry) error {
	right, err := r.isEntry(d, i, e)
	if right || err != nil {
		return err
	}
	a := r.ix.entryAddr(d, i)
	if w, err := r.word(a); err != nil || Entry(w) != e {
		return err
	}
	return r.ix.corrupt(a, "directory: %v is not the sub-table of entry %d", e, i)
}
