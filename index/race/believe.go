package race

import (
	"bytes"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// Who recovers an index makes the copies equal to the primary. A word of the primary may be
// damaged, and the copy be that from which it can be repaired: so a word of which it can be told
// that it is wrong is brought to no copy. That costs healthy indexes nothing: only words are looked
// at whose copies differ, and stay so.

// believe returns what is wrong with the primary's word of a difference, nil: nothing that shows.
func (r *recovery) believe(d *difference) error {
	ix := r.ix
	if d.table && d.addr == d.of+tableLockOff || d.addr == ix.root+dirLockOff {
		return r.believeLock(d)
	}
	if !d.table && d.of != ix.root {
		return r.believeEntry(d)
	}
	head, err := r.read(d.of, lineSize, 0)
	if err != nil {
		return err
	}
	if !d.table {
		if _, err := ParseRoot(head); err != nil {
			return ix.corrupt(d.of, "%w", err)
		}
		return r.believePart(d)
	}
	birth, err := ParseBirth(head)
	if err != nil {
		return ix.corrupt(d.of, "%w", err)
	}
	switch off := uint32(d.addr - d.of); {
	case d.slot:
		if err := r.believeEmpty(d); err != nil {
			return err
		}
		return r.believeSlot(d)
	case off == tableChildOff && d.primary&^addrMask != 0:
		return ix.corrupt(d.addr, "%#x is no child", d.primary)
	case off == tableChildOff && d.primary != 0:
		if v := ix.space.ViewOn(r.c.Thread()); !ix.fits(v, layout.Addr(d.primary), ix.size) {
			return ix.outside(v, d.addr, layout.Addr(d.primary), "a child in no segment")
		}
	case off >= tableHeader: // of a bucket
		h := Header(d.primary)
		if err := h.Check(ix.geo.Table); err != nil {
			return ix.corrupt(d.addr, "%w", err)
		}
		if h.Depth() < birth.Depth || h.Depth() > ix.geo.MaxDepth ||
			(h.Suffix()^birth.Suffix)&suffixMask(birth.Depth) != 0 {
			return ix.corrupt(d.addr, "bucket of %v in a sub-table that was made for suffix %0*b",
				h, birth.Depth, birth.Suffix)
		}
		return r.believeDepth(d, h)
	}
	return nil
}

// believePart is believe for a word that says where a part of the directory is. The part is
// complete before any copy of the root names it.
func (r *recovery) believePart(d *difference) error {
	ix := r.ix
	off := d.addr - d.of
	if off < partsOff || d.primary == 0 {
		return nil
	}
	k, at := uint8(off-partsOff)/8+rootBits, Slot(d.primary).Addr()
	v := ix.space.ViewOn(r.c.Thread())
	if k >= ix.geo.MaxDepth || uint64(at) != d.primary || at&alignedMask != 0 {
		return ix.corrupt(d.addr, "%#x is no part of the directory", d.primary)
	}
	if !ix.fits(v, at, partSize(k)) {
		return ix.outside(v, d.addr, at, "part %d of the directory at %v is in no segment", k, at)
	}
	p, err := r.read(at, partHeader, 0)
	if err != nil {
		return err
	}
	return ix.isPart(p, at, k)
}

// believeLock is believe for a lock that names an owner who is gone, or none there can be. If the
// copy names a live client, that client has the lock still, or is about to have released it, and
// puts the word in order.
func (r *recovery) believeLock(d *difference) error {
	if r.gone(d.primary) && r.living(d.backup) {
		return &BusyError{
			Table: r.ix.geo.Table, Addr: d.addr, Owner: ownerOf(d.backup),
			What: "a lock whose copies name a live client",
		}
	}
	return nil
}

// believeEntry is believe for an entry of the directory: that of the copy is right, and this one is
// not.
func (r *recovery) believeEntry(d *difference) error {
	dir, err := r.ix.readDirectory(r.c, nil)
	if err != nil {
		return err
	}
	i, ok := r.entryAt(dir, d.addr)
	if !ok || uint64(i) > dir.mask {
		return nil
	}
	if right, err := r.isEntry(dir, i, Entry(d.primary)); right || err != nil {
		return err
	}
	right, err := r.isEntry(dir, i, Entry(d.backup))
	if w, e := r.word(d.addr); !right || err != nil || e != nil || w != d.primary { // a split has come by
		return firstOf(err, e)
	}
	return r.ix.corrupt(d.addr, "%v is not the sub-table of entry %d, and copy %d names that",
		Entry(d.primary), i, d.copy)
}

// believeDepth is believe for depth and suffix of a bucket: those of its sub-table in the
// directory, in which it is before it is in any bucket, or one less while the sub-table is split,
// which names its child then.
func (r *recovery) believeDepth(d *difference, h Header) error {
	dir, err := r.ix.readDirectory(r.c, nil)
	if err != nil {
		return err
	}
	depth, suffix, found := uint8(0), uint32(0), false
	for i, e := range dir.entries {
		if e.Table() == d.of {
			depth, suffix, found = max(depth, e.Depth()), uint32(i), true
		}
	}
	child, err := r.word(d.of + tableChildOff)
	if err != nil || !found {
		return err
	}
	if (h.Depth() == depth || h.Depth()+1 == depth && child != 0) && h.Suffix() == suffix&suffixMask(h.Depth()) {
		return nil
	}
	if w, err := r.word(d.addr); err != nil || w != d.primary { // a split has come by
		return err
	}
	return r.ix.corrupt(d.addr, "bucket of %v in a sub-table of depth %d for suffix %b",
		h, depth, suffix&suffixMask(depth))
}

// believeSlot is believe for a slot in use. One that is marked can lead to another key's block: see
// carried.go. Others cannot, since a block that is linked keeps its key: so what is seen of it
// twice, with one version, and the slot as it was in between, has been so while it was linked.
func (r *recovery) believeSlot(d *difference) error {
	ix, p := r.ix, Slot(d.primary)
	if p.Empty() {
		return nil
	}
	if err := p.Check(); err != nil {
		return ix.corrupt(d.addr, "%w", err)
	}
	v := ix.space.ViewOn(r.c.Thread())
	if !ix.fits(v, p.Addr(), p.Class().Size()) {
		return ix.outside(v, d.addr, p.Addr(), "%v: the block is in no segment", p)
	}
	var seen []byte
	for !p.Moving() {
		line, err := r.read(p.Addr(), record.LineSize, 0)
		if err != nil {
			return err
		}
		fits, free := r.leads(d, p, line)
		if free { // no block is freed before its slot is cleared, or leads elsewhere, on all copies
			b := Slot(d.backup)
			if b.Empty() || b.Moving() || b.Check() != nil || !ix.fits(v, b.Addr(), b.Class().Size()) {
				return nil //nolint:nilerr // the copy is no better
			}
			other, err := r.read(b.Addr(), record.LineSize, 0)
			if err != nil {
				return err
			}
			theirs, free := r.leads(d, b, other)
			fits = !theirs || free || record.Image(other).Meta().State() != record.Live || !record.Image(other).Stable()
		}
		if !fits {
			if fits, err = r.toldElsewhere(d, p); err != nil {
				return err
			}
		}
		w, err := r.word(d.addr)
		switch {
		case err != nil || fits || w != d.primary || seen != nil && !bytes.Equal(seen, line):
			return err
		case seen != nil:
			return ix.corrupt(d.addr,
				"%v: the block does not hold a key that belongs here, and copy %d leads elsewhere", p, d.copy)
		}
		seen = line
	}
	return nil
}

// believeEmpty is believe for a slot that leads elsewhere than that of the copy, or
// nowhere. Damage can have emptied it, and an insert have taken its place since; or its
// bucket has no header any more.
//
// What a slot is cleared for goes before: the record is deleted, or in another block, and nobody
// unlocks it before the slot is cleared on all copies. So a record that is there and unlocked, at
// the same version before and after a lookup of its key, was linked all the time; and if the lookup
// did not come by, the copy is what tells of it. So is it for a record that is locked by a name
// which no transaction has: it is to move when its index is in order.
func (r *recovery) believeEmpty(d *difference) error {
	ix, b := r.ix, Slot(d.backup)
	v := ix.space.ViewOn(r.c.Thread())
	if !d.pins() || b.Check() != nil || !ix.fits(v, b.Addr(), b.Class().Size()) {
		return nil //nolint:nilerr // the copy is no better
	}
	header := d.addr&^(lineSize-1) + headerOff
	h, err := r.word(header)
	if err != nil {
		return err
	}
	if err := Header(h).Check(ix.geo.Table); err != nil {
		return ix.corrupt(header, "%w", err)
	}
	m := mover{split: &split{locks: locks{ix: ix, c: r.c, s: r.s}}}
	img, damage, err := m.block(v, b, 0)
	if err != nil || damage != nil || img.Meta().State() != record.Live || img.Meta().Table() != ix.geo.Table {
		return err
	}
	if moves := img.Guard().Held() && img.Lock().Seq() >= record.MaxSequence; !img.Stable() && !moves {
		return nil
	}
	linked, err := r.linked(v, img.Key())
	if err != nil || linked {
		return err
	}
	again, err := r.read(b.Addr(), record.LineSize, 0)
	if err != nil || !bytes.Equal(again, img[:record.LineSize]) {
		return err
	}
	return ix.corrupt(d.addr, "%v, and copy %d has %v, whose record no other slot leads to", Slot(d.primary), d.copy, b)
}

// linked looks a key up and reports whether a slot leads to a block that has it, or may
// have it before long.
func (r *recovery) linked(v *layout.View, key []byte) (bool, error) {
	ix, t := r.ix, r.c.Thread()
	each := keyBytes(len(key))
	size := ix.BufferSize() + record.LineSize
	buf, err := t.Alloc(size + int(each))
	if err != nil {
		return false, err
	}
	defer t.Free(buf, size+int(each))
	q := index.Query{
		Key: key, Hash: record.Hash(ix.geo.Table, key),
		Local: (buf + record.LineSize - 1) &^ (record.LineSize - 1), View: v,
	}
	if err := ix.lookup(r.c, r.s, &q); err != nil {
		return false, err
	}
	for _, x := range q.Candidates {
		n := min(each, x.Class.Size())
		r.s.batch.Reset()
		r.s.batch.Read(q.View.At(x.Addr, 0), buf+uint32(size), n)
		if err := r.c.Do(&r.s.batch); err != nil {
			return false, err
		}
		if ix.keyIn(record.Image(t.Bytes(buf+uint32(size), n)), key) != keyOther {
			return true, nil
		}
	}
	return false, nil
}

// toldElsewhere reports whether a slot's block is damaged on the primary, and another copy
// of it has a key that belongs where the slot is: then it is the record that can be
// repaired, and not the slot.
func (r *recovery) toldElsewhere(d *difference, s Slot) (bool, error) {
	v := r.ix.space.ViewOn(r.c.Thread())
	m := mover{split: &split{locks: locks{ix: r.ix, c: r.c, s: r.s}}}
	if _, damage, err := m.block(v, s, 0); err != nil || damage == nil {
		return false, err
	}
	for k := 1; k < v.Copies(s.Addr()); k++ {
		img, damage, err := m.block(v, s, k)
		if err != nil {
			return false, err
		}
		if fits, _ := r.leads(d, s, img[:record.LineSize]); fits && damage == nil && img.Stable() &&
			img.Meta().State() != record.Free {
			return true, nil
		}
	}
	return false, nil
}

// leads reports whether the block of a slot, whose first line is given, may hold a key that
// belongs where the slot is, and whether it is free, and unlocked. What is locked, or being
// written, says nothing.
func (r *recovery) leads(d *difference, s Slot, line []byte) (fits, free bool) {
	img := record.Image(line)
	m := img.Meta()
	switch {
	case m == 0 && img.Version() == 0 && img.Guard() == 0:
		return false, true
	case !img.Stable():
		return true, false
	case m.State() == record.Free:
		return false, true
	case m.Table() != r.ix.geo.Table || m.Class() != s.Class():
		return false, false
	case m.KeyLen() > record.MaxKey || record.KeyAt(m.KeyLen()) >= record.LineSize:
		return true, false // the key is not in this line
	}
	h := record.Hash(m.Table(), img.Key())
	o1, o2 := r.ix.geo.place(h)
	off := uint32(d.addr-d.of) &^ (lineSize - 1)
	return fingerprint(h) == s.Fingerprint() && (off-o1 < combinedSize || off-o2 < combinedSize), false
}
