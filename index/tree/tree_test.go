package tree_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"txnode/index"
	"txnode/index/blink"
	"txnode/index/tree"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// kinds are keys that trees are made of.
var kinds = []struct {
	name string
	max  int
	key  func(r *rand.Rand) string
}{
	{"numbers", 8, func(r *rand.Rand) string { return string(binary.BigEndian.AppendUint64(nil, r.Uint64N(200))) }},
	{"two letters", 6, func(r *rand.Rand) string { // keys that begin with other ones
		b := make([]byte, 1+r.IntN(6))
		for i := range b {
			b[i] = []byte{0, 'a', 0xff}[r.IntN(3)]
		}
		return string(b)
	}},
	{"lengths", 1024, func(r *rand.Rand) string {
		n := []int{1, 31, 32, 33, 255, 1023, 1024}[r.IntN(7)]
		return strings.Repeat(string([]byte{[]byte{0, 'k', 0xff}[r.IntN(3)]}), n-1) +
			string([]byte{byte(r.IntN(8) * 36)})
	}},
}

func geometry(t testing.TB, maxKey, entries int) blink.Geometry {
	t.Helper()
	g, err := blink.Geometry{MaxKey: maxKey, MaxEntries: entries}.Fit()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// someBound is a bound of a random kind: before or behind a key, perhaps a fence, or an end of all
// keys.
func someBound(w *world, r *rand.Rand, key func(*rand.Rand) string) index.Bound {
	switch r.IntN(8) {
	case 0:
		return index.Bound{}
	case 1:
		return index.Bound{End: true}
	case 2:
		leaf := w.seek(w.handles[0], index.PlaceOf([]byte(key(r))))
		if high, ok := blink.Accepted(leaf.Body).High(); ok {
			return index.Bound{Key: high, After: r.IntN(2) == 0}
		}
	}
	return index.Bound{Key: []byte(key(r)), After: r.IntN(2) == 0}
}

// TestRandom compares trees with a map. Handles change the tree in turn, owe separators for as long
// as they like, and get their cached nodes replaced by older ones. Blocks that merges give back are
// used again at once.
func TestRandom(t *testing.T) {
	steps := 6000
	if testing.Short() {
		steps = 1500
	}
	for _, kind := range kinds {
		for _, entries := range []int{2, 3, 4, 0} {
			t.Run(fmt.Sprintf("%s/entries=%d", kind.name, entries), func(t *testing.T) {
				w := newWorld(t, geometry(t, kind.max, entries), 4)
				r := rand.New(rand.NewPCG(28, uint64(entries)))
				merged, top := 0, 0
				for i := range steps {
					h := w.handles[r.IntN(len(w.handles))]
					for r.IntN(2) == 0 {
						w.poison(h, r)
					}
					switch n := r.IntN(10); {
					case n < 2 && i%500 > 400:
						w.fewer(h, r, kind.key(r), 5)
					case n < 3:
						w.change(h, r, kind.key(r))
					case n == 3:
						w.change(h, r, kind.key(r), kind.key(r), kind.key(r), kind.key(r), kind.key(r), kind.key(r))
					case n == 4:
						if i%1000 < 500 { // and often enough it is long overdue
							for w.post(h, r) {
							}
						}
					case n == 5:
						w.post(h, r)
					case n == 6:
						for level := range w.height() + 1 {
							if w.merge(h, r, level, kind.key(r)) {
								merged++
							}
						}
					case n == 7:
						w.compare(h, someBound(w, r, kind.key), someBound(w, r, kind.key), r.IntN(2) == 0,
							1+r.IntN(5)*r.IntN(5))
					default:
						w.get(h, kind.key(r))
					}
					top = max(top, w.height())
					if i%100 == 0 {
						w.verify()
					}
				}
				for range 20 { // an owed separator may cause another one
					for _, h := range w.handles {
						for w.post(h, r) {
						}
					}
				}
				for _, h := range append(w.handles, w.open(nil)) {
					w.compare(h, index.Bound{}, index.Bound{End: true}, false, math.MaxInt)
					w.compare(h, index.Bound{}, index.Bound{End: true}, true, math.MaxInt)
					for range 50 {
						w.get(h, kind.key(r))
					}
				}
				totals := w.verify()
				t.Logf("%d keys in %d leaves of %d levels, %d merges, %d owed, %d blocks of one search at most",
					totals.Entries, totals.Leaves, totals.Levels, merged, totals.Unposted, w.longest)
				if entries > 0 && (top < 2 || merged < 10) {
					t.Errorf("level %d, %d merges: the tree is too small for what is tested", top, merged)
				}
			})
		}
	}
}

// filled is a world of the even numbers below 2n, whose first handle has all inner nodes cached.
func filled(t testing.TB, n, entries int) *world {
	w := newWorld(t, geometry(t, 8, entries), 2)
	r := rand.New(rand.NewPCG(1, 1))
	for k := range n {
		w.change(w.handles[0], r, number(2*k))
		for w.post(w.handles[0], r) {
		}
	}
	return w
}

func number(k int) string { return string(binary.BigEndian.AppendUint64(nil, uint64(k))) }

// TestOldNodes: with any root and any inner node cached as it was at any time, each alone, every
// key is found, and after some searches the way to it is known: one block is read.
func TestOldNodes(t *testing.T) {
	w := filled(t, 60, 3)
	for i, old := range w.past {
		h := w.handles[0]
		h.Published(index.Node{Addr: old.at, Body: old.value})
		for k := range 121 {
			for range w.height() + 2 {
				w.get(h, number(k))
			}
			w.longest = 0
			if w.get(h, number(k)); w.longest != 1 {
				t.Fatalf("image %d: key %d takes %d blocks", i, k, w.longest)
			}
		}
		if h.Owes() {
			t.Fatalf("image %d: separators are owed that are there", i)
		}
	}
}

// TestGrownBehind: the tree has grown since a handle has read its root, by so much that right links
// lead to the last leaf only after many READs. The next search begins at the new root.
func TestGrownBehind(t *testing.T) {
	for _, known := range []int{0, 1, 5, 20} {
		w := newWorld(t, geometry(t, 8, 3), 2)
		r := rand.New(rand.NewPCG(1, 1))
		first, other := w.handles[0], w.handles[1]
		const n = 400
		for k := range n {
			if k <= known {
				w.get(other, number(k))
			}
			w.change(first, r, number(k))
			for w.post(first, r) {
			}
		}
		w.get(other, number(n-1))
		t.Logf("root known of %d keys: %d blocks", known, w.longest)
		w.longest = 0
		if w.get(other, number(n-1)); w.longest > w.height()+2 {
			t.Errorf("root known of %d keys: %d blocks, of %d levels", known, w.longest, w.height()+1)
		}
	}
}

// TestRightLinks: leaves whose separators are never added are found by right links, however many
// follow each other. A handle that has gone the way twice owes the separators.
func TestRightLinks(t *testing.T) {
	w := newWorld(t, geometry(t, 8, 2), 1)
	r := rand.New(rand.NewPCG(1, 1))
	for k := range 30 {
		w.change(w.handles[0], r, number(k))
	}
	// The process that owes them ends.
	h := w.open(nil)
	w.handles[0] = h
	totals := w.verify()
	if totals.Levels != 1 || totals.Unposted != totals.Leaves-1 || totals.Leaves < 10 {
		t.Fatalf("%+v", totals)
	}
	w.get(h, number(29))
	if h.Owes() {
		t.Error("separators are owed, which another process may be about to add")
	}
	w.get(h, number(29))
	if !h.Owes() {
		t.Error("no separator is owed")
	}
	for range 10 {
		for w.post(h, r) {
		}
		w.get(h, number(29))
		w.get(h, number(29))
	}
	if totals := w.verify(); totals.Unposted != 0 || totals.Levels < 3 {
		t.Errorf("%+v", totals)
	}
}

// TestOwe: each separator is owed once, in order, and again when it was taken.
func TestOwe(t *testing.T) {
	w := newWorld(t, geometry(t, 8, 2), 1)
	h := w.handles[0]
	if _, ok := h.Owed(); ok || h.Owes() {
		t.Fatal("a new handle owes something")
	}
	a, b := index.Post{Level: 1, Key: []byte("a"), Child: 64}, index.Post{Level: 1, Key: []byte("b"), Child: 128}
	for _, p := range []index.Post{a, b, a} {
		h.Owe(p)
	}
	for _, want := range []index.Post{a, b} {
		if !h.Owes() {
			t.Fatal("nothing is owed")
		}
		if p, ok := h.Owed(); !ok || p.Child != want.Child || string(p.Key) != string(want.Key) {
			t.Fatalf("%+v, want %+v", p, want)
		}
	}
	if h.Owes() {
		t.Error("something is owed still")
	}
	h.Owe(a) // since it failed
	if p, ok := h.Owed(); !ok || p.Child != a.Child {
		t.Errorf("%+v %v", p, ok)
	}
}

// TestDue: a separator is due as long as its block holds the node that was split off. It is not
// when that was merged away, and the block holds another one.
func TestDue(t *testing.T) {
	w := newWorld(t, geometry(t, 8, 2), 1)
	r := rand.New(rand.NewPCG(1, 1))
	h := w.handles[0]
	for k := range 3 {
		w.change(h, r, number(k))
	}
	p, ok := h.Owed()
	if !ok {
		t.Fatal("nothing is owed")
	}
	child := w.blocks[p.Child].value
	ed := h.NewEditor()
	for _, x := range []struct {
		name  string
		p     index.Post
		child []byte
		due   bool
	}{
		{"as owed", p, child, true},
		{"a node that begins later", index.Post{Level: 1, Key: p.Key[:7], Child: p.Child}, child, false},
		{"a node that begins earlier", index.Post{Level: 1, Key: []byte(number(9)), Child: p.Child}, child, false},
		{"a node of another level", index.Post{Level: 2, Key: p.Key, Child: p.Child}, child, false},
		{"no node", p, nil, false},
	} {
		edits, needs, err := ed.Settle([]index.Node{{Addr: p.Child, Body: x.child}}, x.p)
		if len(edits) > 0 || (len(needs) > 0) != x.due || err != nil {
			t.Errorf("%s: %v, %v, %v", x.name, edits, needs, err)
		}
	}
	// A root grows by one level at a time.
	root := w.blocks[w.at].value
	for _, x := range []struct {
		root []byte
		want error
	}{{root, nil}, {root[:3], blink.ErrMalformed}, {
		blink.Root{Addr: 64 + rootAt, Level: 1}.Append(nil), blink.ErrStructure,
	}} {
		edits, _, err := ed.Settle([]index.Node{{Addr: p.Child, Body: child}, {Addr: w.at, Body: x.root}}, p)
		bad := (*index.NodeError)(nil)
		if !errors.Is(err, x.want) || (err == nil) != (len(edits) == 2) || err != nil &&
			(!errors.As(err, &bad) || bad.Addr != w.at) {
			t.Errorf("a root of %x: %v, %v", x.root, edits, err)
		}
	}
}

// TestAhead: what a handle knows of the leaves of a range is the beginning of what a scan reads.
func TestAhead(t *testing.T) {
	for _, entries := range []int{2, 3, 4} {
		w := filled(t, 120, entries)
		h := w.handles[0]
		if got := w.open(nil).Ahead(nil, index.Bound{}, index.Bound{End: true}, false, 4); len(got) > 0 {
			t.Errorf("a handle that has read nothing knows of leaves %v", got)
		}
		for k := range 240 { // so that the way to all of them is known
			w.get(h, number(k))
		}
		r := rand.New(rand.NewPCG(5, uint64(entries)))
		key := func(r *rand.Rand) string { return number(r.IntN(242)) }
		several := 0
		for range 3000 {
			from, to := someBound(w, r, key), someBound(w, r, key)
			if emptyRange(from, to) {
				continue
			}
			down, n := r.IntN(2) == 0, r.IntN(6)
			got := h.Ahead([]layout.Addr{1}, from, to, down, n)[1:]
			_, leaves := w.scan(h, from, to, down, math.MaxInt)
			if len(got) > n || n > 0 && len(got) == 0 || len(got) > len(leaves) ||
				!slices.Equal(got, leaves[:len(got)]) {
				t.Fatalf("from %+v to %+v, down %v, at most %d: %v of %v", from, to, down, n, got, leaves)
			}
			if len(got) > 1 {
				several++
			}
		}
		if several < 100 {
			t.Errorf("entries=%d: only %d times more than one leaf", entries, several)
		}
	}
}

// TestDamaged: a root, or a node, that is damaged is an error that says so, and nothing else.
func TestDamaged(t *testing.T) {
	w := filled(t, 40, 3)
	p := index.PlaceOf([]byte(number(7)))
	for a, b := range w.blocks {
		for _, value := range [][]byte{
			{}, b.value[:len(b.value)-1], append(slices.Clone(b.value), 0), []byte("nonsense, and some more of it"),
		} {
			h := w.open(nil)
			if _, step, err := h.Follow(p, index.Node{Addr: a, Body: value}, 0); step == index.Here ||
				!errors.Is(err, index.ErrCorrupt) {
				t.Errorf("block %v, %x: %v, %v", a, value, step, err)
			}
		}
	}
	h := w.open(nil)
	if _, err := tree.New(nil, blink.Geometry{}, table, w.at); !errors.Is(err, index.ErrCorrupt) {
		t.Errorf("an impossible geometry: %v", err)
	}
	if _, err := tree.Fit(record.MaxKey + 1); err == nil {
		t.Error("nodes for keys that are too long")
	}
	ed := h.NewEditor()
	leaf, _ := tree.Empty(64)
	good, bad := index.Node{Addr: 64, Body: leaf}, index.Node{Addr: 128, Body: leaf[:5]}
	if edits, needs, err := ed.Plan([]index.Node{good, bad}, nil); !errors.Is(err, blink.ErrMalformed) ||
		edits != nil || needs != nil {
		t.Errorf("%v, %v, %v", edits, needs, err)
	}
	if edits, needs, err := ed.Settle([]index.Node{bad}, index.Post{Op: index.Merge}); !errors.Is(err,
		blink.ErrMalformed) || edits != nil || needs != nil {
		t.Errorf("%v, %v, %v", edits, needs, err)
	}
}

// TestOtherBlock: an entry that leads to another block than the one of the record that is to be
// unlinked, or to get another block, is damage.
func TestOtherBlock(t *testing.T) {
	w := filled(t, 4, 4)
	h, key := w.handles[0], []byte(number(2))
	leaf := w.seek(h, index.PlaceOf(key))
	old := w.model[string(key)].Addr
	for _, op := range []index.ChangeOp{index.Relink, index.Unlink} {
		for _, x := range []struct {
			old  layout.Addr
			want error
		}{{old, nil}, {old + layout.BlockAlign, blink.ErrStructure}} {
			_, _, err := h.NewEditor().Plan([]index.Node{leaf},
				[]index.Change{{Op: op, Key: key, Old: x.old, Addr: old, Class: 1}})
			if !errors.Is(err, x.want) {
				t.Errorf("%v of %v: %v", op, x.old, err)
			}
		}
	}
}

// TestLookupAllocates: a lookup whose way is known, and a scan inside a leaf, allocate nothing.
func TestLookupAllocates(t *testing.T) {
	w := filled(t, 200, 4)
	h := w.handles[0]
	key := []byte(number(100))
	w.get(h, string(key))
	dst := make([]index.Candidate, 0, 16)
	ahead := make([]layout.Addr, 0, 16)
	from, to := index.Bound{Key: key}, index.Bound{Key: key, After: true}
	evidence := make([]index.Node, 1)
	if n := testing.AllocsPerRun(100, func() {
		p := index.PlaceOf(key)
		hop := h.Find(p)
		evidence[0] = index.Node{Addr: hop.Addr, Body: w.blocks[hop.Addr].value}
		if _, step, err := h.Follow(p, evidence[0], 0); step != index.Here || err != nil {
			t.Fatal(step, err)
		}
		if len(h.Candidates(dst, key, evidence)) != 1 {
			t.Fatal("the key is not there")
		}
		if list, _, more := h.Entries(dst, evidence[0], from, to, false, 8); len(list) != 1 || more {
			t.Fatal(list, more)
		}
		if list := h.Ahead(ahead, from, to, false, 8); len(list) != 1 {
			t.Fatal(list)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestPlanNeedsLeaves: a plan needs the leaf of each key, and changes no other node that it has.
func TestPlanNeedsLeaves(t *testing.T) {
	w := filled(t, 12, 2)
	h := w.handles[0]
	key, far := []byte(number(3)), []byte(number(21))
	changes := []index.Change{
		{Key: key, Addr: layout.MakeAddr(9, 64), Class: 1}, {Key: far, Addr: layout.MakeAddr(9, 128), Class: 1},
	}
	leaf, other := w.seek(h, index.PlaceOf(key)), w.seek(h, index.PlaceOf(far))
	if _, _, err := h.NewEditor().Plan([]index.Node{leaf, leaf}, changes[:1]); !errors.Is(err, blink.ErrStructure) {
		t.Errorf("two leaves of one key: %v", err)
	}
	inner := w.seek(h, index.Place{Bound: index.Bound{Key: key}, Level: 1})
	for _, x := range []struct {
		have  []index.Node
		needs []byte // the leaf of this key
	}{
		{nil, key}, {[]index.Node{inner}, key}, {[]index.Node{inner, other}, key}, {[]index.Node{leaf}, far},
		{[]index.Node{other, inner, leaf}, nil},
	} {
		edits, needs, err := h.NewEditor().Plan(x.have, changes)
		if err != nil {
			t.Fatal(err)
		}
		if x.needs != nil {
			if len(edits) > 0 || len(needs) != 1 || needs[0].At != 0 || string(needs[0].Place.Key) != string(x.needs) {
				t.Errorf("%d nodes: %v, %v", len(x.have), edits, needs)
			}
			continue
		}
		for _, e := range edits {
			if e.At != 0 && e.At != leaf.Addr && e.At != other.Addr || e.Free {
				t.Errorf("%+v", e)
			}
		}
		if len(edits) < 2 || len(needs) > 0 {
			t.Errorf("%v, %v", edits, needs)
		}
	}
}

// TestAstrayForgets: the cached nodes that have led a search to a block that is no node lead no
// other search there.
func TestAstrayForgets(t *testing.T) {
	w := filled(t, 60, 2)
	h := w.handles[0]
	for k := range 120 {
		w.get(h, number(k)) // so that the way to all is known
	}
	for k := range 120 {
		p := index.PlaceOf([]byte(number(k)))
		wrong := h.Find(p)
		if !wrong.Near {
			continue // the way was forgotten, of a key before
		}
		hop, step, err := h.Follow(p, index.Node{Addr: wrong.Addr}, 0)
		if step != index.Astray || err != nil || hop.Addr != w.at {
			t.Fatalf("key %d: %+v, %v, %v", k, hop, step, err)
		}
		if hop, _, err = h.Follow(p, w.read(w.at), 1); err != nil || hop.Addr == wrong.Addr {
			t.Errorf("key %d: the next search is led to %+v, too: %v", k, hop, err)
		}
	}
}
