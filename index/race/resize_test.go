package race

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/index"
	"txnode/index/indextest"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// fixture is an index on inproc with a client.
func fixture(t testing.TB, mo indextest.MemoryOptions, o Options) (*indextest.Memory, *Index, *indextest.Client) {
	t.Helper()
	m := indextest.NewMemory(t, mo)
	c := m.Thread(t).Plain()
	_, ix, err := Create(c, m, 7, o)
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.NewClient(c, ix, 7)
	if err != nil {
		t.Fatal(err)
	}
	return m, ix, k
}

// TestLoadFactor: sub-tables are at least 85 % full when an insert finds no room for the first
// time (RACE, section 5.2.1: up to 90 %).
func TestLoadFactor(t *testing.T) {
	for _, groups := range []uint32{SmallGroups, DefaultGroups} {
		_, ix, k := fixture(t, indextest.MemoryOptions{Copies: 1, SegmentSize: 1 << 20}, Options{Groups: groups})
		n := 0
		for ; ix.Events().Splits == 0; n++ {
			if _, err := k.Insert(key(n), nil); err != nil {
				t.Fatal(err)
			}
		}
		slots := int(groups * groupSlots)
		load := float64(n-1) / float64(slots)
		t.Logf("%d groups: load factor %.3f at the first split", groups, load)
		if load < 0.85 {
			t.Errorf("%d groups: load factor %.3f at the first split", groups, load)
		}
		s, err := ix.Stats(k.C)
		if err != nil || s.Used != n || s.SubTables != 2 || s.GlobalDepth != 1 || s.Doublings != 1 ||
			s.Slots != 2*slots {
			t.Errorf("%+v with %d keys: %v", s, n, err)
		}
		if s.Moved < uint64(n)*2/5 || s.Moved > uint64(n)*3/5 {
			t.Errorf("%d of %d slots were moved", s.Moved, n)
		}
	}
}

// TestEmptyIsSmall: an index without keys takes a root and a small sub-table.
func TestEmptyIsSmall(t *testing.T) {
	root, table := Options{}.Extents()
	if root+table > 28<<10 {
		t.Errorf("an index without keys takes %d + %d bytes", root, table)
	}
}

// TestExtents: Extents lists the root, the parts of the directory and the sub-tables.
func TestExtents(t *testing.T) {
	_, ix, k := fixture(t, indextest.MemoryOptions{Copies: 2}, Options{Groups: 2})
	for n := 0; ix.dir.Load().depth < rootBits+3; n++ {
		if _, err := k.Insert(key(n), nil); err != nil {
			t.Fatal(err)
		}
	}
	all, err := ix.Extents(k.C)
	if err != nil {
		t.Fatal(err)
	}
	d := ix.dir.Load()
	want := append([]layout.Addr{ix.root}, d.parts[rootBits:d.depth]...)
	for _, i := range d.tables() {
		want = append(want, d.entries[i].Table())
	}
	if !slices.Equal(all, want) {
		t.Errorf("%v are listed, not %v", all, want)
	}
}

// TestSized: an index that is made for a number of keys takes them without a split.
func TestSized(t *testing.T) {
	_, ix, k := fixture(t, indextest.MemoryOptions{}, Options{Groups: 64, Keys: 10_000})
	for i := range 10_000 {
		if _, err := k.Insert(key(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := ix.Stats(k.C); err != nil || s.Splits != 0 || float64(s.Used) < 0.3*float64(s.Slots) {
		t.Errorf("%+v, %v", s, err)
	}
	if err := ix.Verify(k.C); err != nil {
		t.Error(err)
	}
}

// fill inserts keys from n on until one does not fit.
func fill(t *testing.T, k *indextest.Client, n int) (int, error) {
	t.Helper()
	for {
		if _, err := k.Insert(key(n), key(n)); err != nil {
			return n, err
		}
		if n++; n > 1_000_000 {
			t.Fatal("the index never gets full")
		}
	}
}

// usable checks that everything that needs no more room works in a full index.
func usable(t *testing.T, ix *Index, k *indextest.Client, n int) {
	t.Helper()
	for i := range n {
		if v, err := k.Get(key(i)); err != nil || string(v) != string(key(i)) {
			t.Fatalf("key %d: %q, %v", i, v, err)
		}
	}
	if err := k.Move(key(0)); err != nil {
		t.Error(err)
	}
	if err := k.Delete(key(1)); err != nil {
		t.Error(err)
	}
	if _, err := k.Insert(key(1), key(1)); err != nil {
		t.Error(err)
	}
	if err := ix.Verify(k.C); err != nil {
		t.Error(err)
	}
}

func TestFullAtMaxDepth(t *testing.T) {
	_, ix, k := fixture(t, indextest.MemoryOptions{}, Options{Groups: 4, MaxDepth: 3})
	n, err := fill(t, k, 0)
	if !errors.Is(err, index.ErrFull) {
		t.Fatalf("after %d keys: %v", n, err)
	}
	if s, err := ix.Stats(k.C); err != nil || s.GlobalDepth != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	usable(t, ix, k, n)
}

func TestFullWithoutSpace(t *testing.T) {
	m, ix, k := fixture(t, indextest.MemoryOptions{SegmentSize: 64 << 10}, Options{Groups: 64, MaxDepth: 8})
	m.SetLimit(3)
	n, err := fill(t, k, 0)
	for i := 0; i < 100 && !errors.Is(err, index.ErrFull); i++ { // it was a block that did not fit
		_, err = k.Insert(key(n), nil)
	}
	if !errors.Is(err, index.ErrFull) && !errors.Is(err, memory.ErrNoSpace) {
		t.Fatalf("after %d keys: %v", n, err)
	}
	m.SetLimit(100)
	usable(t, ix, k, n)
	if _, err := k.Insert(key(n), key(n)); err != nil {
		t.Fatalf("there is room again: %v", err)
	}
	m.SetLimit(0)
	_, err = fill(t, k, n+1)
	if err == nil {
		t.Fatal("no end of memory")
	}
	if err := ix.Verify(k.C); err != nil {
		t.Error(err)
	}
}

// TestCreateWithoutSpace: what a Create that failed has allocated is given back.
func TestCreateWithoutSpace(t *testing.T) {
	m := indextest.NewMemory(t, indextest.MemoryOptions{SegmentSize: 64 << 10})
	m.SetLimit(2)
	_, _, err := Create(m.Thread(t).Plain(), m, 7, Options{Groups: 64, MaxDepth: 8, Keys: 50_000})
	if !errors.Is(err, index.ErrFull) || !errors.Is(err, memory.ErrNoSpace) {
		t.Fatal(err)
	}
	if m.Freed() < 64<<10 {
		t.Errorf("%d bytes were given back", m.Freed())
	}
}

// TestOldView: a query whose view does not know the segment that the index has
// grown into gets a newer one.
func TestOldView(t *testing.T) {
	m, ix, k := fixture(t, indextest.MemoryOptions{SegmentSize: 16 << 10}, Options{Groups: 32, MaxDepth: 8})
	if err := k.Resolve(key(0)); err != nil {
		t.Fatal(err)
	}
	old := k.Query.View
	for i := range 3000 {
		if _, err := k.Insert(key(i), key(i)); err != nil {
			t.Fatal(err)
		}
	}
	replaced := 0
	for i := range 3000 {
		q := &k.Query
		q.View = old
		k.Reuse(key(i))
		var b rdma.Batch
		for again := true; again; {
			var err error
			b.Reset()
			ix.Search(&b, q)
			if err = k.C.Do(&b); err != nil {
				t.Fatal(err)
			}
			if again, err = ix.Resolve(k.C, q); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range q.Candidates {
			if !q.View.Valid(c.Addr) {
				t.Fatalf("candidate %v is unknown to the query's view", c)
			}
		}
		if q.View != old {
			replaced++
			if q.View.Segments() < m.View().Segments() {
				t.Fatal("the view was replaced by an old one")
			}
		}
	}
	if replaced < 2000 {
		t.Errorf("the view of %d of 3000 queries was replaced", replaced)
	}
}

// TestWalk visits each block once.
func TestWalk(t *testing.T) {
	_, ix, k := fixture(t, indextest.MemoryOptions{}, Options{Groups: 4})
	want := map[layout.Addr]int{}
	for i := range 1000 {
		a, err := k.Insert(key(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		want[a] = i
	}
	stop := errors.New("enough")
	n := 0
	if err := ix.Walk(k.C, func(layout.Addr, index.Candidate) error {
		if n++; n == 10 {
			return stop
		}
		return nil
	}); !errors.Is(err, stop) || n != 10 {
		t.Errorf("%d slots, %v", n, err)
	}
	if err := ix.Walk(k.C, func(at layout.Addr, b index.Candidate) error {
		i, ok := want[b.Addr]
		if !ok {
			return fmt.Errorf("slot %v: block %v is visited twice, or was never linked", at, b.Addr)
		}
		delete(want, b.Addr)
		if err := k.Resolve(key(i)); err != nil { // fn may use the coroutine
			return err
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if len(want) > 0 {
		t.Errorf("%d blocks were not visited", len(want))
	}
}

// TestSplitCost: a split costs few round trips, and not one per slot.
func TestSplitCost(t *testing.T) {
	_, ix, k := fixture(t, indextest.MemoryOptions{Copies: 2, SegmentSize: 1 << 20}, Options{})
	n := 0
	for {
		before := *k.C.Count
		if _, err := k.Insert(key(n), nil); err != nil {
			t.Fatal(err)
		}
		n++
		if ix.Events().Splits > 0 {
			d := k.C.Count.Sub(&before)
			t.Logf("split of %d slots: %d round trips, %d verbs", n, d.RoundTrips, d.Total())
			if d.RoundTrips > 400 {
				t.Errorf("%d round trips for a split of %d slots", d.RoundTrips, n)
			}
			return
		}
	}
}

// TestVerbs counts what operations cost without conflicts.
func TestVerbs(t *testing.T) {
	_, ix, k := fixture(t, indextest.MemoryOptions{Copies: 2}, Options{})
	k.Resolve(key(0))
	before := *k.C.Count
	check := func(what string, trips, verbs uint64) {
		t.Helper()
		d := k.C.Count.Sub(&before)
		if d.RoundTrips != trips || d.Total() != verbs {
			t.Errorf("%s: %d round trips, %d verbs; %d and %d are enough", what, d.RoundTrips, d.Total(), trips, verbs)
		}
		before = *k.C.Count
	}
	if err := k.Resolve(key(1)); err != nil {
		t.Fatal(err)
	}
	check("lookup", 1, 1)
	if same, err := k.Unchanged(); !same || err != nil {
		t.Fatal(same, err)
	}
	check("validation", 1, 1)
	a, class, err := k.NewBlock(1, key(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	before = *k.C.Count
	if err := ix.Insert(k.C, &k.Query, a, class); err != nil {
		t.Fatal(err)
	}
	check("insert after lookup", 2, 4) // CAS; CAS of the backup and two READs
	b, class, err := k.NewBlock(1, key(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	before = *k.C.Count
	if err := ix.Replace(k.C, &k.Query, a, b, class); err != nil {
		t.Fatal(err)
	}
	check("replace after lookup", 2, 2)
	if err := k.Resolve(key(1)); err != nil {
		t.Fatal(err)
	}
	before = *k.C.Count
	if err := ix.Remove(k.C, &k.Query, b); err != nil {
		t.Fatal(err)
	}
	check("remove after lookup", 2, 2)
}
