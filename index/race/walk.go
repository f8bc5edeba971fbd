package race

import (
	"errors"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/rdma"
)

// walkGroups is how many bucket groups a walk reads at once.
const walkGroups = 64

var _ index.Walker = (*Index)(nil)

// Walk calls fn for every slot in use, with its address and the block that it
// points to, sub-table by sub-table. A block that is linked throughout is visited
// at least once, and a second time perhaps when a split moves it meanwhile. fn
// may use the coroutine. Walk ends with the first error of fn.
func (ix *Index) Walk(c *rdma.Coro, fn func(at layout.Addr, b index.Candidate) error) error {
	return ix.Pieces(c, index.Each(fn))
}

// Pieces is what index.Walker says. A split moves a slot to a sub-table that comes after the one
// that it splits, both in the directory and here.
func (ix *Index) Pieces(c *rdma.Coro, fn func(links []index.Linked) error) error {
	var links []index.Linked
	return ix.walk(c, func(at layout.Addr, b *Bucket) error {
		for j, s := range b.Slots {
			if s.Empty() {
				continue
			}
			if err := s.Check(); err != nil {
				return ix.corrupt(at+layout.Addr(8*j), "%w", err)
			}
			links = append(links,
				index.Linked{At: at + layout.Addr(8*j), Candidate: index.Candidate{Addr: s.Addr(), Class: s.Class()}})
		}
		return nil
	}, func() error {
		err := fn(links)
		links = links[:0]
		return err
	})
}

// walk calls fn for every bucket, and done after those of each READ. Sub-tables that appear
// meanwhile come last: what a split has moved to them was either met before, or is met there.
func (ix *Index) walk(c *rdma.Coro, fn func(at layout.Addr, b *Bucket) error, done func() error) error {
	seen := map[layout.Addr]bool{}
	for {
		d, err := ix.readDirectory(c, ix.dir.Load())
		if err != nil {
			return err
		}
		more := false
		for _, i := range d.tables() {
			a := d.entries[i].Table()
			if seen[a] {
				continue
			}
			seen[a], more = true, true
			if err := ix.walkTable(c, a, fn, done); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
}

func (ix *Index) walkTable(c *rdma.Coro, table layout.Addr, fn func(at layout.Addr, b *Bucket) error,
	done func() error) error {
	t := c.Thread()
	size := int(min(walkGroups, ix.geo.Groups) * groupSize)
	buf, err := t.Alloc(size)
	if err != nil {
		return err
	}
	defer t.Free(buf, size)
	s := ix.get()
	defer ix.put(s)
	var b Bucket
	for o := uint32(tableHeader); o < ix.size; o += uint32(size) {
		n := min(uint32(size), ix.size-o)
		s.batch.Reset()
		s.batch.Read(ix.space.ViewOn(c.Thread()).At(table+layout.Addr(o), 0), buf, n)
		if err := c.Do(&s.batch); err != nil {
			return err
		}
		for l := uint32(0); l < n; l += lineSize {
			b = parseBucket(t.Bytes(buf+l, lineSize))
			at := table + layout.Addr(o+l)
			if err = b.Header.Check(ix.geo.Table); err != nil {
				err = ix.corrupt(at+headerOff, "%w", err)
			} else {
				err = fn(at, &b)
			}
			if err != nil {
				return errors.Join(done(), err) // of what comes before
			}
		}
		if err := done(); err != nil {
			return err
		}
	}
	return nil
}

// Stats describe an index. Those that count events count the events of this
// handle only.
type Stats struct {
	SubTables   int
	GlobalDepth int
	Slots       int // capacity
	Used        int // slots in use
	Bytes       uint64

	Splits    uint64 // sub-tables split
	Doublings uint64 // of the directory
	Moved     uint64 // slots carried to new sub-tables
	Seconds   uint64 // lookups that read the second choice after the first
}

// Events returns the statistics that cost no verbs: those of this handle.
func (ix *Index) Events() Stats {
	return Stats{
		Splits: ix.splits.Load(), Doublings: ix.doublings.Load(), Moved: ix.moved.Load(), Seconds: ix.seconds.Load(),
	}
}

// Stats reads the whole index and describes it.
func (ix *Index) Stats(c *rdma.Coro) (Stats, error) {
	s := ix.Events()
	err := ix.walk(c, func(_ layout.Addr, b *Bucket) error {
		s.Slots += slotsPerLine
		for _, w := range b.Slots {
			if !w.Empty() {
				s.Used++
			}
		}
		return nil
	}, func() error { return nil })
	if err != nil {
		return s, err
	}
	d, err := ix.readDirectory(c, ix.dir.Load())
	if err != nil {
		return s, err
	}
	s.SubTables, s.GlobalDepth = len(d.tables()), int(d.depth)
	s.Bytes = uint64(s.SubTables)*uint64(ix.size) + rootSize
	for _, x := range d.spans() {
		s.Bytes += uint64(x.n)
	}
	return s, nil
}
