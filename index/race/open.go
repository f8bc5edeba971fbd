package race

import (
	"fmt"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// Create makes an empty index for the records of a table, and returns where its
// root is: what Open takes.
func Create(c *rdma.Coro, s Space, table uint16, o Options) (layout.Addr, *Index, error) {
	return Build(c, s, table, o, nil, nil, nil)
}

// writeDirectory writes the root and the directory of a new index, on all copies. It allocates the
// parts, and notes in d where they are.
func (b *builder) writeDirectory(d *directory) error {
	ix, c, sc := b.ix, b.c, b.s
	for k := uint8(rootBits); k < d.depth; k++ {
		x, err := ix.space.NewExtent(c, partSize(k))
		if err != nil {
			return noExtent("a part of the directory", ix.geo.Table, err)
		}
		d.parts[k], b.extents = x.Addr, append(b.extents, x)
		if err := ix.writePart(c, sc, x.Addr, k, d.entries[1<<k:2<<k]); err != nil {
			return err
		}
	}
	t := c.Thread()
	v := ix.space.ViewOn(t)
	buf, err := t.Alloc(rootSize)
	if err != nil {
		return err
	}
	defer t.Free(buf, rootSize)
	p := t.Bytes(buf, rootSize)
	clear(p)
	ix.geo.putRoot(p)
	t.PutWord(buf+depthOff, uint64(d.depth))
	for k := rootBits; k < MaxMaxDepth; k++ {
		t.PutWord(buf+uint32(partWord(uint8(k))), uint64(d.parts[k]))
	}
	for i, e := range d.entries[:min(len(d.entries), rootEntries)] {
		t.PutWord(buf+dirOff+8*uint32(i), uint64(e))
	}
	sc.batch.Reset()
	for k := range v.Copies(ix.root) {
		sc.batch.Write(v.At(ix.root, k), buf, rootSize)
	}
	return ix.placeWritten(c, sc, v, ix.root, rootSize)
}

// writePart writes part k of the directory to an extent that the root does not name yet, on all
// copies; it is placed when writePart returns.
func (ix *Index) writePart(c *rdma.Coro, sc *scratch, at layout.Addr, k uint8, entries []Entry) error {
	t := c.Thread()
	v := ix.space.ViewOn(t)
	total := partSize(k)
	if !ix.fits(v, at, total) {
		return ix.outside(v, at, at, "a part of the directory is in no segment")
	}
	size := min(total, dirChunk)
	buf, err := t.Alloc(int(size))
	if err != nil {
		return err
	}
	defer t.Free(buf, int(size))
	for o := uint32(0); o < total; o += size {
		n := min(size, total-o)
		for i := uint32(0); i < n; i += 8 {
			if o+i >= partHeader {
				t.PutWord(buf+i, uint64(entries[(o+i-partHeader)/8]))
			}
		}
		if o == 0 {
			ix.geo.putPart(t.Bytes(buf, partHeader), ix.root, k)
		}
		sc.batch.Reset()
		for r := range v.Copies(at) {
			sc.batch.Write(v.At(at+layout.Addr(o), r), buf, n)
		}
		if o+n < total {
			if err := c.Do(&sc.batch); err != nil {
				return err
			}
		}
	}
	return ix.placeWritten(c, sc, v, at, total)
}

// placeWritten executes the WRITEs of the batch, the last ones to n bytes at a. They are placed
// when it returns, on copies that are being built, too.
func (ix *Index) placeWritten(c *rdma.Coro, sc *scratch, v *layout.View, a layout.Addr, n uint32) error {
	if err := c.Do(&sc.batch); err != nil {
		return err
	}
	if err := c.Fence(rdma.FenceThread, 0, &sc.batch); err != nil {
		return err
	}
	return memory.SyncWords(c, v, a, n)
}

// Open attaches to the index whose root is given, and checks that it is one of the table's. If the
// first line of the root is damaged, and that of a copy is not, it serves: see Heal.
func Open(c *rdma.Coro, s Space, root layout.Addr, table uint16) (*Index, error) {
	ix, err := attach(c, s, root, table)
	if err != nil {
		return nil, err
	}
	d, err := ix.readDirectory(c, nil)
	if err != nil {
		return nil, err
	}
	ix.dir.Store(d)
	return ix, nil
}

// attach is Open without the directory.
func attach(c *rdma.Coro, s Space, root layout.Addr, table uint16) (*Index, error) {
	t := c.Thread()
	v := s.ViewOn(t)
	probe := newIndex(c, s, root, Geometry{Table: table})
	if root&alignedMask != 0 || !probe.fits(v, root, rootSize) {
		return nil, probe.outside(v, root, root, "the root is in no segment")
	}
	buf, err := t.Alloc(lineSize)
	if err != nil {
		return nil, err
	}
	defer t.Free(buf, lineSize)
	sc := probe.get()
	defer probe.put(sc)
	var fault error
	for k := range v.Copies(root) {
		sc.batch.Reset()
		sc.batch.Read(v.At(root, k), buf, lineSize)
		if err := c.Do(&sc.batch); err != nil {
			return nil, firstOf(fault, err)
		}
		g, err := ParseRoot(t.Bytes(buf, lineSize))
		if err == nil && g.Table != table {
			err = fmt.Errorf("it is the index of table %d", g.Table)
		}
		if err == nil {
			ix := newIndex(c, s, root, g)
			ix.ill = fault != nil
			return ix, nil
		}
		fault = firstOf(fault, probe.corrupt(root, "%w", err))
	}
	return nil, fault
}

// Ill reports whether the first line of the root was damaged when the index was opened.
func (ix *Index) Ill() bool { return ix.ill }
