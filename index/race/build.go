package race

import (
	"encoding/binary"
	"fmt"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// Linked is a block that Build links, 16 bytes.
type Linked struct {
	Hash uint64 // of its key
	slot Slot
}

// Link says that the key with this hash is in the block at a.
func Link(hash uint64, a layout.Addr, class layout.Class) Linked {
	return Linked{hash, MakeSlot(fingerprint(hash), class, a)}
}

// Block is where the block is.
func (l Linked) Block() layout.Addr { return l.slot.Addr() }

// Build is Create, and Insert of each of blocks. No client uses the index before Build returns, so
// sub-tables are put together in the memory of the client and written as a whole, on all copies.
// Slots are where Insert would put them while there is room; otherwise others make room, if that is
// possible at all. A sub-table without room becomes two of the next depth, as if it had been split.
// So there are never more sub-tables than after any order of inserts: an index that fits its
// blades, or has its largest size, can be built again.
//
// The blocks are placed; Build changes their order. Of two whose hashes are equal, twice says which
// one to leave out, since their keys are equal too, 0: they are not. It may be asked about them
// more than once. Before each sub-table Build calls step, if that is not nil; an error of step ends
// Build. A failure leaves nothing behind.
func Build(c *rdma.Coro, s Space, table uint16, o Options, blocks []Linked,
	twice func(a, b layout.Addr) (layout.Addr, error), step func() error) (layout.Addr, *Index, error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return 0, nil, err
	}
	g := Geometry{Groups: o.Groups, MaxDepth: o.MaxDepth, Table: table}
	root, err := s.NewExtent(c, rootSize)
	if err != nil {
		return 0, nil, noExtent("the root of an index", table, err)
	}
	ix := newIndex(c, s, root.Addr, g)
	b := &builder{
		ix: ix, c: c, s: ix.get(), planned: o.initialDepth(), twice: twice, step: step, extents: []memory.Extent{root},
	}
	defer ix.put(b.s)
	var d *directory
	if err = b.part(blocks, 0, 0); err == nil {
		d = b.directory()
		if err = b.writeDirectory(d); err == nil {
			ix.dir.Store(d)
			return root.Addr, ix, nil
		}
	}
	for _, x := range b.extents {
		err = firstOf(err, ix.giveBack(c, x))
	}
	return 0, nil, err
}

// builder is a Build that is under way.
type builder struct {
	ix      *Index
	c       *rdma.Coro
	s       *scratch
	planned uint8 // the least depth of a sub-table
	twice   func(a, b layout.Addr) (layout.Addr, error)
	step    func() error
	made    []made
	extents []memory.Extent // that were allocated

	image  []byte   // of a sub-table
	hashes []uint64 // of the keys in it, by line and slot; of use where the slot is not empty
	moved  bool     // keys in it have made room for others
	via    []uint32 // by line: see displace; 0: not seen
	seen   []uint32 // the lines that were
}

// made is a sub-table that is complete.
type made struct {
	at     layout.Addr
	suffix uint32
	depth  uint8
}

// part makes the sub-tables of the keys that end with a suffix of depth bits: blocks.
func (b *builder) part(blocks []Linked, suffix uint32, depth uint8) error {
	if depth >= b.planned {
		if b.step != nil {
			if err := b.step(); err != nil {
				return err
			}
		}
		if ok, err := b.fill(blocks, suffix, depth); err != nil {
			return err
		} else if ok {
			return b.write(len(blocks) == 0, suffix, depth)
		}
	}
	if depth >= b.ix.geo.MaxDepth {
		return b.ix.deepest()
	}
	n := 0 // those whose next bit is 0 come first
	for i := range blocks {
		if blocks[i].Hash>>depth&1 == 0 {
			blocks[i], blocks[n] = blocks[n], blocks[i]
			n++
		}
	}
	if err := b.part(blocks[:n], suffix, depth+1); err != nil {
		return err
	}
	return b.part(blocks[n:], suffix|1<<depth, depth+1)
}

// fill puts blocks into the image of a sub-table. It reports whether there is room.
func (b *builder) fill(blocks []Linked, suffix uint32, depth uint8) (bool, error) {
	switch {
	case len(blocks) == 0:
		return true, nil
	case uint64(len(blocks)) > uint64(b.ix.geo.Groups)*groupSlots:
		return false, nil
	}
	if b.image == nil {
		b.image = make([]byte, b.ix.size)
		b.hashes = make([]uint64, b.ix.size/8)
		b.via = make([]uint32, b.ix.size/lineSize)
	}
	b.moved = false
	clear(b.image)
	b.birth(suffix, depth).put(b.image)
	h := uint64(MakeHeader(b.ix.geo.Table, depth, suffix))
	for o := tableHeader + headerOff; o < len(b.image); o += lineSize {
		binary.LittleEndian.PutUint64(b.image[o:], h)
	}
	for i := range blocks {
		if ok, err := b.put(&blocks[i]); !ok || err != nil {
			return false, err
		}
	}
	if b.moved {
		b.markAll(Header(h))
	}
	return true, nil
}

func (b *builder) birth(suffix uint32, depth uint8) Birth {
	return Birth{Geometry: b.ix.geo, Suffix: suffix, Depth: depth, Root: b.ix.root}
}

// put sets a slot of the image, and the mark that it needs, by the rules of Index.choose, as long
// as these find room.
func (b *builder) put(l *Linked) (bool, error) {
	var places, free [2]uint32 // free: an empty slot, 0: none
	var used [2]int
	places[0], places[1] = b.ix.geo.place(l.Hash)
	for k, o := range places {
		main := o + mainLine(o)*lineSize
		for _, line := range [2]uint32{main, 2*o + lineSize - main} { // and the overflow bucket
			for off := line; off < line+headerOff; off += 8 {
				switch w := Slot(word(b.image, int(off))); {
				case w == 0:
					if free[k] == 0 {
						free[k] = off
					}
				default:
					used[k]++
					if w.Fingerprint() == l.slot.Fingerprint() && b.hashes[off/8] == l.Hash {
						switch out, err := b.twice(w.Addr(), l.Block()); {
						case err != nil:
							return false, err
						case out == l.Block():
							return true, nil
						case out == w.Addr():
							b.set(off, l.slot, l.Hash)
							return true, nil
						}
					}
				}
			}
		}
	}
	k := 0
	if free[0] == 0 || used[0] > firstUpTo && free[1] != 0 && used[1] < used[0] {
		k = 1
	}
	at := free[k]
	if at == 0 {
		if at = b.displace(l.Hash); at == 0 {
			return false, nil
		}
		b.moved = true
	} else if k == 1 {
		b.mark(places[0], l.slot)
	}
	b.set(at, l.slot, l.Hash)
	return true, nil
}

func (b *builder) set(at uint32, s Slot, hash uint64) {
	binary.LittleEndian.PutUint64(b.image[at:], uint64(s))
	b.hashes[at/8] = hash
}

// mark says that a slot is in the second choice of its key, whose first one is given.
func (b *builder) mark(first uint32, s Slot) {
	h := b.image[MarkAt(first):]
	binary.LittleEndian.PutUint64(h, word(h, 0)|uint64(SpillBit(s.Fingerprint())))
}

// markAll makes the marks of all slots anew, in headers that have none.
func (b *builder) markAll(none Header) {
	for o := tableHeader + headerOff; o < len(b.image); o += lineSize {
		binary.LittleEndian.PutUint64(b.image[o:], uint64(none))
	}
	for off := uint32(tableHeader); off < b.ix.size; off += 8 {
		w := Slot(word(b.image, int(off)))
		if off%lineSize == headerOff || w == 0 {
			continue
		}
		if first, _ := b.ix.geo.place(b.hashes[off/8]); spilled(off, first) {
			b.mark(first, w)
		}
	}
}

// displace makes room for a key whose places are all taken: one that has one of them goes to
// another place of its own, from which one may have to go, and so on. It returns the slot that is
// empty then, 0: however keys were arranged, there is no room.
//
// It looks first where the fewest have to go: while one in n slots is empty it comes to one after
// some n of them. So a sub-table is filled to the last slot in hardly more time than to where
// inserts find no room any more.
func (b *builder) displace(hash uint64) uint32 {
	const here = 1 // the new key goes there; else it is the slot whose key does
	look := func(hash uint64, from uint32) uint32 {
		o1, o2 := b.ix.geo.place(hash)
		for _, line := range [...]uint32{o1, o1 + lineSize, o2, o2 + lineSize} {
			if b.via[line/lineSize] != 0 {
				continue
			}
			b.via[line/lineSize] = from
			b.seen = append(b.seen, line)
			for off := line; off < line+headerOff; off += 8 {
				if word(b.image, int(off)) == 0 {
					return off
				}
			}
		}
		return 0
	}
	b.seen = b.seen[:0]
	at := look(hash, here)
	for i := 0; at == 0 && i < len(b.seen); i++ {
		for off := b.seen[i]; at == 0 && off < b.seen[i]+headerOff; off += 8 {
			at = look(b.hashes[off/8], off)
		}
	}
	for at != 0 {
		from := b.via[at/lineSize]
		if from == here {
			break
		}
		b.set(at, Slot(word(b.image, int(from))), b.hashes[from/8])
		at = from
	}
	for _, line := range b.seen {
		b.via[line/lineSize] = 0
	}
	return at
}

// write writes the image to a new sub-table, or makes an empty one; it is placed when write
// returns.
func (b *builder) write(empty bool, suffix uint32, depth uint8) error {
	ix, c := b.ix, b.c
	x, err := ix.space.NewExtent(c, ix.size)
	if err != nil {
		return noExtent(fmt.Sprintf("sub-table %d", len(b.made)+1), ix.geo.Table, err)
	}
	at := x.Addr
	b.made, b.extents = append(b.made, made{at, suffix, depth}), append(b.extents, x)
	if empty {
		return ix.format(c, b.s, b.birth(suffix, depth), at, 0)
	}
	t, v := c.Thread(), ix.space.ViewOn(c.Thread())
	if !ix.fits(v, at, ix.size) {
		return ix.outside(v, at, at, "the new sub-table is in no segment")
	}
	const chunk = 64 << 10
	size := min(ix.size, chunk)
	buf, err := t.Alloc(int(size))
	if err != nil {
		return err
	}
	defer t.Free(buf, int(size))
	for o := uint32(0); o < ix.size; o += size {
		n := min(size, ix.size-o)
		copy(t.Bytes(buf, n), b.image[o:])
		b.s.batch.Reset()
		for k := range v.Copies(at) {
			b.s.batch.Write(v.At(at+layout.Addr(o), k), buf, n)
		}
		if err := c.Do(&b.s.batch); err != nil {
			return err
		}
	}
	if err := c.Fence(rdma.FenceThread, 0, &b.s.batch); err != nil {
		return err
	}
	return memory.SyncWords(c, v, at, ix.size)
}

// directory returns that of the sub-tables that were made.
func (b *builder) directory() *directory {
	depth := uint8(0)
	for _, m := range b.made {
		depth = max(depth, m.depth)
	}
	d := newDirectory(b.ix.space.ViewOn(b.c.Thread()).Epoch, depth)
	for _, m := range b.made {
		for i := uint64(m.suffix); i < uint64(len(d.entries)); i += 1 << m.depth {
			d.entries[i] = MakeEntry(m.at, m.depth)
		}
	}
	return d
}
