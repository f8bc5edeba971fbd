package blink_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"txnode/index/blink"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// smallKeys are five keys, some of which are prefixes of others.
var smallKeys = []string{"a", "ab", "aba", "b", "ba"}

// TestEverySequence applies every sequence of eight changes of five keys, in leaves of two rows or
// three, with merges of empty leaves and without, and compares each state with a map and each image
// with its slow twin. A state that has been reached before, with at least as many changes to go, is
// not looked at again.
func TestEverySequence(t *testing.T) {
	depth := 8
	if testing.Short() {
		depth = 6
	}
	for _, merges := range []bool{false, true} {
		for _, entries := range []int{2, 3} {
			g := blink.Geometry{MaxKey: 8, MaxEntries: entries}
			s := sequences{t: t, merges: merges, reached: map[string]int{}}
			s.walk(newLevel(t, fit(t, g)), map[string]blink.Change{}, depth)
			t.Logf("%s, merges %v: %d changes of %d states", kindName(g), merges, s.changes, len(s.reached))
		}
	}
}

type sequences struct {
	t       *testing.T
	b       blink.Builder
	merges  bool
	reached map[string]int // how many changes were to go
	changes int
}

func (s *sequences) walk(l level, want map[string]blink.Change, depth int) {
	s.t.Helper()
	state := ""
	for _, n := range l.nodes {
		c := contentsOf(n)
		c.right = 0
		state += string(c.encode())
	}
	if s.reached[state] >= depth {
		return
	}
	s.reached[state] = depth
	for i, key := range smallKeys {
		old, found := want[key]
		for op := blink.Insert; op <= blink.Delete; op++ {
			s.changes++
			next, model := l.clone(), maps.Clone(want)
			c := blink.Change{Op: op, Key: []byte(key)}
			if payloadFor(&c, 1+2*i); found && equalPayload(c, old) {
				payloadFor(&c, 2+2*i)
			}
			next.step(s.t, &s.b, model, c)
			if at := next.find(c.Key); s.merges && at > 0 && next.nodes[at].Count() == 0 {
				next.merge(s.t, &s.b, at)
			}
			next.check(s.t, model)
			s.walk(next, model, depth-1)
		}
	}
}

// TestEveryList applies every list of changes of five keys at once to every set of them in one
// leaf.
func TestEveryList(t *testing.T) {
	for _, limit := range []int{2, 3, 0} {
		g := fit(t, blink.Geometry{MaxKey: 8, MaxEntries: limit})
		var b blink.Builder
		for set := range 1 << len(smallKeys) {
			want := map[string]blink.Change{}
			l := newLevel(t, g)
			for i, key := range smallKeys {
				if set>>i&1 != 0 {
					c := blink.Change{Key: []byte(key)}
					payloadFor(&c, i+1)
					l.step(t, &b, want, c)
				}
			}
			if len(l.nodes) > 1 {
				continue
			}
			for list := range 243 { // per key: nothing, put, delete
				var changes []blink.Change
				model := maps.Clone(want)
				for i, digit := 0, list; i < len(smallKeys); i, digit = i+1, digit/3 {
					c := blink.Change{Op: blink.Put, Key: []byte(smallKeys[i])}
					payloadFor(&c, 10+i)
					switch _, found := model[smallKeys[i]]; {
					case digit%3 == 1:
						model[smallKeys[i]] = c
						changes = append(changes, c)
					case digit%3 == 2 && found:
						delete(model, smallKeys[i])
						c.Op = blink.Delete
						changes = append(changes, c)
					}
				}
				next := l.clone()
				if err := next.apply(t, &b, 0, changes); err != nil {
					t.Fatal(err)
				}
				next.check(t, model)
			}
		}
	}
}

// keyShapes are ways to draw keys of at most n bytes.
var keyShapes = map[string]func(r *rand.Rand, n int) []byte{
	"of 00 and ff": func(r *rand.Rand, n int) []byte {
		k := make([]byte, 1+r.IntN(min(n, 12)))
		for i := range k {
			k[i] = byte(-r.IntN(2))
		}
		return k
	},
	"long, of few bytes": func(r *rand.Rand, n int) []byte {
		k := bytes.Repeat([]byte{"\x00a\xff"[r.IntN(3)]}, 1+r.IntN(n))
		k[r.IntN(len(k))] = byte(r.Uint32())
		return k
	},
	"of any length": func(r *rand.Rand, n int) []byte {
		k := make([]byte, 1+r.IntN(n))
		for i := range k {
			k[i] = byte(r.Uint32())
		}
		return k
	},
	"of a long common prefix": func(r *rand.Rand, n int) []byte {
		k := bytes.Repeat([]byte{'p'}, n)
		for range 2 {
			k[n-1-r.IntN(min(n, 3))] = byte(r.Uint32())
		}
		if r.IntN(20) == 0 {
			k[0] = byte(r.Uint32())
		}
		return k[:n-r.IntN(min(n, 3))]
	},
	"numbers": func(r *rand.Rand, n int) []byte {
		k := make([]byte, min(n, 8))
		for i, v := len(k)-1, r.Uint64N(5000); i >= 0; i, v = i-1, v>>8 {
			k[i] = byte(v)
		}
		return k
	},
	"words": func(r *rand.Rand, n int) []byte {
		var k []byte
		for range 1 + r.IntN(6) {
			k = append(k, []string{"ware", "house", "district", "order", "/", "line"}[r.IntN(6)]...)
		}
		return k[:min(n, len(k))]
	},
}

// geometries have the shortest, longest and some other keys.
func geometries(t testing.TB) []blink.Geometry {
	var all []blink.Geometry
	for _, key := range []int{1, 8, 33, record.MaxKey} {
		for _, entries := range []int{0, 2, 5} {
			all = append(all, fit(t, blink.Geometry{MaxKey: key, MaxEntries: entries}))
		}
	}
	return all
}

// TestRandomSequences applies long sequences of changes, one at a time and in lists, with keys of
// all shapes, and now and then a merge of any two neighbours.
func TestRandomSequences(t *testing.T) {
	steps := 500
	if testing.Short() {
		steps = 150
	}
	for _, g := range geometries(t) {
		for shape, draw := range keyShapes {
			t.Run(kindName(g)+", "+shape, func(t *testing.T) {
				r := rand.New(rand.NewPCG(1, uint64(len(shape)*g.MaxKey)))
				var b blink.Builder
				l, want := newLevel(t, g), map[string]blink.Change{}
				for number := range steps {
					switch r.IntN(12) {
					case 0: // a list for one node
						l.list(t, &b, want, randomList(r, g, l.nodes[r.IntN(len(l.nodes))], draw, number))
					case 1:
						if i := r.IntN(len(l.nodes)); i > 0 {
							l.merge(t, &b, i)
						}
					default:
						c := blink.Change{Op: blink.Op(r.IntN(4)), Key: draw(r, g.MaxKey)}
						if keys := slices.Sorted(maps.Keys(want)); len(keys) > 0 && r.IntN(3) == 0 {
							c.Key = []byte(keys[r.IntN(len(keys))])
						}
						payloadFor(&c, number%5000)
						l.step(t, &b, want, c)
					}
					if number%50 == 0 {
						l.check(t, want)
					}
				}
				l.check(t, want)
			})
		}
	}
}

// randomList is a list of changes that n can take: puts of keys that are drawn, deletes
// of keys that it has.
func randomList(r *rand.Rand, g blink.Geometry, n blink.Node, draw func(*rand.Rand, int) []byte,
	number int) []blink.Change {
	var changes []blink.Change
	for i := range 1 + r.IntN(20) {
		c := blink.Change{Op: blink.Put, Key: draw(r, g.MaxKey)}
		if n.Count() > 0 && r.IntN(3) == 0 {
			c = blink.Change{Op: blink.Delete, Key: n.AppendKey(nil, r.IntN(n.Count()))}
		}
		if n.Cover(c.Key) == blink.Here {
			payloadFor(&c, (number*20+i)%5000)
			changes = append(changes, c)
		}
	}
	sortChanges(changes)
	return slices.CompactFunc(changes, func(a, b blink.Change) bool { return bytes.Equal(a.Key, b.Key) })
}

// list applies a list to the node that it is for, and to the model.
func (l *level) list(t testing.TB, b *blink.Builder, want map[string]blink.Change, changes []blink.Change) {
	t.Helper()
	if len(changes) == 0 {
		return
	}
	if err := l.apply(t, b, l.find(changes[0].Key), changes); err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if c.Op == blink.Delete {
			delete(want, string(c.Key))
		} else {
			want[string(c.Key)] = c
		}
	}
}

// TestCanonical comes to the same contents and fences in different ways.
func TestCanonical(t *testing.T) {
	g := fit(t, blink.Geometry{MaxKey: 16})
	r := rand.New(rand.NewPCG(1, 2))
	var first []byte
	for range 50 {
		var b blink.Builder
		l, want := newLevel(t, g), map[string]blink.Change{}
		for _, i := range r.Perm(30) {
			if i >= 20 && r.IntN(2) == 0 {
				l.step(t, &b, want, withRow("extra", i))
				l.step(t, &b, want, blink.Change{Op: blink.Delete, Key: withRow("extra", i).Key})
				continue
			}
			l.step(t, &b, want, withRow("key", i%20))
		}
		image := l.nodes[0].Bytes()
		if first == nil {
			first = image
		}
		if !bytes.Equal(first, image) {
			t.Fatalf("two images of the same contents:\n%x\n%x", first, image)
		}
	}
}

func withRow(key string, i int) blink.Change {
	return blink.Change{Op: blink.Put, Key: []byte(key + string(rune('a'+i))), Addr: addrOf(i + 1), Class: 3}
}

// TestAppendsFill inserts keys in order, one at a time and in lists: every leaf but the last
// is then full. The prefix of all but the first, whose low fence is empty, has six or seven
// of the eight bytes.
func TestAppendsFill(t *testing.T) {
	g := fit(t, blink.Geometry{MaxKey: 8})
	full := func(suffix int) int {
		return (g.Room() - blink.HeaderSize - 3*8) / (blink.SlotSize + blink.RowPayload + suffix)
	}
	for _, batch := range []int{1, 10, 1000} {
		var b blink.Builder
		l, want := newLevel(t, g), map[string]blink.Change{}
		for at := 0; at < 1000; at += batch {
			var changes []blink.Change
			for i := at; i < at+batch; i++ {
				c := blink.Change{Key: []byte{0, 0, 0, 0, 0, 0, byte(i >> 8), byte(i)}}
				payloadFor(&c, i+1)
				changes = append(changes, c)
			}
			l.list(t, &b, want, changes)
		}
		l.check(t, want)
		for i, n := range l.nodes[:len(l.nodes)-1] {
			most := full(8)
			if i > 0 {
				most = full(2)
			}
			if n.Count() < most || i > 0 && len(n.Prefix()) < 6 {
				t.Errorf("lists of %d: leaf %d of %d has %d entries and prefix %x; %d entries fit",
					batch, i, len(l.nodes), n.Count(), n.Prefix(), most)
			}
		}
		t.Logf("lists of %d: %d leaves, %d entries in the first, %d in the second",
			batch, len(l.nodes), l.nodes[0].Count(), l.nodes[1].Count())
	}
}

// TestAppendsOfOthers fills the last leaf with keys of a common prefix of any length, and puts a
// key behind them that does not have it. One change makes two images, however much room the entries
// would take without the prefix; level.apply checks that.
func TestAppendsOfOthers(t *testing.T) {
	for _, longest := range []int{8, 100, 1024} {
		for _, entries := range []int{0, 5} {
			g := fit(t, blink.Geometry{MaxKey: longest, MaxEntries: entries})
			for _, prefix := range []int{longest - 3, 4, longest / 2, longest - 5, 1} {
				if testing.Short() && (entries > 0 || prefix != longest-3) {
					continue
				}
				testAppendOfOther(t, g, bytes.Repeat([]byte{'p'}, prefix))
			}
		}
	}
}

func testAppendOfOther(t *testing.T, g blink.Geometry, prefix []byte) {
	t.Helper()
	var b blink.Builder
	l, want := newLevel(t, g), map[string]blink.Change{}
	step := func(l *level, want map[string]blink.Change, key []byte) {
		c := blink.Change{Op: blink.Put, Key: key}
		payloadFor(&c, len(want)+1)
		l.step(t, &b, want, c)
	}
	// One key after the other, until the second split. What was just before it are leaves that are
	// more or less full.
	var before []level
	var models []map[string]blink.Change
	for i := 0; len(l.nodes) < 3; i++ {
		if before = append(before, l.clone()); len(before) > 12 {
			before = before[1:]
		}
		if models = append(models, maps.Clone(want)); len(models) > 12 {
			models = models[1:]
		}
		step(&l, want, append(bytes.Clone(prefix), 0, byte(i>>8), byte(i)))
	}
	for i := range before {
		// The last key of the prefix is any, or the last one of all, or almost.
		for _, size := range []int{0, g.MaxKey, g.MaxKey - 1} {
			l, want := before[i].clone(), maps.Clone(models[i])
			if size > 0 {
				step(&l, want, append(bytes.Clone(prefix), bytes.Repeat([]byte{0xff}, size-len(prefix))...))
			}
			step(&l, want, []byte("q"))
			l.check(t, want)
		}
	}
}

// TestOrders inserts 8-byte keys in several orders, and compares the average number of entries of a
// leaf with what fits: 54 without a prefix, 83 with six bytes less.
func TestOrders(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var counters [20]uint64
	group := func(g int) uint64 {
		counters[g]++
		return uint64(g)<<32 | counters[g]
	}
	for _, c := range []struct {
		name  string
		key   func(i int) uint64
		least int
	}{
		{"rising", func(i int) uint64 { return uint64(i) }, 75},
		{"falling", func(i int) uint64 { return uint64(1<<20 - i) }, 50},
		{"at random", func(int) uint64 { return r.Uint64() }, 35},
		{"rising in each of twenty groups", func(int) uint64 { return group(r.IntN(20)) }, 55},
		{"the same, on top of filled groups", func(i int) uint64 {
			if i < 2000 {
				return group(i / 100)
			}
			return group(r.IntN(20))
		}, 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := fit(t, blink.Geometry{MaxKey: 8})
			counters = [20]uint64{}
			var b blink.Builder
			l, want := newLevel(t, g), map[string]blink.Change{}
			for i := range 6000 {
				c := blink.Change{Key: binary.BigEndian.AppendUint64(nil, c.key(i))}
				payloadFor(&c, i+1)
				l.step(t, &b, want, c)
			}
			l.check(t, want)
			if average := len(want) / len(l.nodes); average < c.least {
				t.Errorf("%d leaves of %d entries on average: at least %d are expected", len(l.nodes), average, c.least)
			}
			t.Logf("%d leaves of %d entries on average", len(l.nodes), len(want)/len(l.nodes))
		})
	}
}

// TestCutFits has a leaf whose shortest separator, long as it is, would leave a part
// that does not fit.
func TestCutFits(t *testing.T) {
	g := fit(t, blink.Geometry{MaxKey: 1024})
	entry := func(end string, size int) blink.Change {
		key := strings.Repeat("m", 1000-len(end)/2) + end
		key += strings.Repeat("x", size-len(key))
		return blink.Change{Key: []byte(key), Addr: addrOf(1)}
	}
	c := contents{low: strings.Repeat("a", 1024), high: "z", right: addrOf(2), entries: []blink.Change{
		entry("0", 1001), entry("1", 1024), entry("2", 1024), entry("4", 1024), entry("nn", 1024),
	}}
	var b blink.Builder
	if images, err := b.Apply(g, decode(t, g, c.encode()), []blink.Change{entry("3", 1024)}); err != nil ||
		images != 2 {
		t.Fatalf("%d images, %v", images, err)
	}
}

// TestListOverAll replaces every entry of a leaf by a list that is too much for one.
func TestListOverAll(t *testing.T) {
	g := fit(t, blink.Geometry{MaxKey: 150})
	for old := range 4 {
		for _, more := range []int{0, 3, 20, 200} {
			for _, deletes := range []bool{false, true} {
				var b blink.Builder
				l, want := newLevel(t, g), map[string]blink.Change{}
				var changes []blink.Change
				for i := range old + more {
					c := blink.Change{Op: blink.Put, Key: append(bytes.Repeat([]byte{'k'}, 148), byte(i))}
					payloadFor(&c, i+1)
					if i >= more/2 && i < more/2+old {
						l.step(t, &b, want, c)
						if deletes {
							c.Op = blink.Delete
						}
					}
					changes = append(changes, c)
				}
				l.list(t, &b, want, changes)
				l.check(t, want)
			}
		}
	}
}

// TestInner applies separators to inner nodes: the first cannot be removed, splits cut
// at whole separators.
func TestInner(t *testing.T) {
	for _, limit := range []int{0, 2, 3} {
		g := fit(t, blink.Geometry{MaxKey: 40, MaxEntries: limit})
		var b blink.Builder
		root := decode(t, g, blink.AppendRoot(nil, 1, addrOf(1), []byte("m"), addrOf(2)))
		if _, err := b.Apply(g, root, []blink.Change{{Op: blink.Delete, Key: []byte{}}}); !errors.Is(err,
			blink.ErrChange) {
			t.Fatalf("delete of the first separator: %v", err)
		}
		l := level{g: g, nodes: []blink.Node{root}, addrs: []layout.Addr{addrOf(9000)}, next: 9001}
		want := map[string]blink.Change{"": {Addr: addrOf(1)}, "m": {Addr: addrOf(2)}}
		r := rand.New(rand.NewPCG(3, uint64(limit)))
		for i := range 500 {
			c := blink.Change{Op: blink.Put, Key: keyShapes["words"](r, g.MaxKey), Addr: addrOf(3 + i)}
			l.step(t, &b, want, c)
			if r.IntN(3) == 0 {
				k := r.IntN(len(l.nodes))
				if n := l.nodes[k]; n.Count() > 1 {
					l.step(t, &b, want, blink.Change{Op: blink.Delete, Key: n.AppendKey(nil, 1+r.IntN(n.Count()-1))})
				} else if k > 0 {
					l.merge(t, &b, k)
				}
			}
			l.check(t, want)
		}
		for _, n := range l.nodes {
			if n.ChildAbove(blink.End()) != n.Count()-1 || n.ChildBelow(blink.End()) != n.Count()-1 ||
				n.ChildAbove(blink.Bound{}) != 0 {
				t.Fatal("the ends of the key space")
			}
			for i := range n.Count() {
				key := n.AppendKey(nil, i)
				if n.Child(key) != i || n.ChildAbove(blink.Before(key)) != i || n.ChildAbove(blink.After(key)) != i {
					t.Fatalf("child of %q is %d, not %d", key, n.Child(key), i)
				}
				if i > 0 && n.ChildBelow(blink.Before(key)) != i-1 || n.ChildBelow(blink.After(key)) != i {
					t.Fatalf("child below %q is %d, not %d", key, n.ChildBelow(blink.Before(key)), i-1)
				}
			}
		}
	}
}

// TestImpossibleChanges gives each change that no node can take.
func TestImpossibleChanges(t *testing.T) {
	rows := fit(t, blink.Geometry{MaxKey: 8})
	good := blink.Change{Op: blink.Put, Key: []byte("k"), Addr: addrOf(1)}
	with := func(f func(*blink.Change)) blink.Change {
		c := good
		f(&c)
		return c
	}
	low := contents{low: "f", high: "p", right: addrOf(9)}.encode()
	cases := []struct {
		name    string
		g       blink.Geometry
		image   []byte
		changes []blink.Change
		want    error
	}{
		{"good", rows, nil, []blink.Change{good}, nil},
		{"nothing", rows, nil, nil, nil},
		{"operation", rows, nil, []blink.Change{with(func(c *blink.Change) { c.Op = 4 })}, blink.ErrChange},
		{
			"long key", rows, nil, []blink.Change{with(func(c *blink.Change) { c.Key = []byte("123456789") })},
			blink.ErrChange,
		},
		{"twice", rows, nil, []blink.Change{good, good}, blink.ErrChange},
		{
			"out of order", rows, nil, []blink.Change{good, with(func(c *blink.Change) { c.Key = []byte("j") })},
			blink.ErrChange,
		},
		{"no address", rows, nil, []blink.Change{with(func(c *blink.Change) { c.Addr = 0 })}, blink.ErrChange},
		{"long address", rows, nil, []blink.Change{with(func(c *blink.Change) { c.Addr |= 1 << 48 })}, blink.ErrChange},
		{"crooked address", rows, nil, []blink.Change{with(func(c *blink.Change) { c.Addr++ })}, blink.ErrChange},
		{
			"class", rows, nil, []blink.Change{with(func(c *blink.Change) { c.Class = layout.NumClasses })},
			blink.ErrChange,
		},
		{"below", rows, low, []blink.Change{with(func(c *blink.Change) { c.Key = []byte("e") })}, blink.ErrNotHere},
		{"low fence", rows, low, []blink.Change{with(func(c *blink.Change) { c.Key = []byte("f") })}, nil},
		{
			"high fence", rows, low, []blink.Change{with(func(c *blink.Change) { c.Key = []byte("p") })},
			blink.ErrNotHere,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.image == nil {
				c.image = blink.AppendLeaf(nil)
			}
			n, err := blink.Decode(c.image)
			if err != nil {
				t.Fatal(err)
			}
			var b blink.Builder
			images, err := b.Apply(c.g, n, c.changes)
			if !errors.Is(err, c.want) || (images == 1) != (c.want == nil) {
				t.Fatalf("%d images, %v", images, err)
			}
		})
	}
}

// TestMergeNeighbours merges what cannot be merged.
func TestMergeNeighbours(t *testing.T) {
	g := fit(t, blink.Geometry{MaxKey: 1000, MaxEntries: 0})
	long := strings.Repeat("p", 900)
	left := contents{low: long + "a", high: long + "b", right: addrOf(2)}
	for i := range 60 {
		left.entries = append(left.entries, blink.Change{
			Key: []byte(long + "a" + string(rune('0'+i))), Addr: addrOf(i + 10),
		})
	}
	right := contents{low: long + "b", high: "q", right: addrOf(8)}
	shifted, gap, inner := right, right, right
	shifted.low, gap.low = long+"a", long+"c"
	inner.level, inner.entries = 1, []blink.Change{{Key: []byte(inner.low), Addr: addrOf(3)}}
	var b blink.Builder
	for _, c := range []struct {
		name  string
		right contents
		at    int
		want  error
	}{
		{"too full without the common prefix", right, 2, blink.ErrFull},
		{"elsewhere", right, 3, blink.ErrNeighbours},
		{"overlap", shifted, 2, blink.ErrNeighbours},
		{"gap", gap, 2, blink.ErrNeighbours},
		{"another level", inner, 2, blink.ErrNeighbours},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := b.Merge(g, decode(t, g, left.encode()), decode(t, g, c.right.encode()), addrOf(c.at))
			if !errors.Is(err, c.want) || b.Images() != 0 {
				t.Fatalf("%d images, %v", b.Images(), err)
			}
		})
	}
	right.high, right.right = long+"c", addrOf(7)
	if err := b.Merge(g, decode(t, g, left.encode()), decode(t, g, right.encode()), addrOf(2)); err != nil {
		t.Fatal(err)
	}
	left.high, left.right = right.high, right.right
	if got := b.AppendImage(nil, 0, 0); !bytes.Equal(got, left.encode()) {
		t.Fatalf("merged:\n%x\n%x", got, left.encode())
	}
}
