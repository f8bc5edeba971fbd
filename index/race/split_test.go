package race

import (
	"errors"
	"testing"

	"txnode/index"
	"txnode/index/indextest"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// another is a client with its own view of the index, and the first key that moves when
// the only sub-table is split.
func another(t *testing.T, m *indextest.Memory, ix *Index) (c *rdma.Coro, other *Index, o *indextest.Client, n int) {
	t.Helper()
	c = m.Thread(t).Plain()
	other, err := Open(c, m, ix.Root(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if o, err = m.NewClient(c, other, 7); err != nil {
		t.Fatal(err)
	}
	for record.Hash(7, key(n))&1 == 0 {
		n++
	}
	return c, other, o, n
}

// TestAbsenceAcrossSplit: the buckets of an absent key are empty, so a split changes
// none of their slots, and the key is inserted into the new sub-table: the headers alone
// tell.
func TestAbsenceAcrossSplit(t *testing.T) {
	m, ix, k := fixture(t, indextest.MemoryOptions{}, Options{Groups: 64})
	c, other, o, n := another(t, m, ix)
	if err := k.Resolve(key(n)); err != nil {
		t.Fatal(err)
	}
	if err := o.Resolve(key(n)); err != nil {
		t.Fatal(err)
	}
	s := other.get()
	if err := other.grow(c, s, &o.Query, &waiting{}); err != nil {
		t.Fatal(err)
	}
	other.put(s)
	if _, err := o.Insert(key(n), nil); err != nil {
		t.Fatal(err)
	}
	if same, err := k.Unchanged(); same || err != nil {
		t.Errorf("the insert was not noticed: %v", err)
	}
	if a, _, err := k.Find(key(n)); a == 0 || err != nil {
		t.Errorf("the key was not found in the new sub-table: %v", err)
	}
}

// TestInsertBeforeHeaders: a split has published the new sub-table, and not changed
// the headers of the old one. Who inserts a key that is to move then puts it where a
// reader with an old directory looks; and the split moves it.
func TestInsertBeforeHeaders(t *testing.T) {
	m, ix, k := fixture(t, indextest.MemoryOptions{Copies: 2}, Options{Groups: 64})
	c, other, o, n := another(t, m, ix)
	s := other.get()
	sp := split{locks: locks{ix: other, c: c, s: s}, from: ix.dir.Load().entries[0].Table()}
	ok, err := other.one(c, s, m.View(), sp.from+tableLockOff, 0, other.lockWord(c))
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	for _, do := range []func() error{func() error { _, err := sp.prepare(); return err }, sp.publish, func() error {
		return other.unlock(c, s, other.root+dirLockOff)
	},
		func() error { _, err := other.refresh(c, other.dir.Load()); return err },
		func() error { _, err := o.Insert(key(n), key(n)); return err }} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	if !other.dir.Load().entries[1].Filling() || ix.dir.Load().depth != 0 {
		t.Fatal("the reader knows of the split, or the inserter does not")
	}
	for range 2 {
		if v, err := k.Get(key(n)); err != nil || string(v) != string(key(n)) {
			t.Errorf("the key has value %q, %v", v, err)
		}
		if ix.dir.Load().depth == 0 { // the first time
			if err := sp.fill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if ix.dir.Load().depth != 1 {
		t.Error("the reader has found a key that has moved without reading the directory")
	}
	if err := ix.Verify(k.C); err != nil {
		t.Error(err)
	}
}

// behind is a space whose threads have been declared dead, and have a map of before there
// was any segment.
type behind struct{ *indextest.Memory }

var errBehind = errors.New("the map is old")

func (b behind) ViewOn(*rdma.Thread) *layout.View { return layout.NewView(0, nil, nil) }

func (b behind) Missing(*layout.View, layout.Addr) error { return errBehind }

// TestGrowOfTheDead: a client has looked a key up whose bucket is full, and was declared
// dead since. Its map does not have the sub-table, which others have made: it is told so.
func TestGrowOfTheDead(t *testing.T) {
	r := newRig(t, 2, 8)
	c, ix := r.k[0].C, r.ix[0]
	q := &index.Query{Hash: record.Hash(7, key(1)), Key: key(1)}
	s := ix.get()
	defer ix.put(s)
	d := ix.dir.Load()
	ix.space = behind{r.m}
	for _, e := range []Entry{d.entries[0], d.entries[0] | entryFilling} {
		q.State[stEntry] = uint64(e)
		if err := ix.grow(c, s, q, &waiting{tries: askOwner}); !errors.Is(err, errBehind) {
			t.Errorf("entry %v: %v", e, err)
		}
	}
}
