package race

import (
	"bytes"
	"errors"
	"fmt"

	"txnode/memory/layout"
	"txnode/rdma"
)

// maxFaults is how many faults Verify reports.
const maxFaults = 20

// Verify checks everything that holds of an index that no client is changing. The directory,
// headers and locks are right. Every slot points to a block whose key belongs there. Keys in their
// second choice are marked in their first. No block and no key is linked twice, and all copies are
// equal. It reads the first lines of all blocks. The error lists what is wrong, each an
// index.ErrCorrupt.
func (ix *Index) Verify(c *rdma.Coro) error {
	s := ix.get()
	defer ix.put(s)
	v := verifier{ix: ix, c: c, s: s, blocks: map[layout.Addr]layout.Addr{}}
	if err := v.run(); err != nil {
		return err
	}
	return errors.Join(v.faults...)
}

type verifier struct {
	ix     *Index
	c      *rdma.Coro
	s      *scratch
	blocks map[layout.Addr]layout.Addr // block -> slot

	headers []Header // of the sub-table that is being checked
	faults  []error
}

func (v *verifier) fault(a layout.Addr, format string, args ...any) {
	if len(v.faults) < maxFaults {
		v.faults = append(v.faults, v.ix.corrupt(a, format, args...))
	}
}

func (v *verifier) run() error {
	ix := v.ix
	d, err := ix.readDirectory(v.c, nil)
	if err != nil {
		return err
	}
	if err := v.root(d); err != nil {
		return err
	}
	for _, i := range d.tables() {
		if err := v.table(d.entries[i], i); err != nil {
			return err
		}
	}
	return nil
}

// root checks the root extent and the directory as far as they are in use.
func (v *verifier) root(d *directory) error {
	ix := v.ix
	err := v.copies(ix.root, dirOff+min(uint32(len(d.entries)), rootEntries)*8, func(p []byte) {
		if g, err := ParseRoot(p); err != nil {
			v.fault(ix.root, "%w", err)
		} else if g != ix.geo {
			v.fault(ix.root, "geometry %+v, the index was opened with %+v", g, ix.geo)
		}
		if w := word(p, dirLockOff); w != 0 {
			v.fault(ix.root+dirLockOff, "the directory is locked by client %d", ownerOf(w))
		}
	})
	if err != nil {
		return err
	}
	for _, x := range d.spans() { // which are what readDirectory says
		for at := uint32(0); at < x.n; at += dirChunk {
			if err := v.copies(x.at+layout.Addr(at), min(x.n-at, dirChunk), func([]byte) {}); err != nil {
				return err
			}
		}
	}
	owner := map[layout.Addr]uint32{}
	for i, e := range d.entries {
		first := uint32(i) & suffixMask(e.Depth())
		if e.Filling() {
			v.fault(ix.entryAddr(d, uint32(i)), "unfinished split")
		}
		if d.entries[first] != e {
			v.fault(ix.entryAddr(d, uint32(i)), "%v, but entry %d, of the same suffix, is %v",
				e, first, d.entries[first])
		}
		if o, ok := owner[e.Table()]; ok && o != first {
			v.fault(ix.entryAddr(d, uint32(i)), "%v is the sub-table of two suffixes", e)
		}
		owner[e.Table()] = first
	}
	return nil
}

// table checks a sub-table.
func (v *verifier) table(e Entry, suffix uint32) error {
	ix, at := v.ix, e.Table()
	err := v.copies(at, tableHeader, func(p []byte) {
		b, err := ParseBirth(p)
		switch {
		case err != nil:
			v.fault(at, "%w", err)
		case b.Geometry != ix.geo || b.Root != ix.root:
			v.fault(at, "sub-table of the index at %v, geometry %+v", b.Root, b.Geometry)
		case b.Suffix != suffix || b.Depth > e.Depth():
			v.fault(at, "made for suffix %b of depth %d, used for %b of depth %d", b.Suffix, b.Depth, suffix, e.Depth())
		}
		if w := word(p, tableLockOff); w != 0 {
			v.fault(at+tableLockOff, "locked by client %d", ownerOf(w))
		}
		if w := word(p, tableChildOff); w != 0 {
			v.fault(at+tableChildOff, "unfinished split into %v", layout.Addr(w))
		}
	})
	if err != nil {
		return err
	}
	v.headers = v.headers[:0]
	needs := map[uint32][]item{} // by bucket: the slots that need a mark in its header
	m := mover{split: &split{locks: locks{ix: ix, c: v.c, s: v.s}, from: at, depth: e.Depth(), suffix: suffix}}
	keys := map[uint64]uint32{}
	for o := uint32(tableHeader); o < ix.size; o += walkGroups * groupSize {
		n := min(walkGroups*groupSize, ix.size-o)
		if err := v.copies(at+layout.Addr(o), n,
			func(p []byte) { v.lines(p, at+layout.Addr(o), MakeHeader(ix.geo.Table, e.Depth(), suffix)) }); err != nil {
			return err
		}
		if err := m.read(o, n); err != nil {
			return err
		}
		if err := m.hashes(m.items); err != nil {
			return err
		}
		for _, it := range m.items {
			slot := at + layout.Addr(it.off)
			if !it.known {
				v.fault(slot, "%v: the block does not hold a key that belongs here", it.value)
				continue
			}
			if other, ok := v.blocks[it.value.Addr()]; ok {
				v.fault(slot, "%v: the slot at %v points to this block, too", it.value, other)
			}
			v.blocks[it.value.Addr()] = slot
			if o1, _ := ix.geo.place(it.hash); spilled(it.off, o1) {
				needs[MarkAt(o1)] = append(needs[MarkAt(o1)], it)
			}
			if other, ok := keys[it.hash]; ok {
				v.fault(slot, "%v: the slot at %v holds this key, too", it.value, at+layout.Addr(other))
			}
			keys[it.hash] = it.off
		}
	}
	for i, h := range v.headers {
		off := uint32(tableHeader + i*lineSize + headerOff)
		for _, it := range needs[off] {
			if !h.Spills(it.value.Fingerprint()) {
				v.fault(at+layout.Addr(off),
					"header is %v, but the key of %v at %v is in its second choice: lookups do not find it",
					h, it.value, at+layout.Addr(it.off))
			}
		}
		if len(needs[off]) == 0 && h&spillMask != 0 && mainLine(tableHeader+uint32(i)*lineSize) == 1 {
			v.fault(at+layout.Addr(off), "header is %v: an overflow bucket has no marks", h)
		}
	}
	return nil
}

func (v *verifier) lines(p []byte, at layout.Addr, want Header) {
	for o := 0; o < len(p); o += lineSize {
		b := parseBucket(p[o:])
		v.headers = append(v.headers, b.Header)
		switch {
		case b.Header.Base() != want:
			v.fault(at+layout.Addr(o)+headerOff, "header is %v instead of %v", b.Header, want)
		case b.Header.Recount():
			v.fault(at+layout.Addr(o)+headerOff, "header is %v: unfinished split", b.Header)
		}
		for j, s := range b.Slots {
			a := at + layout.Addr(o+8*j)
			if s.Empty() {
				continue
			}
			if err := s.Check(); err != nil {
				v.fault(a, "%w", err)
			}
			if s.Moving() {
				v.fault(a, "%v: unfinished split", s)
			}
		}
	}
}

// copies reads n bytes of the primary for fn, and compares the backups with them.
func (v *verifier) copies(a layout.Addr, n uint32, fn func(p []byte)) error {
	t := v.c.Thread()
	buf, err := t.Alloc(int(2 * n))
	if err != nil {
		return err
	}
	defer t.Free(buf, int(2*n))
	view := v.ix.space.ViewOn(v.c.Thread())
	for k := range view.Copies(a) {
		local := buf
		if k > 0 {
			local += n
		}
		v.s.batch.Reset()
		v.s.batch.Read(view.At(a, k), local, n)
		if err := v.c.Do(&v.s.batch); err != nil {
			return fmt.Errorf("index: verifying copy %d of %v: %w", k, a, err)
		}
		if k == 0 {
			fn(t.Bytes(buf, n))
			continue
		}
		p, q := t.Bytes(buf, n), t.Bytes(buf+n, n)
		for o := uint32(0); o < n; o += 8 {
			if !bytes.Equal(p[o:o+8], q[o:o+8]) {
				v.fault(a+layout.Addr(o), "copy %d holds %#x, the primary %#x", k, word(q, int(o)), word(p, int(o)))
			}
		}
	}
	return nil
}
