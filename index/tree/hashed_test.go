package tree_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/index"
	"txnode/index/blink"
	"txnode/index/bucket"
	"txnode/index/tree"
	"txnode/memory/layout"
)

// leaf checks a leaf of hashes.
func (w *world) leaf(value []byte) bucket.Leaf {
	w.t.Helper()
	l, err := bucket.Decode(value[:bucket.HeadSize], value[bucket.HeadSize:])
	if err == nil {
		err = l.Check()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// hashed makes an index of hashes with small nodes.
func hashed(t *testing.T, leaf layout.Class, leaves, entries, handles int) *world {
	w := &world{t: t, blocks: map[layout.Addr]block{}, model: map[string]index.Candidate{}}
	w.g = blink.Geometry{Class: 4, MaxKey: 5, MaxEntries: entries}
	w.hashes = &tree.Hashes{Leaf: leaf, Node: w.g, Leaves: leaves}
	w.begin(nil, handles)
	return w
}

// tile walks over the leaves, which have to tile the hashes and to link what the model has, and
// returns their number.
func (w *world) tile(h *tree.Tree) (leaves int) {
	w.t.Helper()
	x := w.seek(h, index.PlaceOf(nil))
	entries, low := 0, bucket.Hash(0)
	for {
		leaves++
		l := w.leaf(x.Body)
		if l.Low() != low {
			w.t.Fatalf("the leaf at %v begins at %010x, not at %010x", x.Addr, uint64(l.Low()), uint64(low))
		}
		for i := range l.Count() {
			b := l.Block(i)
			if w.model[string(b.Hash.AppendKey(nil))] != (index.Candidate{Addr: b.Addr, Class: b.Class}) {
				w.t.Fatalf("%010x leads to %v", uint64(b.Hash), b.Addr)
			}
			entries++
		}
		var more bool
		if low, more = l.High(); !more {
			break
		}
		x = w.read(l.Right())
	}
	if entries != len(w.model) {
		w.t.Fatalf("%d entries of %d hashes", entries, len(w.model))
	}
	return leaves
}

// TestHashed: an index of hashes says what a model says, whatever its handles have cached:
// nodes and leaves of before, of blocks that other tables have by now, or that are other nodes.
// All changes of structure that are owed are made, and then a search takes as many blocks as
// the tree has levels.
func TestHashed(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		handles := 1 + r.IntN(3)
		w := hashed(t, layout.Class(1+r.IntN(2)), []int{1, 4, 64, 4096}[r.IntN(4)], 2+r.IntN(4), handles)
		keys := 40 + r.IntN(200)
		shift := []int{0, 8, 20, 30}[r.IntN(4)]
		hashes := make([]string, keys)
		for i := range hashes {
			hashes[i] = string(
				bucket.Hash(r.Uint64() >> 24 >> shift << (r.IntN(2) * shift) & (1<<bucket.MaxDepth - 1)).AppendKey(nil))
		}
		slices.Sort(hashes)
		hashes = slices.Compact(hashes)
		one := func() string { return hashes[r.IntN(len(hashes))] }
		for range 400 {
			h := w.handles[r.IntN(handles)]
			switch r.IntN(8) {
			case 0:
				w.poison(h, r)
			case 1, 2:
				w.get(h, one())
			case 3:
				w.post(h, r)
			case 4:
				from, to := index.Bound{Key: []byte(one()), After: r.IntN(2) == 0},
					index.Bound{Key: []byte(one()), After: r.IntN(2) == 0, End: r.IntN(8) == 0}
				w.compare(h, from, to, r.IntN(2) == 0, 1+r.IntN(6))
			default:
				w.change(h, r, slices.Repeat([]string{one(), one(), one()}, 1)[:1+r.IntN(3)]...)
			}
		}
		for _, h := range w.handles {
			for w.post(h, r) {
			}
		}
		w.tile(w.handles[0])
		w.hashes.Leaves = 1 // so that the nodes above are asked
		bare := w.open(nil)
		for range 2 { // what was never added to the nodes above comes to light
			for _, k := range hashes {
				w.get(bare, k)
				w.get(bare, k)
				for w.post(bare, r) {
				}
			}
		}
		bare, w.longest = w.open(nil), 0
		for _, k := range hashes {
			w.get(bare, k)
		}
		if most := w.height() + 2; w.longest > most {
			t.Errorf("seed %d: a search took %d blocks, in a tree of %d levels", seed, w.longest, w.height())
		}
		w.hashes.Leaves = 1 << 20
		fresh := w.open(nil)
		w.tile(fresh)
		for _, k := range hashes {
			w.get(fresh, k)
		}
		w.longest = 0
		for _, k := range hashes {
			w.get(fresh, k)
		}
		if w.longest > 1 && shift == 0 {
			t.Errorf("seed %d: a search took %d blocks by a directory that knows all leaves", seed, w.longest)
		}
		for k := range w.model {
			w.change(fresh, r, k)
			if r.IntN(2) == 0 {
				w.post(fresh, r)
			}
		}
		for _, k := range hashes {
			if _, ok := w.model[k]; ok {
				w.fewer(fresh, r, k, 1)
			}
		}
	}
}

// TestHashedShrinks: of an index of hashes all of which go few leaves are left: those whose other
// halves have been below other parents.
func TestHashedShrinks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	w := hashed(t, 1, 4096, 0, 1)
	h := w.handles[0]
	for range 200 {
		w.change(h, r, string(bucket.Hash(r.Uint64()>>24).AppendKey(nil)))
		w.post(h, r)
	}
	for w.post(h, r) {
	}
	before := w.tile(h)
	for _, k := range slices.Sorted(maps.Keys(w.model)) {
		for w.model[k].Addr != 0 { // a change may replace it
			w.change(h, r, k)
		}
		for w.post(h, r) {
		}
	}
	if after := w.tile(h); after > before/8 {
		t.Errorf("%d leaves of %d are left", after, before)
	}
}

// TestEqualHashes: several blocks of one hash are candidates, all of them, and go one by one.
func TestEqualHashes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	w := hashed(t, 1, 64, 3, 1)
	h := w.handles[0]
	key := bucket.Hash(0x8000000001).AppendKey(nil)
	for range 20 {
		w.change(h, r, string(bucket.Hash(r.Uint64()>>24).AppendKey(nil)))
	}
	ed := w.editor(h)
	do := func(changes ...index.Change) {
		t.Helper()
		w.commit(h, r, ed, w.plan(h, func(have []index.Node) ([]index.Edit, []index.Need, error) {
			return ed.Plan(have, changes)
		}))
	}
	row := func(i uint32) layout.Addr { return layout.MakeAddr(8, i*layout.BlockAlign) }
	do(index.Change{Op: index.Link, Key: key, Addr: row(1)}, index.Change{Op: index.Link, Key: key, Addr: row(2)})
	do(index.Change{Op: index.Link, Key: key, Addr: row(3)})
	candidates := func() (list []layout.Addr) {
		for _, c := range h.Candidates(nil, key, []index.Node{w.seek(h, index.PlaceOf(key))}) {
			list = append(list, c.Addr)
		}
		return list
	}
	if got := candidates(); !slices.Equal(got, []layout.Addr{row(1), row(2), row(3)}) {
		t.Fatalf("%v", got)
	}
	do(index.Change{Op: index.Relink, Key: key, Old: row(2), Addr: row(4)},
		index.Change{Op: index.Unlink, Key: key, Old: row(1)})
	if got := candidates(); !slices.Equal(got, []layout.Addr{row(3), row(4)}) {
		t.Fatalf("%v", got)
	}
}
