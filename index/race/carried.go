package race

import (
	"slices"

	"txnode/memory/layout"
	"txnode/memory/record"
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
//
// Nor is one to be set again, whatever is at its place, if another slot leads to its block, or if
// that holds a key which belongs in other buckets. Such a one is back with another copy: of a split
// that was over before (recovery.begun), or since nobody had its block (vacate.go).

// findCarried finds out which of the items, all of which are marked, have been carried by a
// split before, or emptied. They are not to be moved.
func (m *mover) findCarried(v *layout.View) error {
	var at []int
	for i := range m.items {
		it := &m.items[i]
		if it.carried = false; it.value.Moving() {
			at = append(at, i)
		}
	}
	there, err := m.like(v, at)
	if err != nil {
		return err
	}
	k := 0
	for j, i := range at {
		switch it := &m.items[i]; {
		case there[j] == it.value&^slotMoving: // the split has got so far
		case there[j] != 0 && !it.known && !it.late:
			it.carried = true
		case !it.free:
			at[k] = i
			k++
		}
	}
	err = m.findMisled(at[:k])
	for _, i := range at[:k] {
		m.items[i].carried = m.items[i].misled
	}
	for i := range m.items {
		m.items[i].known = m.items[i].known && !m.items[i].carried
	}
	return err
}

// like reads what is in the new sub-table at the places of those items.
func (m *mover) like(v *layout.View, at []int) ([]Slot, error) {
	if len(at) == 0 {
		return nil, nil
	}
	t := m.c.Thread()
	buf, err := t.Alloc(8 * len(at))
	if err != nil {
		return nil, err
	}
	defer t.Free(buf, 8*len(at))
	b := &m.s.batch
	b.Reset()
	for j, i := range at {
		b.Read(v.At(m.to+layout.Addr(m.items[i].off), 0), buf+uint32(8*j), 8)
	}
	if err := m.c.Do(b); err != nil {
		return nil, err
	}
	out := make([]Slot, len(at))
	for j := range at {
		out[j] = Slot(t.Word(buf + uint32(8*j)))
	}
	return out, nil
}

// findMisled finds out which of those items, all of which are marked, lead to blocks in use that
// are not those of keys which only the item's slot leads to: they are to be emptied, or have been.
func (m *mover) findMisled(at []int) error {
	v := m.ix.space.ViewOn(m.c.Thread())
	var linked []int
	for _, i := range at {
		it := &m.items[i]
		it.misled = false
		switch a, class := it.value.Addr(), it.value.Class(); {
		case it.known, it.late:
			linked = append(linked, i)
		case m.ix.fits(v, a, class.Size()):
			// What is damaged, or half of an image, that recovery makes whole, says nothing.
			p, err := m.bytes(v, a, min(class.Size(), levelChunk), 0)
			if err != nil {
				return err
			}
			_, damage := record.Image(p).Check(a)
			it.misled = damage == nil
		}
	}
	if len(linked) == 0 {
		return nil
	}
	// Others may split the sub-tables in which the keys are. What they move is met in the old
	// one, which comes first, or in the new one, if the directory has that already.
	d, err := m.ix.readDirectory(m.c, nil)
	for err == nil {
		if err = m.findTwins(v, d, linked); err != nil {
			break
		}
		seen := d
		if d, err = m.ix.readDirectory(m.c, seen); d == seen {
			break
		}
	}
	return err
}

// findTwins notes those items as misled to whose blocks another slot leads, in any of the
// sub-tables from which that of the key descends.
func (m *mover) findTwins(v *layout.View, d *directory, at []int) error {
	const room = 32
	t := m.c.Thread()
	buf, err := t.Alloc(room * 2 * combinedSize)
	if err != nil {
		return err
	}
	defer t.Free(buf, room*2*combinedSize)
	b := &m.s.batch
	for depth := range d.depth + 1 {
		for part := range slices.Chunk(at, room) {
			b.Reset()
			var tables [room]layout.Addr // that are read; 0: not again
			for j, i := range part {
				it := &m.items[i]
				it.astray = d.reads(it.hash, m.from) == 0
				x := d.entries[it.hash&uint64(suffixMask(depth))].Table()
				if depth > 0 && x == d.entries[it.hash&uint64(suffixMask(depth-1))].Table() {
					continue
				}
				o1, o2 := m.ix.geo.place(it.hash)
				readPlaces(b, v.At(x, 0), o1, o2, buf+uint32(2*j*combinedSize))
				tables[j] = x
			}
			if b.Len() == 0 {
				continue
			}
			if err := m.c.Do(b); err != nil {
				return err
			}
			for j, i := range part {
				if tables[j] == 0 {
					continue
				}
				it := &m.items[i]
				o1, o2 := m.ix.geo.place(it.hash)
				for o := uint32(0); o < 2*combinedSize; o += 8 {
					place := o1 + o
					if o >= combinedSize {
						place = o2 + o - combinedSize
					}
					x := Slot(t.Word(buf + uint32(2*j*combinedSize) + o))
					if o%lineSize == headerOff || x.Empty() || x.Addr() != it.value.Addr() ||
						tables[j]+layout.Addr(place) == m.from+layout.Addr(it.off) {
						continue
					}
					stays, err := m.prevails(v, d, it, tables[j], place, x)
					if err != nil {
						return err
					}
					it.misled = it.misled || !stays
				}
			}
		}
	}
	return nil
}

// prevails reports whether a marked item stays although another slot, x at a place of a
// sub-table, leads to its block. If that is marked, too, as by somebody who was about to move it,
// and has died, one of the two has to stay, and whoever judges the other one has to say the same:
// the one which lookups of the key meet; in one sub-table that which can be moved, then the one
// that needs no mark.
func (m *mover) prevails(v *layout.View, d *directory, it *item, table layout.Addr, place uint32,
	x Slot) (bool, error) {
	if a, b := d.reads(it.hash, m.from), d.reads(it.hash, table); a != b {
		return a > b, nil
	}
	if !x.Moving() || table != m.from || slices.ContainsFunc(m.items, func(y item) bool {
		return y.off == place && !y.value.Moving()
	}) {
		return false, nil // or it was not, before this client has marked it
	}
	if x.Fingerprint() != it.value.Fingerprint() {
		return true, nil
	}
	if m.to != 0 {
		var used [2]bool
		for k, o := range [2]uint32{it.off, place} {
			p, err := m.bytes(v, m.to+layout.Addr(o), 8, 0)
			if err != nil {
				return false, err
			}
			used[k] = word(p, 0) != 0
		}
		if used[0] != used[1] {
			return !used[0], nil
		}
	}
	o1, _ := m.ix.geo.place(it.hash)
	if a, b := spilled(it.off, o1), spilled(place, o1); a != b {
		return !a, nil
	}
	return it.off < place, nil
}
