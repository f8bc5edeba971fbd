package race

import (
	"txnode/memory"
	"txnode/rdma"
)

// Create makes an empty index for the records of a table, and returns where its
// root is: what Open takes.
func Create(c *rdma.Coro, s Space, table uint16, o Options) (memory.Addr, *Index, error) {
	return Build(c, s, table, o, nil, nil)
}

func (ix *Index) writeRoot(c *rdma.Coro, sc *scratch, d *directory) error {
	t := c.Thread()
	v := ix.space.ViewOn(c.Thread())
	total := uint32(len(d.entries)) * 8
	size := int(dirOff + min(total, dirChunk))
	buf, err := t.Alloc(size)
	if err != nil {
		return err
	}
	defer t.Free(buf, size)
	for at := uint32(0); at < total; at += dirChunk {
		n := min(total-at, dirChunk)
		for i := range n / 8 {
			t.PutWord(buf+dirOff+8*i, uint64(d.entries[at/8+i]))
		}
		sc.batch.Reset()
		for k := range v.Copies(ix.root) {
			sc.batch.Write(v.At(ix.root+dirOff+memory.Addr(at), k), buf+dirOff, n)
		}
		if err := c.Do(&sc.batch); err != nil {
			return err
		}
	}
	clear(t.Bytes(buf, dirOff))
	ix.geo.putRoot(t.Bytes(buf, lineSize))
	t.PutWord(buf+depthOff, uint64(d.depth))
	sc.batch.Reset()
	for k := range v.Copies(ix.root) {
		sc.batch.Write(v.At(ix.root, k), buf, dirOff)
	}
	if err := c.Do(&sc.batch); err != nil {
		return err
	}
	if err := c.Fence(rdma.FenceThread, 0, &sc.batch); err != nil {
		return err
	}
	return memory.SyncWords(c, v, ix.root, dirOff+total)
}

// Open attaches to the index whose root is given, and checks that it is one of
// the table's.
func Open(c *rdma.Coro, s Space, root memory.Addr, table uint16) (*Index, error) {
	v := s.ViewOn(c.Thread())
	probe := newIndex(c, s, root, Geometry{Table: table})
	if root&alignedMask != 0 || !probe.fits(v, root, dirOff) {
		return nil, probe.outside(v, root, root, "the root is in no segment")
	}
	t := c.Thread()
	buf, err := t.Alloc(lineSize)
	if err != nil {
		return nil, err
	}
	defer t.Free(buf, lineSize)
	sc := probe.get()
	defer probe.put(sc)
	sc.batch.Reset()
	sc.batch.Read(v.At(root, 0), buf, lineSize)
	if err := c.Do(&sc.batch); err != nil {
		return nil, err
	}
	g, err := ParseRoot(t.Bytes(buf, lineSize))
	if err != nil {
		return nil, probe.corrupt(root, "%w", err)
	}
	if g.Table != table {
		return nil, probe.corrupt(root, "it is the index of table %d", g.Table)
	}
	ix := newIndex(c, s, root, g)
	if !ix.fits(v, root, g.rootSize()) {
		return nil, ix.corrupt(root, "the directory reaches past the end of its segment")
	}
	d, err := ix.readDirectory(c, nil)
	if err != nil {
		return nil, err
	}
	ix.dir.Store(d)
	return ix, nil
}
