package race

import (
	"errors"
	"testing"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/rdma/sim"
)

// bed is a table of one blade, on a machine that loses no time.
func bed(t *testing.T, keys uint64) (c *rdma.Coro, s *memory.Space, ix *Table) {
	t.Helper()
	f, err := sim.New(sim.Options{Profile: sim.Ideal(), Blades: []sim.BladeOptions{{Size: 1 << 30, Key: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	th, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	c = th.Plain()
	if s, err = memory.Open(c, f, &catalog.Mem{}, memory.Options{}); err != nil {
		t.Fatal(err)
	}
	if ix, err = Create(c, s, 3, keys); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(c), th.Close(), f.Close()); err != nil {
			t.Error(err)
		}
	})
	return c, s, ix
}

func newQuery(t *testing.T, c *rdma.Coro, s *memory.Space) *Query {
	t.Helper()
	at, err := c.Thread().Alloc(BufferSize)
	if err != nil {
		t.Fatal(err)
	}
	return &Query{Local: at, View: s.View()}
}

// look finds the candidates of a hash.
func look(t *testing.T, c *rdma.Coro, ix *Table, q *Query, hash uint64) []Candidate {
	t.Helper()
	q.Hash = hash
	var b rdma.Batch
	ix.Search(&b, q)
	if err := c.Do(&b); err != nil {
		t.Fatal(err)
	}
	if err := ix.Resolve(c, q); err != nil {
		t.Fatal(err)
	}
	return q.Candidates
}

func hashOf(i int) uint64 { return record.Hash(3, []byte{byte(i), byte(i >> 8), byte(i >> 16)}) }

// Keys are inserted until one finds no room: by then a sub-table is 85 % full at least. Each is found
// by a handle of its own, with marks and without, and where it is replaced once.
func TestFillsUp(t *testing.T) {
	c, s, ix := bed(t, 100)
	class, _ := record.ClassFor(8, 8)
	q := newQuery(t, c, s)
	blocks, err := s.NewAllocator(c.Thread())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := blocks.Close(c); err != nil {
			t.Error(err)
		}
	}()
	var at []layout.Addr
	for {
		a, err := blocks.Alloc(c, class)
		if err != nil {
			t.Fatal(err)
		}
		look(t, c, ix, q, hashOf(len(at)))
		if err = ix.Insert(c, q, a, class); errors.Is(err, ErrFull) {
			blocks.Free(a, class)
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, a)
	}
	if load := float64(len(at)) / (smallGroups * groupSlots); load < .85 {
		t.Errorf("full at a load of %.2f", load)
	}
	other, err := Open(c, s, ix.Root(), 3)
	if err != nil {
		t.Fatal(err)
	}
	other.ReadBoth(true)
	replace, err := blocks.Alloc(c, class)
	if err != nil {
		t.Fatal(err)
	}
	defer blocks.Free(replace, class)
	for i, a := range at {
		find := func(ix *Table, a layout.Addr) (found Candidate) {
			for _, x := range look(t, c, ix, q, hashOf(i)) {
				if x.Addr == a {
					found = x
				}
			}
			if found.Addr == 0 {
				t.Fatalf("key %d is not found", i)
			}
			return found
		}
		stale := find(other, a)
		if ok, err := ix.TryReplace(c, q, find(ix, a), replace, class); !ok || err != nil {
			t.Fatalf("key %d is not replaced: %v", i, err)
		}
		if ok, err := ix.TryReplace(c, q, stale, replace, class); ok || err != nil {
			t.Fatalf("key %d is replaced twice: %v", i, err)
		}
		if ok, err := ix.TryReplace(c, q, find(other, replace), a, class); !ok || err != nil {
			t.Fatalf("key %d is not replaced again: %v", i, err)
		}
	}
}

// A table that is made for a number of keys has room for them, and what is no root is not opened.
func TestGeometry(t *testing.T) {
	for _, keys := range []uint64{0, 1, 2000, smallKeys, smallKeys + 1, 1_000_000, 1 << 30} {
		g := geometryFor(3, keys)
		if n := uint64(g.groups) * groupSlots << g.depth; n < keys {
			t.Errorf("%d slots for %d keys", n, keys)
		}
		if back, ok := parseGeometry(g.word()); !ok || back != g {
			t.Errorf("%+v is read as %+v", g, back)
		}
	}
	c, s, ix := bed(t, 10_000)
	if len(ix.dir) != 8 {
		t.Errorf("%d sub-tables for 10,000 keys", len(ix.dir))
	}
	if _, err := Open(c, s, ix.Root(), 4); !errors.Is(err, ErrCorrupt) {
		t.Errorf("the root of another table: %v", err)
	}
	if _, err := Open(c, s, ix.dir[0], 3); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a sub-table as a root: %v", err)
	}
}
