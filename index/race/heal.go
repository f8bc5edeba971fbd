package race

import (
	"bytes"
	"errors"
	"slices"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// A word of the primary that cannot be right is replaced by that of a copy which can, while
// the index is in use.
//
// No client changes such a word: a change is a CAS on the primary from a value that is right. So if
// no change of it is on its way between the copies, the copies have what the primary had. The
// caller waits for that, until everything has ended that was begun when the damage was met. Then a
// CAS from the damaged word to that of the copy undoes nothing. What never changes (the first lines
// of root, parts and sub-tables) needs no such care.
//
// What is right is what recovery believes (believe.go), and for the directory what the sub-tables
// say of themselves. Some damage does not show in a word, such as a slot that leads to another
// record of the table. Only a comparison of the copies finds it (package verify).

// Heal replaces what is damaged of the primary of the root, of the directory, and of the sub-table
// that the address is in, if it is in one. The index is not in use, or everything has ended that
// was begun before the damage was met. Words of which no copy is right are left. It returns how
// many words it has replaced.
func (ix *Index) Heal(c *rdma.Coro, at layout.Addr) (words int, err error) {
	h := healer{recovery: recovery{ix: ix, c: c, s: ix.get(), begun: map[layout.Addr]bool{}}}
	defer ix.put(h.s)
	if err = h.root(); err == nil {
		err = h.directory()
	}
	if err == nil {
		err = h.table(at)
	}
	if d := ix.dir.Load(); err == nil && d != nil { // which lookups have believed
		_, err = ix.refresh(c, d)
	}
	return h.words, err
}

// Heal is Index.Heal for an index that does not open, and so is not in use.
func Heal(c *rdma.Coro, s Space, root layout.Addr, table uint16) (words int, err error) {
	ix, err := attach(c, s, root, table)
	if err != nil {
		return 0, err
	}
	return ix.Heal(c, root)
}

// Near is where the sub-table is in which the slot of a key with this hash is looked
// for: Heal takes it.
func (ix *Index) Near(hash uint64) layout.Addr {
	d := ix.dir.Load()
	return d.entries[hash&d.mask].Table()
}

type healer struct {
	recovery
	words int        // that were replaced
	dir   *directory // as it is on the primary, once that is right
}

// root heals the root's first line, the places of the parts and their first lines, and the global
// depth.
func (h *healer) root() error {
	ix := h.ix
	err := h.sealed(ix.root, lineSize, func(p []byte) bool {
		g, err := ParseRoot(p)
		return err == nil && g == ix.geo
	})
	if err != nil {
		return err
	}
	roots, err := h.copies(ix.root, dirOff)
	if err != nil {
		return err
	}
	deepest := uint64(0)
	for _, p := range roots {
		if d := word(p, depthOff); d <= uint64(ix.geo.MaxDepth) {
			deepest = max(deepest, d)
		}
	}
	var parts [MaxMaxDepth]layout.Addr
	for k := uint8(rootBits); k < ix.geo.MaxDepth; k++ {
		right := func(w uint64) (bool, error) { return h.isPartOf(w, k, deepest) }
		w, err := h.choose(ix.root+partWord(k), roots, int(partWord(k)), right)
		if err != nil {
			return err
		}
		if parts[k] = layout.Addr(w); w != 0 {
			if err := h.sealed(parts[k], partHeader,
				func(p []byte) bool { return ix.isPart(p, parts[k], k) == nil }); err != nil {
				return err
			}
		}
	}
	_, err = h.choose(ix.root+depthOff, roots, depthOff, func(w uint64) (bool, error) { return h.depthFits(w, parts) })
	return err
}

// isPartOf reports whether a word of the root can say where part k is, of a directory of
// at most this depth.
func (h *healer) isPartOf(w uint64, k uint8, deepest uint64) (bool, error) {
	if w == 0 {
		return uint64(k) >= deepest, nil
	}
	a, v := layout.Addr(w), h.ix.space.ViewOn(h.c.Thread())
	if w&^addrMask != 0 || a&alignedMask != 0 || !h.ix.fits(v, a, partSize(k)) {
		return false, nil
	}
	lines, err := h.copies(a, partHeader)
	return slices.ContainsFunc(lines, func(p []byte) bool { return h.ix.isPart(p, a, k) == nil }), err
}

// depthFits reports whether a word can be the global depth: all parts are there, and most
// entries are right and of no larger depth. If it were too small half of them were not, if it
// were too large neither.
func (h *healer) depthFits(w uint64, parts [MaxMaxDepth]layout.Addr) (bool, error) {
	ix := h.ix
	if w > uint64(ix.geo.MaxDepth) {
		return false, nil
	}
	d := newDirectory(0, uint8(w))
	d.parts = parts
	for k := uint8(rootBits); k < d.depth; k++ {
		if parts[k] == 0 {
			return false, nil
		}
	}
	v := ix.space.ViewOn(h.c.Thread())
	if _, err := ix.readEntries(h.c, v, d); err != nil {
		return false, unlessDamage(err)
	}
	wrong := 0
	deep := false
	for _, e := range d.entries {
		if e.Check(d.depth) != nil || !ix.fits(v, e.Table(), ix.size) {
			wrong++
		} else if e.Depth() == d.depth {
			deep = true
		}
	}
	return wrong == 0 || deep && wrong <= len(d.entries)/4, nil
}

// directory heals the entries of the directory.
func (h *healer) directory() error {
	ix := h.ix
	head, err := h.read(ix.root, dirOff, 0)
	if err != nil {
		return err
	}
	depth := word(head, depthOff)
	if depth > uint64(ix.geo.MaxDepth) {
		return ix.corrupt(ix.root+depthOff, "global depth %d", depth)
	}
	v := ix.space.ViewOn(h.c.Thread())
	d := newDirectory(v.Epoch, uint8(depth))
	for k := uint8(rootBits); k < d.depth; k++ {
		d.parts[k] = layout.Addr(word(head, int(partWord(k))))
		if !ix.fits(v, d.parts[k], partSize(k)) {
			return ix.corrupt(ix.root+partWord(k), "part %d of the directory at %v is in no segment", k, d.parts[k])
		}
	}
	if _, err := ix.readEntries(h.c, v, d); err != nil {
		return err
	}
	h.dir = d
	for _, x := range append(d.spans(), span{at: ix.root + dirOff, n: min(uint32(len(d.entries)), rootEntries) * 8}) {
		for o := uint32(0); o < x.n; o += dirChunk {
			n := min(x.n-o, dirChunk)
			all, err := h.copies(x.at+layout.Addr(o), n)
			if err != nil {
				return err
			}
			for off := uint32(0); off < n; off += 8 {
				i, ok := h.entryAt(d, x.at+layout.Addr(o+off))
				if !ok || !slices.ContainsFunc(all[1:], func(p []byte) bool {
					return word(p, int(off)) != word(all[0], int(off))
				}) {
					continue
				}
				w, err := h.choose(ix.entryAddr(d, i), all, int(off), func(w uint64) (bool, error) {
					return h.isEntry(d, i, Entry(w))
				})
				if err != nil {
					return err
				}
				d.entries[i] = Entry(w)
			}
		}
	}
	return nil
}

// entryAt is the number of the entry at an address; false: there is none.
func (r *recovery) entryAt(d *directory, a layout.Addr) (uint32, bool) {
	if o := a - r.ix.root - dirOff; a >= r.ix.root+dirOff && o < rootEntries*8 {
		return uint32(o / 8), true
	}
	for k := uint8(rootBits); k < d.depth; k++ {
		if o := a - d.parts[k] - partHeader; a >= d.parts[k]+partHeader && o < 8<<k {
			return 1<<k + uint32(o/8), true
		}
	}
	return 0, false
}

// isEntry asks the sub-table of an entry whether it is that of index i.
func (r *recovery) isEntry(d *directory, i uint32, e Entry) (bool, error) {
	ix, v := r.ix, r.ix.space.ViewOn(r.c.Thread())
	if e.Check(d.depth) != nil || !ix.fits(v, e.Table(), ix.size) {
		return false, nil //nolint:nilerr // that it is none is the answer
	}
	all, err := r.copies(e.Table(), tableHeader+lineSize)
	if err != nil {
		return false, err
	}
	for _, p := range all {
		b, err := ParseBirth(p)
		if err != nil || b.Geometry != ix.geo || b.Root != ix.root || b.Depth > e.Depth() ||
			b.Suffix != i&suffixMask(b.Depth) {
			continue
		}
		if e.Filling() {
			if b.Parent == 0 { // it was made with the index
				return false, nil
			}
			parent, err := r.copies(b.Parent+tableChildOff, 8)
			if err != nil {
				return false, err
			}
			return slices.ContainsFunc(parent, func(p []byte) bool { return word(p, 0) == uint64(e.Table()) }), nil
		}
		for _, p := range all {
			b := Header(word(p, tableHeader+headerOff))
			if b.Check(ix.geo.Table) != nil || b.Suffix() != i&suffixMask(b.Depth()) {
				continue
			}
			if b.Depth() == e.Depth() {
				return true, nil
			}
			// In a split the directory comes first, and this is the sub-table of those
			// whose next bit is 0.
			if b.Depth()+1 != e.Depth() || i>>b.Depth()&1 != 0 {
				continue
			}
			child := layout.Addr(word(p, tableChildOff))
			if !ix.fits(v, child, ix.size) {
				continue
			}
			line, err := r.read(child, tableHeader, 0)
			if err != nil {
				return false, err
			}
			if c, err := ParseBirth(line); err == nil && c.Parent == e.Table() && c.Depth == e.Depth() {
				return true, nil
			}
		}
	}
	return false, nil
}

// table heals the sub-table that an address is in, if it is in one.
func (h *healer) table(at layout.Addr) error {
	ix := h.ix
	i := slices.IndexFunc(h.dir.entries, func(e Entry) bool {
		return at >= e.Table() && at < e.Table()+layout.Addr(ix.size)
	})
	if i < 0 {
		return nil
	}
	t := h.dir.entries[i].Table()
	err := h.sealed(t, tableChildOff, func(p []byte) bool {
		b, err := ParseBirth(append(bytes.Clone(p), make([]byte, lineSize)...))
		return err == nil && b.Geometry == ix.geo && b.Root == ix.root && b.Suffix == uint32(i)&suffixMask(b.Depth)
	})
	if err != nil {
		return err
	}
	lines, err := h.copies(t, tableHeader)
	if err != nil {
		return err
	}
	if _, err := h.choose(t+tableChildOff, lines, tableChildOff,
		func(w uint64) (bool, error) { return h.isChild(t, layout.Addr(w)) }); err != nil {
		return err
	}
	v := ix.space.ViewOn(h.c.Thread())
	for k := 1; k < v.Copies(t); k++ {
		// Headers first: what a slot is asked depends on that of its line.
		for _, slots := range []bool{false, true} {
			for o := uint32(tableHeader); o < ix.size; o += levelChunk {
				diffs, err := h.compare(nil, chunk{span{t + layout.Addr(o), min(ix.size-o, levelChunk), true}, t, k})
				if err != nil {
					return err
				}
				for i := range diffs {
					if diffs[i].slot == slots {
						if err := h.bucketWord(&diffs[i]); err != nil {
							return err
						}
					}
				}
			}
		}
	}
	return nil
}

// isChild reports whether a sub-table can be split into the one at an address. It may always say
// that it is not being split: 0.
func (h *healer) isChild(t, to layout.Addr) (bool, error) {
	ix := h.ix
	if to == 0 {
		return true, nil
	}
	if to&^addrMask != 0 || to&alignedMask != 0 || !ix.fits(ix.space.ViewOn(h.c.Thread()), to, ix.size) {
		return false, nil
	}
	lines, err := h.copies(to, tableHeader)
	return slices.ContainsFunc(lines, func(p []byte) bool {
		b, err := ParseBirth(p)
		return err == nil && b.Parent == t && b.Root == ix.root
	}), err
}

// bucketWord heals a word of a bucket.
func (h *healer) bucketWord(d *difference) error {
	// What was used once is never zero again.
	wiped := d.slot && d.primary == 0 && Slot(d.backup).Empty()
	if err := h.believe(d); err == nil && !wiped || unlessDamage(err) != nil {
		return err
	}
	if right, err := h.mayBe(d); err != nil || !right {
		return err
	}
	return h.replace(d.addr, d.primary, d.backup)
}

// mayBe reports whether the copy's word of a difference can be right.
func (h *healer) mayBe(d *difference) (bool, error) {
	ix := h.ix
	if !d.slot {
		other := *d
		other.primary, other.backup = d.backup, d.primary
		err := h.believe(&other)
		return err == nil, unlessDamage(err)
	}
	s, v := Slot(d.backup), ix.space.ViewOn(h.c.Thread())
	if s.Empty() {
		return true, nil
	}
	if s.Check() != nil || !ix.fits(v, s.Addr(), s.Class().Size()) {
		return false, nil //nolint:nilerr // that it is none is the answer
	}
	line, err := h.read(s.Addr(), record.LineSize, 0)
	if err != nil {
		return false, err
	}
	fits, free := h.leads(d, s, line)
	return fits && !free, nil
}

// sealed heals n bytes that never change, and have a checksum, on every copy.
func (h *healer) sealed(a layout.Addr, n uint32, right func(p []byte) bool) error {
	all, err := h.copies(a, n)
	if err != nil {
		return err
	}
	good := slices.IndexFunc(all, right)
	if good < 0 {
		return h.ix.corrupt(a, "no copy of it is intact")
	}
	t := h.c.Thread()
	for k, p := range all {
		if right(p) {
			continue
		}
		buf, err := t.Alloc(int(n))
		if err != nil {
			return err
		}
		copy(t.Bytes(buf, n), all[good])
		h.s.batch.Reset()
		h.s.batch.Write(h.ix.space.ViewOn(t).At(a, k), buf, n)
		if err = h.c.Do(&h.s.batch); err == nil {
			err = h.c.Fence(rdma.FenceThread, 0, &h.s.batch)
		}
		t.Free(buf, int(n))
		if err != nil {
			return err
		}
		h.words += int(n) / 8
	}
	return nil
}

// choose heals a word of which the copies are given, at off of each, and returns what it is then.
func (h *healer) choose(a layout.Addr, all [][]byte, off int, right func(w uint64) (bool, error)) (uint64, error) {
	was := word(all[0], off)
	if !slices.ContainsFunc(all, func(p []byte) bool { return word(p, off) != was }) {
		return was, nil
	}
	for _, p := range all {
		w := word(p, off)
		ok, err := right(w)
		switch {
		case err != nil:
			return 0, err
		case ok && w != was:
			return w, h.replace(a, was, w)
		case ok:
			return was, nil
		}
	}
	return was, nil
}

// replace changes a word of the primary that is damaged.
func (h *healer) replace(a layout.Addr, was, to uint64) error {
	v := h.ix.space.ViewOn(h.c.Thread())
	h.s.batch.Reset()
	h.s.batch.CAS(v.At(a, 0), was, to)
	if err := h.c.Do(&h.s.batch); err != nil {
		return err
	}
	if h.s.batch.Result(0) == was {
		h.words++
	}
	return memory.SyncWords(h.c, v, a, 8)
}

// copies reads n bytes of all copies.
func (r *recovery) copies(a layout.Addr, n uint32) ([][]byte, error) {
	v := r.ix.space.ViewOn(r.c.Thread())
	if !r.ix.fits(v, a, n) {
		return nil, r.ix.outside(v, a, a, "it is in no segment")
	}
	var out [][]byte
	for k := range v.Copies(a) {
		p, err := r.read(a, n, k)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// unlessDamage is an error that is not about damage, else nil.
func unlessDamage(err error) error {
	if c := (*CorruptError)(nil); errors.As(err, &c) {
		return nil
	}
	return err
}
