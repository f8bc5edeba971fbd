package race

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"txnode/index"
	"txnode/index/indextest"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// never says that no two blocks have the same key.
func never(layout.Addr, layout.Addr) (layout.Addr, error) { return 0, nil }

// filled is an index with n keys, one insert after the other, and what Build needs for another one
// with the same.
func filled(t *testing.T, o Options, n int) (*indextest.Memory, *Index, *indextest.Client, []Linked) {
	t.Helper()
	m, ix, k := fixture(t, indextest.MemoryOptions{Copies: 2, SegmentSize: 1 << 20}, o)
	links := make([]Linked, n)
	for i := range links {
		a, err := k.Insert(key(i), fmt.Appendf(nil, "value %d", i))
		if err != nil {
			t.Fatal(err)
		}
		class, _ := record.ClassFor(len(key(i)), len(fmt.Appendf(nil, "value %d", i)))
		links[i] = Link(record.Hash(7, key(i)), a, class)
	}
	return m, ix, k, links
}

// TestBuild: an index that is built has all of its keys, is whole, no larger than one insert after
// the other makes it, and can be changed and split as any other.
func TestBuild(t *testing.T) {
	for _, c := range []struct {
		o Options
		n int
	}{
		{Options{Groups: 2}, 0},
		{Options{Groups: 2, Keys: 200}, 0},
		{Options{Groups: 2}, 1},
		{Options{Groups: 2}, 30}, // a sub-table of 42 slots
		{Options{Groups: 2}, 1500},
		{Options{Groups: 3}, 700},
		{Options{Groups: 64}, 1000},
		{Options{Groups: 64}, 1100}, // there is room in one still, for inserts as well
		{Options{Groups: 500}, 7000},
	} {
		t.Run(fmt.Sprintf("%d groups, %d keys", c.o.Groups, c.n), func(t *testing.T) {
			m, inserted, k, links := filled(t, Options{Groups: c.o.Groups}, c.n)
			root, ix, err := Build(k.C, m, 7, c.o, links, never, nil)
			if err != nil {
				t.Fatal(err)
			}
			whole := func(ix *Index) {
				t.Helper()
				if err := ix.Verify(k.C); err != nil {
					t.Fatal(err)
				}
			}
			whole(ix)
			if s, err := ix.Stats(k.C); err != nil || s.Used != c.n ||
				uint64(s.SubTables) < uint64(1)<<c.o.withDefaults().initialDepth() {
				t.Errorf("%+v, %v", s, err)
			}
			if s, err := inserted.Stats(k.C); err != nil {
				t.Fatal(err)
			} else if have, err := ix.Stats(k.C); err != nil ||
				have.SubTables > max(s.SubTables, 1<<c.o.withDefaults().initialDepth()) {
				t.Errorf("%d sub-tables, %d after inserts, %v", have.SubTables, s.SubTables, err)
			}
			again, err := Open(k.C, m, root, 7)
			if err != nil {
				t.Fatal(err)
			}
			k, err = m.NewClient(k.C, again, 7)
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			if c.n > 0 {
				if _, idle := marksOf(t, again, k); idle != 0 {
					t.Errorf("%d marks that no slot needs", idle)
				}
			}
			for i := range 2*c.n + 100 {
				v, err := k.Get(key(i))
				if err != nil || (v != nil) != (i < c.n) || v != nil && string(v) != fmt.Sprintf("value %d", i) {
					t.Fatalf("key %d: %q, %v", i, v, err)
				}
				if i < c.n {
					continue
				}
				if _, err := k.Insert(key(i), fmt.Appendf(nil, "value %d", i)); err != nil {
					t.Fatal(err)
				}
			}
			whole(again)
		})
	}
}

// TestBuildAsInserted: the sub-table that Build makes is, bit by bit, that which inserts make
// in the same order.
func TestBuildAsInserted(t *testing.T) {
	m, ix, k, links := filled(t, Options{Groups: 64}, 1000)
	if ix.Events().Splits > 0 || Link(0, 0, 0) != (Linked{}) {
		t.Fatal("there is more than one sub-table")
	}
	_, built, err := Build(k.C, m, 7, Options{Groups: 64}, links, never, nil)
	if err != nil {
		t.Fatal(err)
	}
	bits := func(ix *Index) [][]byte {
		d := ix.dir.Load()
		if len(d.entries) != 1 {
			t.Fatalf("%d entries", len(d.entries))
		}
		return m.Copies(t, k.C.Thread(), d.entries[0].Table()+tableHeader, ix.size-tableHeader)
	}
	want, got := bits(ix), bits(built)
	for i := range want {
		if !bytes.Equal(want[i], got[i]) {
			t.Errorf("copy %d differs", i)
		}
	}
}

// TestBuildRefuses: of two blocks with one hash Build asks which to leave out. Nothing is left
// behind if that cannot be told, if there is no room, or if a step ends it.
func TestBuildRefuses(t *testing.T) {
	m, _, k, links := filled(t, Options{Groups: 8}, 100)
	size, given := int64(0), m.Freed()
	var step func() error
	refused := func(want error, tables int64, o Options, links []Linked,
		twice func(a, b layout.Addr) (layout.Addr, error)) {
		t.Helper()
		_, _, err := Build(k.C, m, 7, o, links, twice, step)
		if !errors.Is(err, want) {
			t.Errorf("%v instead of %v", err, want)
		}
		size += rootSize + tables*int64(Geometry{Groups: o.Groups}.tableSize())
		if f := m.Freed() - given; f != size {
			t.Errorf("%v: %d bytes were given back, not %d", err, f, size)
		}
	}
	twin := links[41]
	twin.slot = MakeSlot(twin.slot.Fingerprint(), 0, links[7].Block())
	var asked []layout.Addr
	failed := errors.New("cannot be read")
	refused(failed, 0, Options{Groups: 8}, append(links[:100:100], twin), func(a, b layout.Addr) (layout.Addr, error) {
		asked = append(asked, a, b)
		return 0, failed
	})
	if len(asked) != 2 || asked[0] != links[41].Block() || asked[1] != links[7].Block() {
		t.Errorf("%v was asked for", asked)
	}
	refused(index.ErrFull, 1, Options{Groups: 2, MaxDepth: 1}, lopsided(84), never)
	if _, _, err := Build(k.C, m, 7, Options{Groups: 8}, append(links[:100:100], twin), never, nil); err != nil {
		t.Errorf("two keys of one hash: %v", err)
	}
	steps := 0
	step = func() error {
		if steps++; steps == 3 {
			return failed
		}
		return nil
	}
	refused(failed, 2, Options{Groups: 2, Keys: 200}, links, never)
}

// TestBuildTwice: of two blocks of one key the one that is to be left out has no slot, whichever it
// is, and the other one has.
func TestBuildTwice(t *testing.T) {
	for _, first := range []bool{true, false} {
		m, _, k, links := filled(t, Options{Groups: 8}, 100)
		twin := links[41]
		twin.slot = MakeSlot(twin.slot.Fingerprint(), 0, layout.MakeAddr(1, 1<<19))
		out, in := twin.Block(), links[41].Block()
		if first {
			out, in = in, out
		}
		root, _, err := Build(k.C, m, 7, Options{Groups: 8}, append(links[:100:100],
			twin), func(a, b layout.Addr) (layout.Addr, error) {
			if a != out && b != out {
				t.Errorf("blocks %v and %v have one key", a, b)
			}
			return out, nil
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ix, err := Open(k.C, m, root, 7)
		if err != nil {
			t.Fatal(err)
		}
		met := map[layout.Addr]int{}
		for s, more := ix.NewScan(), true; more; {
			var cs []index.Candidate
			if cs, more, err = s.Next(k.C, nil); err != nil {
				t.Fatal(err)
			}
			for _, c := range cs {
				met[c.Addr]++
			}
		}
		if len(met) != 100 || met[in] != 1 || met[out] != 0 {
			t.Errorf("the first left out, %v: %d blocks, %d times the one, %d times the other",
				first, len(met), met[in], met[out])
		}
	}
}

// lopsided are n links of which the first hash bit of each is 1, but for one.
func lopsided(n int) []Linked {
	var out []Linked
	for i := 0; len(out) < n; i++ {
		if h := record.Hash(7, key(i)); h&1 != 0 || len(out) == 0 {
			out = append(out, Link(h|1, layout.MakeAddr(1, uint32(64*(i+1))), 0))
		}
	}
	out[0].Hash &^= 1
	return out
}

// TestBuildInAnyOrder: what inserts have put into an index that cannot grow any more is built again
// with no more sub-tables, whatever the order in which its blocks are found.
func TestBuildInAnyOrder(t *testing.T) {
	o := Options{Groups: 2, MaxDepth: 2}
	m, ix, k := fixture(t, indextest.MemoryOptions{Copies: 2, SegmentSize: 1 << 20}, o)
	var links []Linked
	var keys []int
	for i := range 2000 {
		a, err := k.Insert(key(i), nil)
		if errors.Is(err, index.ErrFull) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		class, _ := record.ClassFor(len(key(i)), 0)
		links, keys = append(links, Link(record.Hash(7, key(i)), a, class)), append(keys, i)
	}
	s, err := ix.Stats(k.C)
	if err != nil || s.SubTables != 4 || s.Slots-s.Used > 8 {
		t.Fatalf("%+v, %v", s, err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		r.Shuffle(len(links), func(i, j int) { links[i], links[j] = links[j], links[i] })
		root, built, err := Build(k.C, m, 7, o, links, never, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := built.Verify(k.C); err != nil {
			t.Fatal(err)
		}
		again, err := Open(k.C, m, root, 7)
		if err != nil {
			t.Fatal(err)
		}
		k, err := m.NewClient(k.C, again, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range keys {
			if v, err := k.Get(key(i)); err != nil || v == nil {
				t.Fatalf("key %d: %q, %v", i, v, err)
			}
		}
		if _, idle := marksOf(t, again, k); idle != 0 {
			t.Errorf("%d marks that no slot needs", idle)
		}
		k.Close()
	}
}
