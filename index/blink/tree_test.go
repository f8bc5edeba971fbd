package blink_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/index/blink"
	"txnode/memory/layout"
)

// tree is a whole tree in a map from addresses to images. Each of its methods that change something
// is one transaction: what it reads is current, and what it writes appears at once. Between them,
// anything may happen. So it shows that the functions of the package compose.
type tree struct {
	t       testing.TB
	g       blink.Geometry
	r       *rand.Rand
	b       blink.Builder
	root    blink.Root
	roots   []blink.Root             // all roots there were
	blocks  map[layout.Addr][]byte   // images; a block that is not in it is free
	past    map[layout.Addr][][]byte // all images that a block ever had
	changed map[layout.Addr]int      // the number of the change that wrote the block
	posts   []post                   // separators that are not posted yet
	unused  []layout.Addr            // freed blocks
	next    int
	changes int
	model   map[string]blink.Change
	readers []*reader
	counts  map[string]int // what has happened
}

// post is a separator that some transaction has to post.
type post struct {
	level     int // of the child
	separator []byte
	child     layout.Addr
}

func newTree(t testing.TB, g blink.Geometry, seed uint64) *tree {
	tr := &tree{
		t: t, g: g, r: rand.New(rand.NewPCG(seed, 1)), next: 1,
		blocks: map[layout.Addr][]byte{}, past: map[layout.Addr][][]byte{}, changed: map[layout.Addr]int{},
		model: map[string]blink.Change{}, counts: map[string]int{},
	}
	tr.root.Addr = tr.block()
	tr.roots = append(tr.roots, tr.root)
	tr.write(tr.root.Addr, blink.AppendLeaf(nil))
	return tr
}

// block is a new block, often one that has been freed.
func (tr *tree) block() layout.Addr {
	if n := len(tr.unused); n > 0 && tr.r.IntN(3) > 0 {
		a := tr.unused[n-1]
		tr.unused = tr.unused[:n-1]
		return a
	}
	tr.next++
	return addrOf(tr.next - 1)
}

func (tr *tree) write(a layout.Addr, image []byte) {
	decode(tr.t, tr.g, image)
	tr.changes++
	tr.blocks[a], tr.changed[a] = image, tr.changes
	tr.past[a] = append(tr.past[a], image)
}

func (tr *tree) free(a layout.Addr) {
	tr.changes++
	delete(tr.blocks, a)
	tr.changed[a] = tr.changes
	tr.unused = append(tr.unused, a)
}

// node is the current node of a block; false if the block is free or of another level.
func (tr *tree) node(a layout.Addr, level int) (blink.Node, bool) {
	image, ok := tr.blocks[a]
	if !ok {
		return blink.Node{}, false
	}
	n, err := blink.Decode(image)
	if err != nil {
		tr.t.Fatal(err)
	}
	return n, n.Level() == level
}

// target is what a search looks for: the node of a level that is responsible for the keys just
// above, or just below, a bound.
type target struct {
	level int
	bound blink.Bound
	below bool
}

func (g target) place(n blink.Node) blink.Place {
	if g.below {
		return n.Below(g.bound)
	}
	return n.Above(g.bound)
}

func (g target) child(n blink.Node) layout.Addr {
	if g.below {
		return n.Addr(n.ChildBelow(g.bound))
	}
	return n.Addr(n.ChildAbove(g.bound))
}

// path is a search in progress.
type path struct {
	target
	at    layout.Addr
	level int
	stale bool // inner nodes come from a cache, which has any image that the block ever had
}

// start puts the search to the root; to an old one, if stale.
func (tr *tree) start(g target, stale bool) path {
	root := tr.roots[tr.r.IntN(len(tr.roots))]
	if !stale || root.Level < g.level {
		root = tr.root
	}
	if root.Level < g.level {
		tr.t.Fatalf("no level %d in a tree of level %d", g.level, root.Level)
	}
	return path{target: g, at: root.Addr, level: root.Level, stale: stale}
}

// step reads one node. It returns blink.Here when it has arrived, blink.GoRight to be called again,
// and blink.NotHere when the search has to start again.
func (tr *tree) step(p *path) (blink.Node, blink.Place) {
	n, ok := tr.node(p.at, p.level)
	if images := tr.past[p.at]; p.stale && p.level > p.target.level && len(images) > 0 {
		n, _ = blink.Decode(images[tr.r.IntN(len(images))])
		ok = n.Level() == p.level
	}
	if !ok {
		tr.counts["led to a block that is no node of the level"]++
		return n, blink.NotHere
	}
	switch place := p.place(n); {
	case place == blink.NotHere:
		tr.counts["led behind the key"]++
		return n, place
	case place == blink.GoRight:
		tr.counts["went right"]++
		p.at = n.Right()
		return n, place
	case p.level == p.target.level:
		return n, blink.Here
	default:
		p.at = p.child(n)
		p.level--
		return n, blink.GoRight
	}
}

// find is a whole search at one moment. Without stale nodes it arrives at once, whatever has
// not been posted yet.
func (tr *tree) find(g target, stale bool) (layout.Addr, blink.Node) {
	tr.t.Helper()
	p := tr.start(g, stale)
	for {
		at := p.at
		n, place := tr.step(&p)
		switch {
		case place == blink.Here:
			return at, n
		case place == blink.NotHere && !p.stale:
			tr.t.Fatalf("a search of current nodes for %+v at level %d was led to %v, level %d",
				p.bound, p.target.level, at, p.level)
		case place == blink.NotHere:
			p = tr.start(g, false)
		}
	}
}

func keyTarget(level int, key []byte) target { return target{level: level, bound: blink.Before(key)} }

// apply writes what becomes of a node, and notes separators.
func (tr *tree) apply(a layout.Addr, n blink.Node, changes []blink.Change) {
	tr.t.Helper()
	images, err := tr.b.Apply(tr.g, n, changes)
	if err != nil {
		tr.t.Fatal(err)
	}
	if len(changes) == 1 && images > 2 {
		tr.t.Fatalf("%d images of one change at level %d", images, n.Level())
	}
	addrs := []layout.Addr{a}
	for range images - 1 {
		addrs = append(addrs, tr.block())
	}
	addrs = append(addrs, 0)
	for i := range images {
		if i > 0 {
			tr.counts[fmt.Sprintf("split at level %d", n.Level())]++
			tr.posts = append(tr.posts, post{level: n.Level(), separator: bytes.Clone(tr.b.Low(i)), child: addrs[i]})
		}
		tr.write(addrs[i], tr.b.AppendImage(nil, i, addrs[i+1]))
	}
}

// commit applies changes of keys to one leaf: of the list, those that the leaf of the first key is
// for.
func (tr *tree) commit(changes []blink.Change) {
	tr.t.Helper()
	a, n := tr.find(keyTarget(0, changes[0].Key), tr.r.IntN(2) == 0)
	changes = slices.DeleteFunc(changes, func(c blink.Change) bool {
		_, found := tr.model[string(c.Key)]
		return n.Cover(c.Key) != blink.Here || c.Op == blink.Delete && !found
	})
	tr.apply(a, n, changes)
	for _, c := range changes {
		_, found := tr.model[string(c.Key)]
		if c.Op == blink.Delete {
			delete(tr.model, string(c.Key))
		} else {
			tr.model[string(c.Key)] = c
		}
		for _, r := range tr.readers {
			r.changed(string(c.Key), found, c.Op != blink.Delete)
		}
	}
}

// post posts a separator; it grows the tree if there is no parent. What has become untrue in the
// meantime it drops.
func (tr *tree) post(p post) {
	tr.t.Helper()
	child, ok := tr.node(p.child, p.level)
	if !ok || !bytes.Equal(child.Low(), p.separator) {
		tr.counts["dropped a separator of a node that is gone"]++
		return
	}
	if tr.root.Level == p.level {
		a := tr.block()
		tr.write(a, blink.AppendRoot(nil, p.level+1, tr.root.Addr, p.separator, p.child))
		tr.root = blink.Root{Addr: a, Level: p.level + 1}
		tr.roots = append(tr.roots, tr.root)
		tr.counts["grew"]++
		return
	}
	a, n := tr.find(keyTarget(p.level+1, p.separator), tr.r.IntN(2) == 0)
	if i, found := n.Search(p.separator); found {
		if n.Addr(i) != p.child {
			tr.t.Fatalf("separator %x leads to %v, and is to lead to %v", p.separator, n.Addr(i), p.child)
		}
		tr.counts["posted already"]++
	}
	tr.apply(a, n, []blink.Change{{Op: blink.Put, Key: p.separator, Addr: p.child}})
}

// postOne posts one of the separators that are due, or posts one twice.
func (tr *tree) postOne() {
	if len(tr.posts) == 0 {
		return
	}
	i := tr.r.IntN(len(tr.posts))
	p := tr.posts[i]
	if tr.r.IntN(10) > 0 {
		tr.posts = slices.Delete(tr.posts, i, i+1)
	}
	tr.post(p)
}

// merge merges a node into its left neighbour, if the two fit and the parent leads to both;
// it reports whether.
func (tr *tree) merge(a layout.Addr) bool {
	tr.t.Helper()
	n, err := blink.Decode(tr.blocks[a])
	if err != nil {
		tr.t.Fatal(err)
	}
	if len(n.Low()) == 0 {
		return false // the first of its level
	}
	low := n.Low()
	var parent layout.Addr
	var of blink.Node
	if tr.root.Level > n.Level() {
		var i int
		var found bool
		parent, of = tr.find(keyTarget(n.Level()+1, low), false)
		switch i, found = of.Search(low); {
		case found && i == 0:
			tr.counts["no merge: the first child"]++
			return false
		case found && of.Addr(i) != a:
			tr.t.Fatalf("separator %x of %v leads to %v", low, a, of.Addr(i))
		case !found:
			tr.counts["merged before the separator was posted"]++
			parent = 0
		}
	}
	left, to := tr.find(target{level: n.Level(), bound: blink.Before(low), below: true}, tr.r.IntN(2) == 0)
	if err := tr.b.Merge(tr.g, to, n, a); err != nil {
		tr.counts["no merge: too full"]++
		return false
	}
	tr.counts[fmt.Sprintf("merged at level %d", n.Level())]++
	tr.write(left, tr.b.AppendImage(nil, 0, 0))
	if parent != 0 {
		tr.apply(parent, of, []blink.Change{{Op: blink.Delete, Key: bytes.Clone(low)}})
	}
	tr.free(a)
	return true
}

// mergeOne tries to merge one of the nodes; an empty one, if it comes to one soon.
func (tr *tree) mergeOne() {
	addrs := slices.Sorted(maps.Keys(tr.blocks))
	for range 5 {
		a := addrs[tr.r.IntN(len(addrs))]
		if n, _ := blink.Decode(tr.blocks[a]); n.Count() == 0 || tr.r.IntN(5) == 0 {
			tr.merge(a)
			return
		}
	}
}

// verify checks the whole tree: no fault, the leaves have what the model has, each block is
// reached. posted: each node has its separator in a parent.
func (tr *tree) verify(posted bool) {
	tr.t.Helper()
	seen := 0
	totals, faults := tr.walk(func(_ layout.Addr, n blink.Node) {
		if n.Level() > 0 {
			return
		}
		for _, e := range contentsOf(n).entries {
			seen++
			if w, ok := tr.model[string(e.Key)]; !ok || !equalPayload(w, e) {
				tr.t.Fatalf("key %x: %+v, not %+v", e.Key, e, w)
			}
		}
	})
	for _, f := range faults {
		tr.t.Error(f)
	}
	if seen != len(tr.model) || totals.Entries != seen || totals.Nodes != len(tr.blocks) ||
		totals.Levels != tr.root.Level+1 {
		tr.t.Fatalf("%d keys of %d, %d blocks: %+v", seen, len(tr.model), len(tr.blocks), totals)
	}
	if posted && totals.Unposted > 0 || totals.Unposted > len(tr.posts) {
		tr.t.Fatalf("%d separators are not posted, %d are to be", totals.Unposted, len(tr.posts))
	}
}

var errFree = errors.New("free block")

// walk is blink.Verify of the tree. The reader uses one buffer again and again.
func (tr *tree) walk(visit func(layout.Addr, blink.Node)) (totals blink.Totals, faults []blink.NodeError) {
	var buffer []byte
	read := func(a layout.Addr) ([]byte, error) {
		image, ok := tr.blocks[a]
		if !ok {
			return nil, errFree
		}
		clear(buffer[:cap(buffer)])
		buffer = append(buffer[:0], image...)
		return buffer, nil
	}
	totals = blink.Verify(tr.g, tr.root, read, nil, visit, func(f blink.NodeError) { faults = append(faults, f) })
	return totals, faults
}

// draw is some of the keys that a test uses, as changes.
func (tr *tree) draw(keys [][]byte, most int, deletes float64) []blink.Change {
	var changes []blink.Change
	at := tr.r.IntN(len(keys))
	for i := range 1 + tr.r.IntN(most) {
		c := blink.Change{Op: blink.Put, Key: keys[(at+i)%len(keys)]}
		if tr.r.Float64() < deletes {
			c.Op = blink.Delete
		} else {
			payloadFor(&c, tr.changes%5000+1)
		}
		changes = append(changes, c)
	}
	sortChanges(changes)
	return changes
}

// drain posts everything, and merges what can be merged if merges is set.
func (tr *tree) drain(merges bool) {
	tr.t.Helper()
	for again := true; again; {
		for len(tr.posts) > 0 {
			tr.postOne()
		}
		again = false
		for _, a := range slices.Sorted(maps.Keys(tr.blocks)) {
			if _, ok := tr.blocks[a]; merges && ok && tr.merge(a) {
				again = true
			}
		}
	}
}

// treeCases are geometries and keys of trees: high ones of few keys, and some with
// prefixes and long keys.
func treeCases(t testing.TB) map[string]struct {
	g    blink.Geometry
	keys [][]byte
} {
	shape := func(name string, count, longest int) (keys [][]byte) {
		r := rand.New(rand.NewPCG(9, 9))
		for range count {
			keys = append(keys, keyShapes[name](r, longest))
		}
		slices.SortFunc(keys, bytes.Compare)
		return slices.CompactFunc(keys, bytes.Equal)
	}
	return map[string]struct {
		g    blink.Geometry
		keys [][]byte
	}{
		"two entries":         {fit(t, blink.Geometry{MaxKey: 8, MaxEntries: 2}), shape("numbers", 40, 8)},
		"three":               {fit(t, blink.Geometry{MaxKey: 12, MaxEntries: 3}), shape("of 00 and ff", 60, 12)},
		"words":               {fit(t, blink.Geometry{MaxKey: 30, MaxEntries: 4}), shape("words", 300, 30)},
		"as many as fit":      {fit(t, blink.Geometry{MaxKey: 150}), shape("of a long common prefix", 400, 150)},
		"long keys, 4 a node": {fit(t, blink.Geometry{MaxKey: 1024}), shape("of any length", 100, 1024)},
	}
}

// TestTree changes trees in random order: inserts, lists, deletes, late separators, merges, with
// searches through stale nodes, and readers and scans that read one node at a time in between.
func TestTree(t *testing.T) {
	seeds, steps := 60, 600
	if testing.Short() {
		seeds = 4
	}
	counts := map[string]int{}
	for name, c := range treeCases(t) {
		for seed := range seeds {
			if !t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				tr := newTree(t, c.g, uint64(seed))
				for i := range steps {
					tr.random(c.keys, []float64{0.2, 0.5, 0.8}[i*3/steps])
					if i%100 == 0 {
						tr.verify(false)
					}
				}
				tr.drain(false)
				tr.verify(true)
				tr.collapse()
				for what, n := range tr.counts {
					counts[what] += n
				}
			}) {
				return
			}
		}
	}
	for _, what := range []string{
		"led to a block that is no node of the level", "led behind the key", "went right", "split at level 0",
		"split at level 1", "split at level 2", "grew",
		"dropped a separator of a node that is gone", "posted already", "merged before the separator was posted",
		"merged at level 0",
		"merged at level 1", "no merge: the first child", "no merge: too full",
		"scans unchanged", "scans changed", "searches found", "searches not found", "searches again",
	} {
		if counts[what] == 0 {
			t.Errorf("%q has never happened", what)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%8d %s", counts[what], what)
	}
}

// random does one thing.
func (tr *tree) random(keys [][]byte, deletes float64) {
	switch n := tr.r.IntN(20); {
	case n < 8:
		tr.commit(tr.draw(keys, 1, deletes))
	case n < 10:
		tr.commit(tr.draw(keys, 12, deletes))
	case n < 13:
		tr.postOne()
	case n < 15:
		tr.mergeOne()
	default:
		tr.read(keys)
	}
}

// collapse deletes everything, and merges until one node of each level is left.
func (tr *tree) collapse() {
	tr.t.Helper()
	for len(tr.model) > 0 {
		for key := range maps.Clone(tr.model) {
			tr.commit([]blink.Change{{Op: blink.Delete, Key: []byte(key)}})
		}
	}
	tr.drain(true)
	tr.verify(true)
	if len(tr.blocks) != tr.root.Level+1 {
		tr.t.Fatalf("%d nodes are left of an empty tree of %d levels", len(tr.blocks), tr.root.Level+1)
	}
}

// TestStaleNodes replaces each inner node in turn by each image that its block ever had, all else
// being current, and searches for every key, also before and after the separators are posted.
func TestStaleNodes(t *testing.T) {
	seeds := 20
	if testing.Short() {
		seeds = 2
	}
	for name, c := range treeCases(t) {
		for seed := range seeds {
			tr := newTree(t, c.g, uint64(1000+seed))
			for i := range 250 {
				tr.random(c.keys, []float64{0.1, 0.5}[i/200])
			}
			tr.searchStale(name, c.keys)
			tr.drain(false)
			tr.searchStale(name, c.keys)
		}
	}
}

func (tr *tree) searchStale(name string, keys [][]byte) {
	tr.t.Helper()
	for a, images := range tr.past {
		current, used := tr.blocks[a]
		if n, _ := blink.Decode(current); !used || n.Level() == 0 {
			continue
		}
		for _, image := range images {
			if n, _ := blink.Decode(image); n.Level() == 0 {
				continue // its level shows that it is another node
			}
			for _, key := range keys {
				tr.searchWith(name, a, image, key)
			}
		}
	}
}

// searchWith searches for a key; at its first visit the block a has an old image.
func (tr *tree) searchWith(name string, a layout.Addr, image, key []byte) {
	tr.t.Helper()
	p, visited := tr.start(keyTarget(0, key), false), false
	for {
		current := tr.blocks[a]
		if p.at == a && !visited {
			tr.blocks[a], visited = image, true
		}
		at := p.at
		n, place := tr.step(&p)
		tr.blocks[a] = current
		switch {
		case place == blink.NotHere && !visited:
			tr.t.Fatalf("%s: %x: current nodes lead to %v", name, key, at)
		case place == blink.NotHere:
			p = tr.start(keyTarget(0, key), false)
		case place == blink.Here:
			if _, found := n.Search(key); found != tr.has(key) {
				tr.t.Fatalf("%s: %x with an old %v: found %v", name, key, a, found)
			}
			return
		}
	}
}

func (tr *tree) has(key []byte) bool {
	_, ok := tr.model[string(key)]
	return ok
}
