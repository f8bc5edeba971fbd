package race

import (
	"txnode/internal/mutant"
	"txnode/memory"
)

// A slot that a split has carried can be there again, marked: the split has cleared it on
// all copies that counted, on the primary last, and has not come to one that was being
// built. That one becomes a full copy, the split's client dies, and the primary is lost
// before a recovery has made the copies equal. Meanwhile the key may have been deleted,
// and its block used again.
//
// Claim: if a slot is marked, the one at its place in the new sub-table has been used, and
// another slot leads to the block, or the block does not hold a key that belongs here,
// then the slot has been carried. For as long as a slot is in use nobody but the split
// uses that place, nor is a slot put where that place has been used before (choose), but by an
// insert that came too late, whose block holds its key (late.go), or is free; and what is emptied
// keeps a trace. So the split has set it, and
// has set it on all copies, those that are being built too, before it cleared the old one;
// it is not to be set again. A slot that was marked because its block seemed to hold another key
// than it does has not been cleared since, and holds a key that belongs here.

// findCarried finds out which of the items, all of which are marked, have been carried by a
// split before. They are not to be moved.
func (m *mover) findCarried(v *memory.View) error {
	var at []int
	for i := range m.items {
		it := &m.items[i]
		if it.carried = false; it.value.Moving() && !it.late && !mutant.CarriedAgain {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return nil
	}
	t := m.c.Thread()
	const each = 8 + queryBytes // the place in the new sub-table, and the key's buckets in both
	const room = 16
	buf, err := t.Alloc(room * each)
	if err != nil {
		return err
	}
	defer t.Free(buf, room*each)
	b := &m.s.batch
	for len(at) > 0 {
		part := at[:min(len(at), room)]
		at = at[len(part):]
		b.Reset()
		for k, i := range part {
			it, p := &m.items[i], buf+uint32(k*each)
			b.Read(v.At(m.to+memory.Addr(it.off), 0), p, 8)
			if !it.known {
				continue
			}
			for j, a := range m.buckets(it) {
				b.Read(v.At(a, 0), p+8+uint32(j*combinedSize), combinedSize)
			}
		}
		if err := m.c.Do(b); err != nil {
			return err
		}
		for k, i := range part {
			it, p := &m.items[i], t.Bytes(buf+uint32(k*each), each)
			there := Slot(word(p, 0))
			if there == 0 || there == it.value&^slotMoving {
				continue
			}
			if it.carried = !it.known || m.linkedTwice(it, p[8:]); it.carried {
				it.known = false
			}
		}
	}
	return nil
}

// buckets returns the combined buckets of an item's key, in the old sub-table and in the new one.
func (m *mover) buckets(it *item) [4]memory.Addr {
	o1, o2 := m.ix.geo.place(it.hash)
	return [4]memory.Addr{m.from + memory.Addr(o1), m.from + memory.Addr(o2), m.to + memory.Addr(o1), m.to + memory.Addr(o2)}
}

// linkedTwice reports whether another slot of the buckets of an item's key leads to its block.
// lines is what was read of them.
func (m *mover) linkedTwice(it *item, lines []byte) bool {
	for j, a := range m.buckets(it) {
		for o := 0; o < combinedSize; o += 8 {
			x := Slot(word(lines, j*combinedSize+o))
			if o%lineSize != headerOff && !x.Empty() && x.Addr() == it.value.Addr() && a+memory.Addr(o) != m.from+memory.Addr(it.off) {
				return true
			}
		}
	}
	return false
}
