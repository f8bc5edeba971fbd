package race

import (
	"slices"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/rdma"
)

// The compare-and-swap of an insert can come to a sub-table when its split is over: the slot was
// empty all the time, and the inserter has not looked again. He finds out that the bucket is not
// responsible any more, and takes the slot back (confirm). If he dies before, or gives up, the slot
// stays where no lookup of its key comes by, until whoever undoes the insert takes it out, before
// the block is free: Remove and Mend look for it in every sub-table from which the one of the key
// descends. A split of such a sub-table leaves the slot where it is. So does the split during which
// the slot was set, if the place of it in the new sub-table is taken, and whoever finishes the
// split knows that the inserter is dead: it has not seen the bucket responsible after its
// compare-and-swap, or the place would have been left free.

// origins returns the sub-tables, others than those that a resolved query reads, from
// which those have been split: each stays at the directory index that is its suffix.
func (ix *Index) origins(q *index.Query) []layout.Addr {
	d := ix.dir.Load()
	var out []layout.Addr
	for depth := range Entry(q.State[stEntry]).Depth() {
		t := d.entries[q.Hash&uint64(suffixMask(depth))&d.mask].Table()
		if t != layout.Addr(q.State[stFirst]) && t != layout.Addr(q.State[stSecond]) && q.View.Valid(t) &&
			!slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// originLines returns the lines of a resolved query's key in the sub-tables of origins.
func (ix *Index) originLines(q *index.Query) []layout.Addr {
	var out []layout.Addr
	for _, t := range ix.origins(q) {
		for i := range queryLines {
			out = append(out, lineAddr(q, t, i))
		}
	}
	return out
}

// removeLate clears the slot of block a that is in none of the sub-tables which its
// key's lookup reads, and reports whether there was one. The caller holds the block's
// lock, and is undoing its insert.
func (ix *Index) removeLate(c *rdma.Coro, s *scratch, q *index.Query, a layout.Addr) (bool, error) {
	lines := ix.originLines(q)
	if len(lines) == 0 {
		return false, nil
	}
	t := c.Thread()
	size := len(lines) * lineSize
	buf, err := t.Alloc(size)
	if err != nil {
		return false, err
	}
	defer t.Free(buf, size)
	for w := (waiting{}); ; {
		s.batch.Reset()
		for i, at := range lines {
			s.batch.Read(q.View.At(at, 0), buf+uint32(i*lineSize), lineSize)
		}
		if err := c.Do(&s.batch); err != nil {
			return false, err
		}
		var at layout.Addr
		var was Slot
		for i := range lines {
			for j := range slotsPerLine {
				if x := Slot(t.Word(buf + uint32(i*lineSize+8*j))); x.Addr() == a {
					at, was = lines[i]+layout.Addr(8*j), x
				}
			}
		}
		if at == 0 {
			return false, nil
		}
		if !was.Moving() {
			if ok, err := ix.one(c, s, q.View, at, uint64(was), trace(c)); ok || err != nil {
				return ok, err
			}
		}
		if err := ix.waitFor(c, &w, at, 0, "a mark on a slot"); err != nil {
			return false, err
		}
	}
}
