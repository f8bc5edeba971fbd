package race

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// directory is the part of the directory that is in use, as it was read. It is
// immutable, shared by all threads, and may be stale (RACE, section 3.4.1), but not of an
// epoch before that of the query: when a blade is lost, what only the lost primary had is
// undone, of the directory as of the headers by which staleness is noticed.
type directory struct {
	epoch   layout.Epoch // of the map by which it was read
	depth   uint8        // global depth
	mask    uint64
	entries []Entry
	// parts are the extents of the entries that are not in the root, by number. One that no entry
	// in use is in may be there already.
	parts [MaxMaxDepth]layout.Addr
}

func newDirectory(epoch layout.Epoch, depth uint8) *directory {
	return &directory{epoch: epoch, depth: depth, mask: 1<<depth - 1, entries: make([]Entry, 1<<depth)}
}

// parent is the sub-table that the filling sub-table of e is filled from: the one
// of the same suffix without its first bit. A sub-table stays for ever at the
// index that is its suffix, so even a stale directory knows it.
func (d *directory) parent(hash uint64, e Entry) layout.Addr {
	return d.entries[uint32(hash)&suffixMask(e.Depth()-1)].Table()
}

// reads tells whether lookups of keys with this hash read a sub-table: 2, or 1 if that is the one
// from which theirs is being filled, or 0.
func (d *directory) reads(hash uint64, t layout.Addr) int {
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

// partOf is the number of the part of the directory that entry i is in; below rootBits: it is in
// the root extent.
func partOf(i uint32) uint8 { return uint8(max(bits.Len32(i), 1) - 1) }

// partWord is the offset in the root of the word that says where part k is.
func partWord(k uint8) layout.Addr { return partsOff + 8*layout.Addr(k-rootBits) }

// entryAddr is where entry i of a directory is.
func (ix *Index) entryAddr(d *directory, i uint32) layout.Addr {
	k := partOf(i)
	if k < rootBits {
		return ix.root + dirOff + layout.Addr(i)*8
	}
	return d.parts[k] + partHeader + layout.Addr(i-1<<k)*8
}

// spans are those of the entries of a directory, beside the root.
func (d *directory) spans() []span {
	var out []span
	for k := uint8(rootBits); k < d.depth; k++ {
		out = append(out, span{at: d.parts[k], n: partSize(k)})
	}
	return out
}

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
//
// The root is read again together with the entries. They count if it says the same as before:
// so they were read after the depth and the places which say that they are valid.
func (ix *Index) readDirectory(c *rdma.Coro, seen *directory) (*directory, error) {
	v := ix.space.ViewOn(c.Thread())
	if seen != nil && seen.epoch != v.Epoch {
		seen = nil
	}
	d := newDirectory(v.Epoch, 0)
	if seen != nil {
		d = newDirectory(v.Epoch, seen.depth)
		d.parts = seen.parts
	}
	for tries := 0; ; tries++ {
		h, err := ix.readEntries(c, v, d)
		if err != nil {
			return nil, err
		}
		if h.depth > uint64(ix.geo.MaxDepth) || h.depth < uint64(d.depth) {
			return nil, ix.corrupt(ix.root+depthOff, "global depth %d, it was %d and at most %d is possible",
				h.depth, d.depth, ix.geo.MaxDepth)
		}
		verdict := dirTorn
		if h.depth == uint64(d.depth) && h.same(d) {
			d.parts = h.parts
			if verdict, err = ix.checkDirectory(d, seen); err != nil {
				return nil, err
			}
		}
		switch {
		case verdict == dirSame:
			return seen, nil
		case verdict == dirNew:
			return d, nil
		case tries >= maxRereads:
			return nil, ix.corrupt(ix.root+depthOff,
				"global depth %d, but entries have larger local depths, or are in no part of the directory", h.depth)
		}
		if h.depth == uint64(d.depth) {
			pause(c, tries)
		}
		// The root is copied line by line: the place of a part can be older than the depth.
		next := newDirectory(v.Epoch, uint8(h.depth))
		next.parts = h.parts
		for k := uint8(rootBits); k < next.depth; k++ {
			if next.parts[k] == 0 {
				next = d
				break
			}
		}
		d = next
	}
}

// dirHead is what the root says of the directory.
type dirHead struct {
	depth uint64
	parts [MaxMaxDepth]layout.Addr
}

// same reports whether the parts of d are where the head says.
func (h *dirHead) same(d *directory) bool {
	return d.depth <= rootBits || slices.Equal(h.parts[:d.depth], d.parts[:d.depth])
}

// maxShort is for how many pauses a read of the directory waits for arena: after the loss of a
// blade all coroutines of a thread read it at the same moment.
const maxShort = 16

// piece is a READ of n bytes of part k of the directory, from an offset on, to the arena.
type piece struct {
	k       uint8
	from, n uint32
	at      uint32
}

// readEntries fills d, whose depth and parts are given, with the entries as they are on the map v,
// and returns what the root has said when that began.
func (ix *Index) readEntries(c *rdma.Coro, v *layout.View, d *directory) (h dirHead, err error) {
	t := c.Thread()
	room := min(8<<d.depth+partHeader*uint32(d.depth), dirChunk)
	size := int(rootSize + room)
	buf, err := t.Alloc(size)
	for tries := 0; errors.Is(err, rdma.ErrArenaFull) && tries < maxShort; tries++ {
		pause(c, tries)
		buf, err = t.Alloc(size)
	}
	if err != nil {
		return h, err
	}
	defer t.Free(buf, size)
	s := ix.get()
	defer ix.put(s)
	if !v.Valid(ix.root) {
		return h, ix.outside(v, ix.root, ix.root, "the root is in no segment")
	}
	b := &s.batch
	b.Reset()
	b.Read(v.At(ix.root+lineSize, 0), buf+lineSize, rootSize-lineSize)
	var few [MaxMaxDepth]piece
	pieces, used := few[:0], uint32(0)
	for k := uint8(rootBits); k < d.depth; k++ {
		a, total := d.parts[k], partSize(k)
		if !ix.fits(v, a, total) {
			if w := ix.newer(v, a, total); w != nil {
				v = w
			}
		}
		if !ix.fits(v, a, total) {
			return h, ix.outside(v, ix.root+partWord(k), a, "part %d of the directory at %v is in no segment", k, a)
		}
		for from := uint32(0); from < total; from += dirChunk {
			n := min(total-from, dirChunk)
			if used+n > room {
				if err := c.Do(b); err != nil {
					return h, err
				}
				if err := ix.takeEntries(t, d, pieces); err != nil {
					return h, err
				}
				b.Reset()
				pieces, used = pieces[:0], 0
			}
			at := buf + rootSize + used
			b.Read(v.At(a+layout.Addr(from), 0), at, n)
			pieces = append(pieces, piece{k, from, n, at})
			used += n
		}
	}
	if err := c.Do(b); err != nil {
		return h, err
	}
	h.depth = t.Word(buf + depthOff)
	for k := uint8(rootBits); k < MaxMaxDepth; k++ {
		h.parts[k] = layout.Addr(t.Word(buf + uint32(partWord(k))))
	}
	for i := range min(len(d.entries), rootEntries) {
		d.entries[i] = Entry(t.Word(buf + dirOff + 8*uint32(i)))
	}
	return h, ix.takeEntries(t, d, pieces)
}

// isPart returns what is wrong with the first line of part k of the directory, which is at a.
func (ix *Index) isPart(line []byte, a layout.Addr, k uint8) error {
	g, root, n, err := ParsePart(line)
	if err == nil && (g != ix.geo || root != ix.root || n != k) {
		err = fmt.Errorf("it is part %d of the directory of the index at %v", n, root)
	}
	if err != nil {
		return ix.corrupt(a, "%w", err)
	}
	return nil
}

// takeEntries takes the entries of a directory out of what was read of its parts.
func (ix *Index) takeEntries(t *rdma.Thread, d *directory, pieces []piece) error {
	for _, x := range pieces {
		p := t.Bytes(x.at, x.n)
		if x.from == 0 {
			if err := ix.isPart(p, d.parts[x.k], x.k); err != nil {
				return err
			}
			p = p[partHeader:]
		}
		first := uint32(1)<<x.k + (max(x.from, partHeader)-partHeader)/8
		for o := 0; o < len(p); o += 8 {
			d.entries[first+uint32(o/8)] = Entry(word(p, o))
		}
	}
	return nil
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
		a := ix.entryAddr(d, uint32(i))
		switch err := e.Check(ix.geo.MaxDepth); {
		case err != nil:
			return result, ix.corrupt(a, "directory: %w", err)
		case old.Table() != e.Table() && !ix.fits(v, e.Table(), ix.size) && ix.newer(v, e.Table(), ix.size) == nil:
			return result, ix.outside(v, a, e.Table(), "directory: sub-table at %v is in no segment", e.Table())
		case e.Depth() > d.depth:
			return dirTorn, nil
		}
		result = dirNew
	}
	return result, nil
}
