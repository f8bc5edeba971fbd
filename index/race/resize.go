package race

import (
	"fmt"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// grow makes room for the query's key, whose buckets have none: it splits their
// sub-table, or waits a little when somebody else is doing so. The caller then
// looks again.
func (ix *Index) grow(c *rdma.Coro, s *scratch, q *index.Query, w *waiting) error {
	e := Entry(q.State[stEntry])
	lock := e.Table() + tableLockOff
	// A client that was declared dead goes on by the map that it had last, which may be
	// older than the query's.
	if v := ix.space.ViewOn(c.Thread()); !v.Valid(e.Table()) {
		return ix.outside(v, lock, e.Table(), "the sub-table is in no segment")
	}
	if e.Filling() {
		// Whoever fills it holds its lock. That can be told when it is asked how long to wait.
		owner := uint64(0)
		if w.tries >= askOwner {
			var err error
			if owner, err = ix.holder(c, s, lock); err != nil {
				return err
			}
		}
		return ix.waitFor(c, w, lock, owner, "the split that fills the sub-table")
	}
	if err := c.Thread().BarError(); err != nil { // a split that stops in the middle is in the way of others
		return fmt.Errorf("index: a sub-table of table %d is to be split: %w", ix.geo.Table, err)
	}
	taken := locks{ix: ix, c: c, s: s}
	if ok, err := taken.take(lock); err != nil {
		return taken.abandon(err)
	} else if !ok {
		return ix.waitFor(c, w, lock, ownerOf(s.steps[0].prior), "a split of the sub-table")
	}
	*w = waiting{}
	seen := ix.dir.Load()
	d, err := ix.readDirectory(c, seen) // now that nobody else can split the sub-table
	if err == nil && d != seen {
		// Lookups of keys that have stayed work with the old one: they would never
		// refresh it, and this would come to pass again and again.
		ix.dir.CompareAndSwap(seen, d)
	}
	if err != nil || d.entries[q.Hash&d.mask] != e { // somebody else has split it meanwhile
		return firstOf(err, ix.unlock(c, s, lock))
	}
	r := recovery{ix: ix, c: c, s: s}
	if right, err := r.isEntry(d, uint32(q.Hash&d.mask), e); !right || err != nil {
		if err == nil {
			err = ix.corrupt(ix.entryAddr(d, uint32(q.Hash&d.mask)), "directory: %v is not what the buckets say", e)
		}
		return firstOf(ix.unlock(c, s, lock), err)
	}
	sp := split{locks: taken, from: e.Table(), depth: e.Depth(), suffix: uint32(q.Hash) & suffixMask(e.Depth())}
	sp.doubles = d.depth == sp.depth && sp.depth >= rootBits && sp.depth < ix.geo.MaxDepth && d.parts[sp.depth] == 0
	return firstOf(sp.abandon(sp.run()), sp.giveBackPart())
}

// holder reads who holds a lock; 0: nobody.
func (ix *Index) holder(c *rdma.Coro, s *scratch, lock layout.Addr) (uint64, error) {
	buf, err := c.Thread().Alloc(8)
	if err != nil {
		return 0, err
	}
	defer c.Thread().Free(buf, 8)
	s.batch.Reset()
	s.batch.Read(ix.space.ViewOn(c.Thread()).At(lock, 0), buf, 8)
	if err := c.Do(&s.batch); err != nil {
		return 0, err
	}
	return ownerOf(c.Thread().Word(buf)), nil
}

// split divides a sub-table, whose lock is held, in two (RACE, section 3.4.2).
type split struct {
	locks
	from   layout.Addr
	to     layout.Addr
	depth  uint8 // of from before the split
	suffix uint32
	damage error // what was left where it was, since it makes no sense
	// dead tells whose inserts are undone; nil: it is not known of anybody.
	dead func(owner uint64) bool
	// doubles: the directory has to be doubled, into a part that there is not yet. The part is an
	// extent for it, at address 0: none.
	doubles bool
	part    memory.Extent
}

// bit is what the hashes of the keys that move have and the others have not.
func (p *split) bit() uint32 { return 1 << p.depth }

func (p *split) run() error {
	if named, err := p.prepare(); err != nil {
		if named {
			return err
		}
		return firstOf(err, p.unlock(p.from+tableLockOff))
	}
	if err := p.publish(); err != nil {
		return err
	}
	if err := p.unlock(p.ix.root + dirLockOff); err != nil {
		return err
	}
	return p.fill()
}

// firstOf is the first error, since the second may be a consequence of it.
func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// prepare makes the new sub-table, and locks the directory. When it fails, nothing
// has changed, unless the old sub-table may already name the new one: then, as from
// then on, the split has to be finished or taken back by Recover, and the lock stays.
func (p *split) prepare() (named bool, err error) {
	ix := p.ix
	if p.depth >= ix.geo.MaxDepth {
		return false, ix.deepest()
	}
	made, err := ix.space.NewExtent(p.c, ix.size)
	if err != nil {
		return false, noExtent("a sub-table", ix.geo.Table, err)
	}
	to := made.Addr
	p.to = to
	if p.doubles { // before anybody has seen anything of the split
		if p.part, err = ix.space.NewExtent(p.c, partSize(p.depth)); err != nil {
			return false, firstOf(noExtent("a part of the directory", ix.geo.Table, err), ix.giveBack(p.c, made))
		}
	}
	err = ix.format(p.c, p.s, Birth{
		Geometry: ix.geo, Suffix: p.suffix | p.bit(), Depth: p.depth + 1, Parent: p.from, Root: ix.root,
	}, to, ix.lockWord(p.c))
	if err != nil {
		return false, firstOf(err, ix.giveBack(p.c, made))
	}
	p.held = append(p.held, to+tableLockOff)
	if named, err := p.name(to); err != nil {
		if named {
			return true, err
		}
		p.released(to + tableLockOff)
		return false, firstOf(err, ix.giveBack(p.c, made))
	}
	if err := p.lockDirectory(); err != nil {
		// Unlocked, it is nobody's child, whoever should still name it: see recovery.begun.
		if p.unname(to) != nil || p.unlock(to+tableLockOff) != nil {
			return true, err
		}
		return false, firstOf(err, ix.giveBack(p.c, made))
	}
	return false, nil
}

// name notes in the old sub-table which one it is split into, for Recover. named: it may have
// done so, though it has failed.
func (p *split) name(to layout.Addr) (named bool, err error) {
	p.s.steps = append(p.s.steps[:0], step{addr: p.from + tableChildOff, new: uint64(to), once: true})
	if err := p.ix.apply(p.c, p.s, p.ix.space.ViewOn(p.c.Thread()), p.s.steps); err != nil {
		return true, err
	}
	if t := &p.s.steps[0]; !t.ok() { // see recovery.begun: who comes next is told the same, until it is recovered
		return false, &BusyError{Table: p.ix.geo.Table, Addr: t.addr, What: "a split that nobody is at"}
	}
	return true, nil
}

// deepest says that a sub-table cannot be split.
func (ix *Index) deepest() error {
	return fmt.Errorf("index: index of table %d has 1<<%d sub-tables and cannot split one more: make it with a "+
		"larger MaxDepth or more groups: %w", ix.geo.Table, ix.geo.MaxDepth, index.ErrFull)
}

// giveBack frees an extent that nobody has come to see, unless a verb of the thread has failed
// that may still arrive there: then its coordinator is as good as dead, and whoever looks
// after what that has left frees it.
func (ix *Index) giveBack(c *rdma.Coro, x memory.Extent) error {
	if c.Thread().Uncertain() {
		return nil
	}
	_, err := ix.space.FreeExtent(x)
	return err
}

// giveBackPart frees the extent for a part of the directory that was not used.
func (p *split) giveBackPart() error {
	x := p.part
	if p.part = (memory.Extent{}); x.Addr == 0 {
		return nil
	}
	return p.ix.giveBack(p.c, x)
}

// unname takes back what name has noted.
func (p *split) unname(to layout.Addr) error {
	p.s.steps = append(p.s.steps[:0], step{addr: p.from + tableChildOff, old: uint64(to), once: true})
	return p.transitions("child")
}

// fill carries to the new sub-table what belongs there, and unlocks both.
func (p *split) fill() error {
	ix, c := p.ix, p.c
	if err := p.setHeaders(); err != nil {
		return err
	}
	m := mover{split: p}
	if err := m.run(); err != nil {
		return err
	}
	if err := m.recount(); err != nil {
		return err
	}
	if err := p.lockDirectory(); err != nil {
		return err
	}
	if err := p.filled(); err != nil {
		return err
	}
	if err := p.unname(p.to); err != nil {
		return err
	}
	for _, l := range []layout.Addr{ix.root + dirLockOff, p.to + tableLockOff, p.from + tableLockOff} {
		if err := p.unlock(l); err != nil {
			return err
		}
	}
	ix.splits.Add(1)
	if _, err := ix.refresh(c, ix.dir.Load()); err != nil {
		return err
	}
	return p.damage
}

// format writes an empty sub-table to all copies; it is placed when format returns.
func (ix *Index) format(c *rdma.Coro, s *scratch, b Birth, at layout.Addr, lock uint64) error {
	const chunk = 64 * groupSize
	t := c.Thread()
	v := ix.space.ViewOn(c.Thread())
	if !ix.fits(v, at, ix.size) {
		return ix.outside(v, at, at, "the new sub-table is in no segment")
	}
	const size = lineSize + chunk
	buf, err := t.Alloc(size)
	if err != nil {
		return err
	}
	defer t.Free(buf, size)
	b.put(t.Bytes(buf, lineSize))
	t.PutWord(buf+tableLockOff, lock)
	lines := buf + lineSize
	clear(t.Bytes(lines, chunk))
	h := MakeHeader(ix.geo.Table, b.Depth, b.Suffix)
	for o := uint32(0); o < chunk; o += lineSize {
		t.PutWord(lines+o+headerOff, uint64(h))
	}
	s.batch.Reset()
	for k := range v.Copies(at) {
		s.batch.Write(v.At(at, k), buf, tableHeader)
		for o := uint32(tableHeader); o < ix.size; o += chunk {
			if s.batch.Len() >= ix.window {
				if err := c.Do(&s.batch); err != nil {
					return err
				}
				s.batch.Reset()
			}
			s.batch.Write(v.At(at+layout.Addr(o), k), lines, min(chunk, ix.size-o))
		}
	}
	if err := c.Do(&s.batch); err != nil {
		return err
	}
	if err := c.Fence(rdma.FenceThread, 0, &s.batch); err != nil {
		return err
	}
	return memory.SyncWords(c, v, at, ix.size)
}

// unlock clears a lock word that c holds.
func (ix *Index) unlock(c *rdma.Coro, s *scratch, at layout.Addr) error {
	ok, err := ix.release(c, s, at, 0)
	if err == nil && !ok {
		err = ix.corrupt(at, "lock holds %#x instead of the %#x of this client", s.steps[0].prior, ix.lockWord(c))
	}
	return err
}

// publish puts the new sub-table into the directory, which is locked: as filling,
// so that lookups read the old one too.
func (p *split) publish() error {
	ix := p.ix
	d, err := ix.readDirectory(p.c, nil)
	if err != nil {
		return err
	}
	if d.depth == p.depth {
		if d, err = p.double(d); err != nil {
			return err
		}
	}
	p.s.steps = p.s.steps[:0]
	var wrong error
	add := func(i uint32, to Entry) {
		switch e, old := d.entries[i], MakeEntry(p.from, p.depth); e {
		case old:
			p.s.steps = append(p.s.steps, step{addr: ix.entryAddr(d, i), old: uint64(old), new: uint64(to), once: true})
		case to, to &^ entryFilling:
			// An interrupted publication has changed it already; or the end of that split.
		default:
			wrong = firstOf(wrong,
				ix.corrupt(ix.entryAddr(d, i), "directory: %v instead of %v, in a split that holds the lock", e, old))
		}
	}
	first := p.suffix | p.bit()
	// The first step decides: Recover completes a publication that has got so
	// far, and takes back one that has not. The others may be in extents of other blades, so
	// it is complete on all copies before they begin: no loss of a blade undoes it, and not them.
	add(first, MakeEntry(p.to, p.depth+1)|entryFilling)
	if wrong != nil {
		return wrong
	}
	if err := p.transitions("directory entry"); err != nil {
		return err
	}
	p.s.steps = p.s.steps[:0]
	for i := first + 2*p.bit(); uint64(i) <= d.mask; i += 2 * p.bit() {
		add(i, MakeEntry(p.to, p.depth+1)|entryFilling)
	}
	for i := p.suffix; uint64(i) <= d.mask; i += 2 * p.bit() {
		add(i, MakeEntry(p.from, p.depth+1))
	}
	if wrong != nil {
		return wrong
	}
	return p.transitions("directory entry")
}

// transitions applies the steps in the scratch, of which every one must take effect.
func (p *split) transitions(what string) error {
	if err := p.ix.apply(p.c, p.s, p.ix.space.ViewOn(p.c.Thread()), p.s.steps); err != nil {
		return err
	}
	return p.took(what)
}

// took checks that the steps in the scratch have taken effect.
func (p *split) took(what string) error {
	for i := range p.s.steps {
		if t := &p.s.steps[i]; !t.ok() {
			return p.ix.corrupt(t.addr, "%s %#x instead of %#x, in a split that holds the lock", what, t.prior, t.old)
		}
	}
	return nil
}

// double doubles the directory, which is locked: the upper half becomes a copy of
// the lower, and then the global depth says that it is valid (RACE, figure 9). From the fourth
// doubling on the upper half is a part of its own, which the root names before the depth changes.
func (p *split) double(d *directory) (*directory, error) {
	ix, c, s := p.ix, p.c, p.s
	if err := p.sound(d); err != nil {
		return nil, err
	}
	n := newDirectory(d.epoch, d.depth+1)
	n.parts = d.parts
	copy(n.entries, d.entries)
	copy(n.entries[len(d.entries):], d.entries)
	v := ix.space.ViewOn(c.Thread())
	if d.depth < rootBits {
		if err := ix.writeRootEntries(c, s, v, d.entries); err != nil {
			return nil, err
		}
	} else if err := p.placePart(v, n, d.entries); err != nil {
		return nil, err
	}
	ok, err := ix.one(c, s, v, ix.root+depthOff, uint64(d.depth), uint64(d.depth)+1)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, ix.corrupt(ix.root+depthOff, "global depth %d instead of %d under the lock of the directory",
			s.steps[0].prior, d.depth)
	}
	ix.doublings.Add(1)
	return n, nil
}

// sound looks for damaged entries of the directory, which is locked: else doubling it would bring
// them to all copies.
func (p *split) sound(d *directory) error {
	r := recovery{ix: p.ix, c: p.c, s: p.s, begun: map[layout.Addr]bool{}}
	v := p.ix.space.ViewOn(p.c.Thread())
	for _, x := range append(d.spans(), span{at: p.ix.root + dirOff, n: min(uint32(len(d.entries)), rootEntries) * 8}) {
		for k := 1; k < v.Copies(x.at); k++ {
			for o := uint32(0); o < x.n; o += dirChunk {
				diffs, err := r.compare(nil, chunk{span{at: x.at + layout.Addr(o), n: min(x.n-o, dirChunk)}, x.at, k})
				for i := 0; i < len(diffs) && err == nil; i++ {
					err = r.believeEntry(&diffs[i])
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// writeRootEntries writes the upper half of the entries in the root, which are not in use yet, as a
// copy of the lower.
func (ix *Index) writeRootEntries(c *rdma.Coro, s *scratch, v *layout.View, entries []Entry) error {
	t := c.Thread()
	size := uint32(len(entries)) * 8
	buf, err := t.Alloc(int(size))
	if err != nil {
		return err
	}
	defer t.Free(buf, int(size))
	for i, e := range entries {
		t.PutWord(buf+8*uint32(i), uint64(e))
	}
	a := ix.root + dirOff + layout.Addr(size)
	s.batch.Reset()
	for k := range v.Copies(a) {
		s.batch.Write(v.At(a, k), buf, size)
	}
	return ix.placeWritten(c, s, v, a, size)
}

// placePart writes the last part of a directory and has the root name it, unless it names one
// already, of a client that has not come to the depth.
func (p *split) placePart(v *layout.View, d *directory, entries []Entry) error {
	k := d.depth - 1
	at := d.parts[k]
	if at == 0 {
		at = p.part.Addr
	}
	if at == 0 {
		return p.ix.corrupt(p.ix.root+partWord(k), "part %d of the directory was there, and is not any more", k)
	}
	if err := p.ix.writePart(p.c, p.s, at, k, entries); err != nil || d.parts[k] != 0 {
		return err
	}
	p.part = memory.Extent{} // from now on the root may name it
	ok, err := p.ix.one(p.c, p.s, v, p.ix.root+partWord(k), 0, uint64(at))
	if err == nil && !ok {
		err = p.ix.corrupt(p.ix.root+partWord(k),
			"%#x is part %d of the directory, which has no such part under its lock", p.s.steps[0].prior, k)
	}
	d.parts[k] = at
	return err
}

// setHeaders tells every bucket of the old sub-table that it is responsible for
// half of its keys only; those that have marks, that it is being found out which of
// them are still needed.
func (p *split) setHeaders() error {
	ix, s := p.ix, p.s
	from, to := p.headers()
	return p.eachHeader(func(at layout.Addr, h Header) (Header, error) {
		switch {
		case h.Base() == to:
			return h, nil // done by a split that was interrupted
		case h.Base() != from:
			return 0, ix.corrupt(at, "bucket header %#x instead of %#x, in a split that holds the lock",
				uint64(h), uint64(from))
		case h&spillMask != 0:
			return to | h&spillMask | headerRecount, nil
		}
		return to, nil
	}, func() error {
		for len(s.steps) > 0 { // the header of some may have got one more mark
			if err := ix.apply(p.c, s, ix.space.ViewOn(p.c.Thread()), s.steps); err != nil {
				return err
			}
			left := s.steps[:0]
			for _, t := range s.steps {
				if t.ok() {
					continue
				}
				h := Header(t.prior)
				if h.Base() != from {
					return ix.corrupt(t.addr, "bucket header %#x instead of %#x, in a split that holds the lock",
						uint64(h), uint64(from))
				}
				left = append(left, step{
					addr: t.addr, old: t.prior, new: uint64(to | h&spillMask | headerRecount), header: true,
				})
			}
			s.steps = left
		}
		return nil
	})
}

// headers are what the buckets of the old sub-table say before the split and after
// it, without marks.
func (p *split) headers() (before, after Header) {
	return MakeHeader(p.ix.geo.Table, p.depth, p.suffix), MakeHeader(p.ix.geo.Table, p.depth+1, p.suffix)
}

// eachHeader reads the headers of the old sub-table, collects in the scratch the steps
// to what fn makes of them, and has apply do these, some at a time.
func (p *split) eachHeader(fn func(at layout.Addr, h Header) (Header, error), apply func() error) error {
	ix := p.ix
	t := p.c.Thread()
	size := int(min(max(uint32(ix.window)/groupLines, 1), ix.geo.Groups) * groupSize)
	buf, err := t.Alloc(size)
	if err != nil {
		return err
	}
	defer t.Free(buf, size)
	for o := uint32(tableHeader); o < ix.size; o += uint32(size) {
		n := min(uint32(size), ix.size-o)
		b := &p.s.batch
		b.Reset()
		b.Read(ix.space.ViewOn(p.c.Thread()).At(p.from+layout.Addr(o), 0), buf, n)
		if err := p.c.Do(b); err != nil {
			return err
		}
		p.s.steps = p.s.steps[:0]
		for i := uint32(headerOff); i < n; i += lineSize {
			at, h := p.from+layout.Addr(o+i), Header(t.Word(buf+i))
			to, err := fn(at, h)
			if err != nil {
				return err
			}
			if to != h {
				p.s.steps = append(p.s.steps, step{addr: at, old: uint64(h), new: uint64(to), header: true})
			}
		}
		if err := apply(); err != nil {
			return err
		}
	}
	return nil
}

// filled tells the directory, which is locked, that the split is done. Until it is unlocked, and
// not named by the old sub-table any more, Recover does so again.
func (p *split) filled() error {
	d, err := p.ix.readDirectory(p.c, nil)
	if err != nil {
		return err
	}
	e := MakeEntry(p.to, p.depth+1)
	p.s.steps = p.s.steps[:0]
	first := p.suffix | p.bit()
	// in descending order: as long as the first one is filling, it is not done
	last := first + uint32(d.mask)&^(2*p.bit()-1)
	for i := last; ; i -= 2 * p.bit() {
		p.s.steps = append(p.s.steps, step{
			addr: p.ix.entryAddr(d, i), old: uint64(e | entryFilling), new: uint64(e), once: true,
		})
		if i == first {
			return p.transitions("directory entry")
		}
	}
}
