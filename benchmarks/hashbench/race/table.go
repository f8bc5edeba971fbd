package race

import (
	"errors"
	"fmt"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// Errors of tables.
var (
	// ErrFull: both choices of a key have no room.
	ErrFull = errors.New("race: full")
	// ErrCorrupt: the structure on the blades is not what it should be.
	ErrCorrupt = errors.New("race: damaged structure")
)

// Table is a handle on a table. All threads of a process share it: it holds the directory, which
// never changes. Queries and coroutines are the caller's.
type Table struct {
	geo   geometry
	root  layout.Addr
	space *memory.Space
	dir   []layout.Addr // the sub-tables
	both  bool
}

// chunkGroups is how many groups a WRITE of an empty sub-table has at most.
const chunkGroups = 64

// Create makes a table with room for a number of keys.
func Create(c *rdma.Coro, s *memory.Space, table uint16, keys uint64) (*Table, error) {
	ix := &Table{geo: geometryFor(table, keys), space: s}
	root, err := s.NewExtent(c, ix.geo.rootSize())
	if err != nil {
		return nil, fmt.Errorf("race: the root of table %d: %w", table, err)
	}
	ix.root = root.Addr
	for suffix := range uint32(1) << ix.geo.depth {
		x, err := s.NewExtent(c, ix.geo.tableSize())
		if err != nil {
			return nil, fmt.Errorf("race: sub-table %d of table %d: %w", suffix, table, err)
		}
		ix.dir = append(ix.dir, x.Addr)
		if err := ix.format(c, x.Addr, suffix); err != nil {
			return nil, err
		}
	}
	err = ix.writeRoot(c)
	return ix, err
}

// format writes the headers of an empty sub-table.
func (ix *Table) format(c *rdma.Coro, at layout.Addr, suffix uint32) error {
	const chunk = chunkGroups * groupSize
	t, v := c.Thread(), ix.space.View()
	buf, err := t.Alloc(chunk)
	if err != nil {
		return err
	}
	defer t.Free(buf, chunk)
	clear(t.Bytes(buf, chunk))
	for o := uint32(0); o < chunk; o += lineSize {
		t.PutWord(buf+o+headerOff, uint64(ix.geo.header(suffix)))
	}
	for o := uint32(0); o < ix.geo.tableSize(); o += chunk {
		if err := write(c, v, at+layout.Addr(o), buf, min(chunk, ix.geo.tableSize()-o)); err != nil {
			return err
		}
	}
	return nil
}

// writeRoot writes the root with its directory.
func (ix *Table) writeRoot(c *rdma.Coro) error {
	const chunk = 32 << 10
	t, v := c.Thread(), ix.space.View()
	buf, err := t.Alloc(chunk)
	if err != nil {
		return err
	}
	defer t.Free(buf, chunk)
	for o := uint32(0); o < ix.geo.rootSize(); o += chunk {
		n := min(chunk, ix.geo.rootSize()-o)
		clear(t.Bytes(buf, n))
		for i := uint32(0); i < n; i += 8 {
			if o+i >= dirOff {
				t.PutWord(buf+i, uint64(ix.dir[(o+i-dirOff)/8]))
			}
		}
		if o == 0 {
			t.PutWord(buf+magicOff, magic)
			t.PutWord(buf+geometryOff, ix.geo.word())
		}
		if err := write(c, v, ix.root+layout.Addr(o), buf, n); err != nil {
			return err
		}
	}
	return nil
}

// write writes n bytes, and returns when they are placed.
func write(c *rdma.Coro, v *layout.View, a layout.Addr, local, n uint32) error {
	var b rdma.Batch
	b.Write(v.At(a, 0), local, n)
	if err := c.Do(&b); err != nil {
		return err
	}
	return c.Fence(rdma.FenceThread, 0, &b)
}

// Open attaches to the table whose root is given.
func Open(c *rdma.Coro, s *memory.Space, root layout.Addr, table uint16) (*Table, error) {
	const chunk = 32 << 10
	t, v := c.Thread(), s.View()
	ix := &Table{root: root, space: s}
	buf, err := t.Alloc(chunk)
	if err != nil {
		return nil, err
	}
	defer t.Free(buf, chunk)
	read := func(o, n uint32) error {
		var b rdma.Batch
		b.Read(v.At(root+layout.Addr(o), 0), buf, n)
		return c.Do(&b)
	}
	if err := read(0, dirOff); err != nil {
		return nil, err
	}
	g, ok := parseGeometry(t.Word(buf + geometryOff))
	if !ok || t.Word(buf+magicOff) != magic || g.table != table {
		return nil, fmt.Errorf("%w: no root of table %d at %v", ErrCorrupt, table, root)
	}
	ix.geo = g
	for o := uint32(dirOff); o < g.rootSize(); o += chunk {
		n := min(chunk, g.rootSize()-o)
		if err := read(o, n); err != nil {
			return nil, err
		}
		for i := uint32(0); i < n; i += 8 {
			a := layout.Addr(t.Word(buf + i))
			if !v.Contains(a, g.tableSize()) {
				return nil, fmt.Errorf("%w: table %d: sub-table at %v is in no segment", ErrCorrupt, table, a)
			}
			ix.dir = append(ix.dir, a)
		}
	}
	return ix, nil
}

// Root is where the table is; Open takes it.
func (ix *Table) Root() layout.Addr { return ix.root }

// ReadBoth makes lookups of this handle read both choices of a key at once, as those of the paper
// do, whatever the marks say. The handle is not in use yet.
func (ix *Table) ReadBoth(on bool) { ix.both = on }
