package tree_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/index"
	"txnode/index/blink"
	"txnode/index/bucket"
	"txnode/index/tree"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// writer is a tree.Write to blocks of the world, so many at a time. A node is written before what
// leads to it.
func (w *world) writer(atOnce int) tree.Write {
	return func(class layout.Class, n int, image func(dst []byte, i int, at []layout.Addr) []byte) (
		[]layout.Addr, error) {
		at := make([]layout.Addr, n)
		for to := n; to > 0; to -= atOnce {
			from := max(to-atOnce, 0)
			for i := from; i < to; i++ {
				at[i] = w.block()
			}
			for i := from; i < to; i++ {
				value := image(nil, i, at)
				if need, ok := record.ClassFor(0, len(value)); !ok || need > class {
					return nil, fmt.Errorf("a node of %d bytes in a block of class %d", len(value), class)
				}
				w.put(at[i], value)
			}
		}
		return at, nil
	}
}

// built is an index of hashes that was built, of the keys of a model, with those hashes.
func built(t testing.TB, g tree.Hashes, atOnce int, hashes []bucket.Hash) *world {
	t.Helper()
	w := &world{t: t, g: g.Node, blocks: map[layout.Addr]block{}, model: map[string]index.Candidate{}, hashes: &g}
	list := make([]bucket.Linked, 0, len(hashes))
	for i, h := range hashes {
		c := index.Candidate{Addr: layout.MakeAddr(8, uint32(i+1)*layout.BlockAlign), Class: layout.Class(i % 7)}
		list = append(list, bucket.NewLinked(h, c.Addr, c.Class))
		w.model[string(h.AppendKey(nil))] = c
	}
	slices.SortFunc(list, bucket.Linked.Compare)
	var err error
	if w.at, err = tree.Build(g, list, w.writer(atOnce)); err != nil {
		t.Fatal(err)
	}
	return w
}

// whole verifies the tree, all of whose nodes have to be in the level above.
func (w *world) whole(entries int) blink.Totals {
	w.t.Helper()
	root, err := blink.DecodeRoot(w.blocks[w.at].value)
	if err != nil {
		w.t.Fatal(err)
	}
	totals := blink.Verify(w.g, root, func(a layout.Addr) ([]byte, error) { return w.blocks[a].value, nil },
		func(image []byte) (blink.Fences, error) {
			_, f, err := tree.Leaf(image)
			return f, err
		}, func(layout.Addr, blink.Node) {}, func(f blink.NodeError) { w.t.Error(f) })
	if totals.Entries != entries || totals.Unposted != 0 || totals.Nodes+1 != len(w.blocks) {
		w.t.Errorf("%+v in %d blocks; want %d entries", totals, len(w.blocks), entries)
	}
	return totals
}

// TestBuild: an index that was built at once is whole at any size and however hashes are spread,
// and says what a model says. Inserts and deletes go on in it as in one that they have made.
func TestBuild(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 11))
		g := tree.HashesOf(tree.LeafClass,
			tree.Options{MaxEntries: []int{0, 2, 3, 5}[r.IntN(4)], Leaves: 1 << (2 * r.IntN(9))})
		size := []int{0, 1, 2, 5, 23, 24, 100, 1000, 3000}[r.IntN(9)]
		shift := []int{0, 8, 20, 27}[r.IntN(4)]
		up := r.IntN(2) * shift
		hashes := make([]bucket.Hash, size)
		for i := range hashes {
			hashes[i] = bucket.Hash(r.Uint64() >> 24 >> shift << up)
		}
		slices.Sort(hashes)
		hashes = slices.Compact(hashes)
		r.Shuffle(len(hashes), func(i, j int) { hashes[i], hashes[j] = hashes[j], hashes[i] })
		w := built(t, g, 1+r.IntN(40), hashes)
		w.whole(len(hashes))
		h := w.open(nil)
		for _, x := range hashes {
			w.get(h, string(x.AppendKey(nil)))
		}
		for range 100 {
			key := bucket.Hash(r.Uint64() >> 24 >> shift << up)
			if len(hashes) > 0 && r.IntN(3) > 0 {
				key = hashes[r.IntN(len(hashes))]
			}
			w.get(h, string(key.AppendKey(nil)))
			w.rows = max(w.rows, 1<<15) // blocks of rows that are new
			w.change(h, r, string(key.AppendKey(nil)))
			w.post(h, r)
		}
		for w.post(h, r) {
		}
		w.tile(h)
	}
}

// TestBuildLarge: 100,000 keys have as many leaves as they have after inserts, and few nodes above.
func TestBuildLarge(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 12))
	hashes := make([]bucket.Hash, 100_000)
	for i := range hashes {
		hashes[i] = bucket.HashOf(r.Uint64())
	}
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	w := built(t, tree.HashesOf(tree.LeafClass, tree.Options{}), 64, hashes)
	totals := w.whole(len(hashes))
	bytes := 320*totals.Leaves + 1024*(totals.Nodes-totals.Leaves)
	t.Logf("%d keys: %d leaves, %d nodes above in %d levels, %.1f bytes a key", len(hashes), totals.Leaves,
		totals.Nodes-totals.Leaves, totals.Levels-1, float64(bytes)/float64(len(hashes)))
	if inner := totals.Nodes - totals.Leaves; totals.Levels != 3 || inner > totals.Leaves/60+2 ||
		float64(bytes) > 21*float64(len(hashes)) {
		t.Errorf("%+v", totals)
	}
}

// TestBuildEqual: several blocks of one hash are candidates, all of them, as many as a leaf has
// room for.
func TestBuildEqual(t *testing.T) {
	for _, n := range []int{2, 22, 23, 24, 30} {
		w := &world{t: t, blocks: map[layout.Addr]block{}}
		g := tree.HashesOf(tree.LeafClass, tree.Options{})
		w.g, w.hashes = g.Node, &g
		var list []bucket.Linked
		for i := range n {
			list = append(list, bucket.NewLinked(0x8000000001, layout.MakeAddr(8, uint32(i+1)*layout.BlockAlign), 0),
				bucket.NewLinked(bucket.Hash(i), layout.MakeAddr(9, uint32(i+1)*layout.BlockAlign), 0))
		}
		slices.SortFunc(list, bucket.Linked.Compare)
		at, err := tree.Build(g, list, w.writer(8))
		if n > 30 && !errors.Is(err, bucket.ErrFull) || n <= 30 && err != nil {
			t.Fatal(err)
		}
		w.at = at
		w.whole(2 * n)
		key := bucket.Hash(0x8000000001).AppendKey(nil)
		h := w.open(nil)
		if got := h.Candidates(nil, key, []index.Node{w.seek(h, index.PlaceOf(key))}); len(got) != n {
			t.Errorf("%d candidates of %d", len(got), n)
		}
	}
}

// TestBuildFails: an error of what writes ends it.
func TestBuildFails(t *testing.T) {
	w := &world{t: t, blocks: map[layout.Addr]block{}}
	g := tree.HashesOf(tree.LeafClass, tree.Options{MaxEntries: 2})
	list := make([]bucket.Linked, 100)
	for i := range list {
		list[i] = bucket.NewLinked(bucket.Hash(i)<<33, layout.MakeAddr(8, uint32(i+1)*layout.BlockAlign), 0)
	}
	stop, write := errors.New("stop"), w.writer(3)
	for left := 0; ; left++ {
		n := 0
		_, err := tree.Build(g, list, func(class layout.Class, k int,
			image func(dst []byte, i int, at []layout.Addr) []byte) ([]layout.Addr, error) {
			if n++; n > left {
				return nil, stop
			}
			return write(class, k, image)
		})
		if err == nil {
			if left < 4 {
				t.Errorf("%d calls", left)
			}
			return
		}
		if !errors.Is(err, stop) {
			t.Fatal(err)
		}
	}
}
