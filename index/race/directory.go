package race

import (
	"encoding/binary"

	"txnode/memory"
	"txnode/rdma"
)

// directory is the part of the directory that is in use, as it was read. It is
// immutable, shared by all threads, and may be stale (RACE, section 3.4.1), but not of an
// epoch before that of the query: when a blade is lost, what only the lost primary had is
// undone, of the directory as of the headers by which staleness is noticed.
type directory struct {
	epoch   memory.Epoch // of the map by which it was read
	depth   uint8        // global depth
	mask    uint64
	entries []Entry
}

func newDirectory(epoch memory.Epoch, depth uint8) *directory {
	return &directory{epoch: epoch, depth: depth, mask: 1<<depth - 1, entries: make([]Entry, 1<<depth)}
}

// parent is the sub-table that the filling sub-table of e is filled from: the one
// of the same suffix without its first bit. A sub-table stays for ever at the
// index that is its suffix, so even a stale directory knows it.
func (d *directory) parent(hash uint64, e Entry) memory.Addr {
	return d.entries[uint32(hash)&suffixMask(e.Depth()-1)].Table()
}

// reads tells whether lookups of keys with this hash read a sub-table: 2, or 1 if that is the one from
// which theirs is being filled, or 0.
func (d *directory) reads(hash uint64, t memory.Addr) int {
	e := d.entries[hash&d.mask]
	switch {
	case t == e.Table():
		return 2
	case e.Filling() && t == d.parent(hash, e):
		return 1
	}
	return 0
}

// tables returns the index of the first entry of each sub-table.
func (d *directory) tables() []uint32 {
	var out []uint32
	for i, e := range d.entries {
		if uint32(i)&^suffixMask(e.Depth()) == 0 {
			out = append(out, uint32(i))
		}
	}
	return out
}

// dirChunk is how much of the directory one READ brings at most, in bytes.
const dirChunk = 32 << 10

// entryAddr is where entry i is.
func (ix *Index) entryAddr(i uint32) memory.Addr { return ix.root + dirOff + memory.Addr(i)*8 }

// refresh reads the directory anew, because seen has turned out to be stale, and
// makes it the one that lookups use, unless somebody else has done so meanwhile.
func (ix *Index) refresh(c *rdma.Coro, seen *directory) (*directory, error) {
	if d := ix.dir.Load(); d != seen {
		return d, nil
	}
	d, err := ix.readDirectory(c, seen)
	if err != nil || d == seen {
		return d, err
	}
	if !ix.dir.CompareAndSwap(seen, d) {
		return ix.dir.Load(), nil
	}
	return d, nil
}

// maxRereads is how often a directory is read again because it has grown
// meanwhile; each time it must have doubled.
const maxRereads = 4 * MaxMaxDepth

// readDirectory returns the directory as it is now: seen itself if it is the same, and of
// the current epoch.
func (ix *Index) readDirectory(c *rdma.Coro, seen *directory) (*directory, error) {
	v := ix.space.ViewOn(c.Thread())
	depth, least := uint8(0), uint8(0)
	if seen != nil {
		if depth, least = seen.depth, seen.depth; seen.epoch != v.Epoch {
			seen, least = nil, 0
		}
	}
	for tries := 0; ; tries++ {
		d := newDirectory(v.Epoch, depth)
		now, err := ix.readEntries(c, v, d)
		if err != nil {
			return nil, err
		}
		if now > ix.geo.MaxDepth || now < least {
			return nil, ix.corrupt(ix.root+depthOff, "global depth %d, it was %d and at most %d is possible", now, least, ix.geo.MaxDepth)
		}
		if now != depth {
			// The entries that were read are fewer than there are. They must be
			// read after the depth that says that they are valid.
			depth, least = now, now
			continue
		}
		verdict, err := ix.checkDirectory(d, seen)
		if err != nil {
			return nil, err
		}
		switch {
		case verdict == dirSame:
			return seen, nil
		case verdict == dirNew:
			return d, nil
		case tries >= maxRereads:
			return nil, ix.corrupt(ix.root+depthOff, "global depth %d, but entries have larger local depths", now)
		}
		pause(c, tries)
	}
}

// readEntries fills d with the entries, as they are on the map v, and returns the global depth.
func (ix *Index) readEntries(c *rdma.Coro, v *memory.View, d *directory) (uint8, error) {
	t := c.Thread()
	total := uint32(len(d.entries)) * 8
	size := int(min(total, dirChunk)) + lineSize
	buf, err := t.Alloc(size)
	if err != nil {
		return 0, err
	}
	defer t.Free(buf, size)
	s := ix.get()
	defer ix.put(s)
	if !v.Valid(ix.root) {
		return 0, ix.outside(v, ix.root, ix.root, "the root is in no segment")
	}
	depth := uint64(0)
	for at := uint32(0); at < total; at += dirChunk {
		n := min(total-at, dirChunk)
		s.batch.Reset()
		s.batch.Read(v.At(ix.root+depthOff, 0), buf, 8)
		s.batch.Read(v.At(ix.root+dirOff+memory.Addr(at), 0), buf+lineSize, n)
		if err := c.Do(&s.batch); err != nil {
			return 0, err
		}
		depth = max(depth, t.Word(buf))
		p := t.Bytes(buf+lineSize, n)
		for i := range n / 8 {
			d.entries[at/8+i] = Entry(binary.LittleEndian.Uint64(p[8*i:]))
		}
	}
	return uint8(min(depth, 255)), nil
}

// What a directory that was read is.
type dirVerdict uint8

const (
	dirSame dirVerdict = iota
	dirNew
	dirTorn // doubled while it was read: some of its entries are newer than its depth
)

// checkDirectory checks what differs from seen.
func (ix *Index) checkDirectory(d, seen *directory) (dirVerdict, error) {
	result := dirNew
	if seen != nil && seen.depth == d.depth {
		result = dirSame
	}
	v := ix.space.View()
	for i, e := range d.entries {
		old := Entry(0)
		if seen != nil {
			old = seen.entries[uint64(i)&seen.mask]
		}
		if seen != nil && old == e {
			continue
		}
		a := ix.entryAddr(uint32(i))
		switch err := e.Check(ix.geo.MaxDepth); {
		case err != nil:
			return result, ix.corrupt(a, "directory: %w", err)
		case old.Table() != e.Table() && !ix.fits(v, e.Table(), ix.size):
			return result, ix.outside(v, a, e.Table(), "directory: sub-table at %v is in no segment", e.Table())
		case e.Depth() > d.depth:
			return dirTorn, nil
		}
		result = dirNew
	}
	return result, nil
}
