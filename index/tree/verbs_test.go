package tree_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/index"
	"txnode/index/blink"
	"txnode/index/indextest"
	"txnode/index/tree"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// bladed is a world whose blocks lie on blades, too.
type bladed struct {
	*world
	m   *indextest.Memory
	c   *rdma.Coro
	seq uint64
}

func newBladed(t testing.TB, g blink.Geometry) *bladed {
	m := indextest.NewMemory(t, indextest.MemoryOptions{})
	b := &bladed{
		world: &world{t: t, g: g, blocks: map[layout.Addr]block{}, model: map[string]index.Candidate{}},
		m:     m, c: m.Thread(t).Plain(),
	}
	b.alloc = func() layout.Addr {
		a, err := m.Alloc(g.Class.Size())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	b.placed = func(a layout.Addr, size uint32) { b.write(a, size, 0) }
	b.begin(m, 1)
	return b
}

// write writes a block to all copies, with a new version and perhaps a lock.
func (b *bladed) write(a layout.Addr, size uint32, lock record.TxID) {
	b.t.Helper()
	th := b.c.Thread()
	buf, err := th.Alloc(int(size))
	if err != nil {
		b.t.Fatal(err)
	}
	defer th.Free(buf, int(size))
	b.seq++
	x := b.blocks[a]
	if x.state == record.Free || x.state == record.Absent {
		x.value = nil
	}
	n := record.Image(th.Bytes(buf, size)).Put(a, record.MakeTxID(1, b.seq), x.state, x.table,
		b.g.Class, lock, nil, x.value)
	var batch rdma.Batch
	v := b.m.View()
	for k := range v.Copies(a) {
		batch.Write(v.At(a, k), buf, uint32(n))
	}
	if err := b.c.Do(&batch); err != nil {
		b.t.Fatal(err)
	}
}

// query is a lookup that has not begun.
func (b *bladed) query(h *tree.Tree, key string) *index.Query {
	b.t.Helper()
	buf, err := b.c.Thread().Alloc(h.BufferSize())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { b.c.Thread().Free(buf, h.BufferSize()) })
	return &index.Query{Key: []byte(key), Local: buf, View: b.m.View()}
}

func (b *bladed) resolve(h *tree.Tree, q *index.Query) (verbs int) {
	b.t.Helper()
	var batch rdma.Batch
	h.Search(&batch, q)
	verbs = batch.Len()
	if err := b.c.Do(&batch); err != nil {
		b.t.Fatal(err)
	}
	again, err := h.Resolve(b.c, q)
	if again || err != nil {
		b.t.Fatal(again, err)
	}
	return verbs
}

// TestLookups: lookups outside of transactions find what the model has, by handles that are behind,
// too.
func TestLookups(t *testing.T) {
	b := newBladed(t, geometry(t, 8, 3))
	r := rand.New(rand.NewPCG(2, 2))
	h := b.handles[0]
	behind := b.open(b.m)
	for i := range 400 {
		key := number(r.IntN(150))
		q := b.query(behind, key)
		b.resolve(behind, q)
		want, ok := b.model[key]
		if ok != (len(q.Candidates) == 1) || ok && q.Candidates[0] != want {
			t.Fatalf("key %x: %+v, want %+v, %v", key, q.Candidates, want, ok)
		}
		b.change(h, r, key)
		if r.IntN(3) == 0 {
			for b.post(h, r) {
			}
		}
		if r.IntN(8) == 0 {
			b.merge(h, r, 0, number(r.IntN(150)))
		}
		if i%10 == 0 {
			b.poison(behind, r)
		}
	}
}

// TestHeldLeaf: a leaf that is locked serves a lookup.
func TestHeldLeaf(t *testing.T) {
	b := newBladed(t, geometry(t, 8, 3))
	r := rand.New(rand.NewPCG(2, 2))
	h := b.handles[0]
	b.change(h, r, number(5))
	q := b.query(h, number(5))
	b.resolve(h, q)
	a := b.seek(h, index.PlaceOf([]byte(number(5)))).Addr
	b.write(a, b.g.Class.Size(), record.MakeTxID(2, 1))
	b.resolve(h, q)
	if len(q.Candidates) != 1 {
		t.Error("a leaf that is locked does not serve")
	}
}

// TestWalk: a walk meets each block once and in order, keys come with their leaves, and figures are
// those of the tree.
func TestWalk(t *testing.T) {
	for _, entries := range []int{2, 3, 0} {
		b := newBladed(t, geometry(t, 8, entries))
		r := rand.New(rand.NewPCG(2, 2))
		for k := range 150 {
			b.change(b.handles[0], r, number(2*k))
			if k < 100 { // the last ones are found by right links alone
				for b.post(b.handles[0], r) {
				}
			}
		}
		h := b.open(b.m)
		var got []index.Candidate
		if err := h.Walk(b.c, func(_ layout.Addr, x index.Candidate) error {
			got = append(got, x)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if want := b.between(index.Bound{}, index.Bound{End: true}, false); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		stop := errors.New("stop")
		if err := h.Walk(b.c, func(layout.Addr, index.Candidate) error { return stop }); !errors.Is(err, stop) {
			t.Error(err)
		}
		totals := b.verify()
		s, err := b.open(b.m).Stats(b.c)
		if err != nil {
			t.Fatal(err)
		}
		if s.Height != totals.Levels || s.Leaves != totals.Leaves || s.Inner != totals.Nodes-totals.Leaves ||
			s.Used == 0 || s.Used > s.Room ||
			s.Bytes != uint64(totals.Nodes)*uint64(b.g.Class.Size())+record.LineSize {
			t.Errorf("%+v of %+v", s, totals)
		}
		b.leafByLeaf(h)
	}
}

// leafByLeaf goes through all keys by single leaves, and by what the level above says of them.
func (b *bladed) leafByLeaf(h *tree.Tree) {
	b.t.Helper()
	var keys []string
	for from, more := (index.Bound{}), true; more; {
		leaf, err := h.Leaf(b.c, index.Place{Bound: from})
		if err != nil {
			b.t.Fatal(err)
		}
		low := bytes.Clone(from.Key)
		var list []tree.Linked
		if list, from, more, err = h.Keys(leaf, from); err != nil {
			b.t.Fatal(err)
		}
		for _, x := range list {
			keys = append(keys, string(x.Key))
			if b.model[string(x.Key)].Addr != x.Addr {
				b.t.Errorf("key %x leads to %v", x.Key, x.Addr)
			}
		}
		a, next, ok, err := h.Behind(b.c, low)
		at := b.seek(h, index.PlaceOf(low)).Addr
		switch {
		case err != nil:
			b.t.Fatal(err)
		case b.height() == 0:
			if a != 0 || ok {
				b.t.Errorf("a tree of one level: %v, %v", a, ok)
			}
		case a == at && more && (!ok || !bytes.Equal(next, from.Key)):
			// Else the separator is not there yet: the level above knows a leaf farther left.
			if ok && bytes.Compare(next, from.Key) < 0 || !ok && b.verify().Unposted == 0 {
				b.t.Errorf("behind %x: %x, %v; want %x", low, next, ok, from.Key)
			}
		}
	}
	if len(keys) != len(b.model) || !slices.IsSorted(keys) {
		b.t.Errorf("%d keys of %d, sorted: %v", len(keys), len(b.model), slices.IsSorted(keys))
	}
}

// TestLookupsOfDamage: a block in no segment, one that is no node and never becomes one, and a node
// that leads nowhere end a lookup with an error that says so.
func TestLookupsOfDamage(t *testing.T) {
	for _, x := range []struct {
		name  string
		want  error
		value func(b *bladed) []byte // of the root
	}{
		{"in no segment", index.ErrCorrupt, func(*bladed) []byte {
			return blink.Root{Addr: layout.MakeAddr(4000, 64), Level: 0}.Append(nil)
		}},
		{"no node", index.ErrBusy, func(b *bladed) []byte {
			a := b.block()
			b.set(a, block{state: record.Free})
			return blink.Root{Addr: a, Level: 0}.Append(nil)
		}},
		{"of another table", index.ErrBusy, func(b *bladed) []byte {
			a := b.block()
			leaf, _ := tree.Empty(a)
			b.set(a, block{record.Node, otherTable, leaf})
			return blink.Root{Addr: a, Level: 0}.Append(nil)
		}},
		{"in a circle", index.ErrBusy, func(b *bladed) []byte {
			a := b.block()
			b.put(a, blink.AppendRoot(nil, 1, a, []byte("z"), a))
			return blink.Root{Addr: a, Level: 1}.Append(nil)
		}},
		{"garbage", index.ErrCorrupt, func(b *bladed) []byte {
			a := b.block()
			b.blocks[a] = block{record.Node, table, []byte("garbage")}
			b.write(a, b.g.Class.Size(), 0)
			return blink.Root{Addr: a, Level: 0}.Append(nil)
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := newBladed(t, geometry(t, 8, 3))
			b.put(b.at, x.value(b))
			h := b.open(b.m)
			if _, err := h.Leaf(b.c, index.Place{}); !errors.Is(err, x.want) {
				t.Errorf("%v, want %v", err, x.want)
			}
			if _, err := h.Stats(b.c); !errors.Is(err, x.want) {
				t.Errorf("%v, want %v", err, x.want)
			}
		})
	}
}
