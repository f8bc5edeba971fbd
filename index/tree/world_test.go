package tree_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/index"
	"txnode/index/blink"
	"txnode/index/tree"
	"txnode/memory"
	"txnode/memory/record"
)

// Numbers of tables: that of the tree, and another one that gets blocks which the tree gives back.
const (
	table      = 3
	otherTable = 4
)

// block is what a block holds.
type block struct {
	state record.State
	table uint16
	value []byte
}

// world is a tree in blocks, what its keys lead to, and some handles. Commits are changes of one
// handle, one after the other. A block that was given back is used again first.
type world struct {
	t       testing.TB
	g       blink.Geometry
	at      memory.Addr // of the root's block
	blocks  map[memory.Addr]block
	past    []image // all values that inner nodes and the root have ever had
	free    []memory.Addr
	next    int
	model   map[string]index.Candidate
	handles []*tree.Tree
	rows    int
	alloc   func() memory.Addr               // nil: addresses in order
	placed  func(a memory.Addr, size uint32) // called after a block has changed; may be nil
	longest int                              // blocks of one search
}

// image is a value that a block has had.
type image struct {
	at    memory.Addr
	value []byte
}

func newWorld(t testing.TB, g blink.Geometry, handles int) *world {
	w := &world{t: t, g: g, blocks: map[memory.Addr]block{}, model: map[string]index.Candidate{}}
	w.begin(nil, handles)
	return w
}

// begin makes an empty tree and handles.
func (w *world) begin(s tree.Space, handles int) {
	w.t.Helper()
	node := w.block()
	w.at = w.block()
	leaf, root := tree.Empty(node)
	w.put(node, leaf)
	w.put(w.at, root)
	for range handles {
		w.handles = append(w.handles, w.open(s))
	}
}

// open returns a further handle, with an empty cache.
func (w *world) open(s tree.Space) *tree.Tree {
	w.t.Helper()
	h, err := tree.New(s, w.g, table, w.at)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

func (w *world) block() memory.Addr {
	if n := len(w.free); n > 0 {
		a := w.free[n-1]
		w.free = w.free[:n-1]
		return a
	}
	if w.alloc != nil {
		return w.alloc()
	}
	w.next++
	return memory.MakeAddr(1, uint32(w.next)*memory.BlockAlign)
}

// put makes a block a node of the tree.
func (w *world) put(a memory.Addr, value []byte) { w.set(a, block{record.Node, table, value}) }

func (w *world) set(a memory.Addr, b block) {
	w.blocks[a] = b
	if b.state == record.Node && b.table == table && (a == w.at || b.value[0] > 0) {
		w.past = append(w.past, image{a, b.value})
	}
	if w.placed != nil {
		w.placed(a, w.g.Class.Size())
	}
}

// vacate gives a block back. Another table may get it, or it stays free.
func (w *world) vacate(a memory.Addr, r *rand.Rand) {
	b := w.blocks[a]
	switch r.IntN(4) {
	case 0:
		w.set(a, block{record.Node, otherTable, b.value}) // and it looks as if it had stayed
	case 1:
		w.set(a, block{record.Live, table, []byte("row")})
	default:
		w.set(a, block{state: record.Free, table: table})
		w.free = append(w.free, a)
	}
}

// seek reads the node that is responsible for a place, as package occ does.
func (w *world) seek(h *tree.Tree, p index.Place) (memory.Addr, []byte) {
	w.t.Helper()
	hop := h.Find(p)
	var way []memory.Addr
	for len(way) < index.AnewAfter+2*len(w.blocks)+20 { // each node once from the cached root, and once from the one that is read
		way = append(way, hop.Addr)
		p.Anew = len(way) > index.AnewAfter
		b := w.blocks[hop.Addr]
		if b.state != record.Node || b.table != table {
			hop = h.Astray(p)
			continue
		}
		next, here, err := h.Follow(p, hop.Addr, b.value)
		if err != nil {
			w.t.Fatalf("%+v: %v", p, err)
		}
		if here {
			w.longest = max(w.longest, len(way))
			return hop.Addr, b.value
		}
		hop = next
	}
	w.t.Fatalf("the search for %+v does not end: %v", p, way)
	return 0, nil
}

// write writes the k values that an editor has planned of a node, and returns where they are.
func (w *world) write(h *tree.Tree, a memory.Addr, ed index.Editor, k int) []memory.Addr {
	w.t.Helper()
	at := []memory.Addr{a}
	for range k - 1 {
		at = append(at, w.block())
	}
	var posts []index.Post
	values := make([][]byte, k)
	for i := range k {
		var next memory.Addr
		if i+1 < k {
			next = at[i+1]
		}
		values[i] = ed.Append(nil, i, next)
		if len(values[i]) != ed.Size(i) {
			w.t.Fatalf("value %d has %d bytes, announced were %d", i, len(values[i]), ed.Size(i))
		}
		n, err := blink.Decode(values[i])
		if err == nil {
			err = n.Check(w.g)
		}
		if err != nil {
			w.t.Fatal(err)
		}
		if i > 0 {
			posts = append(posts, ed.Post(i, at[i]))
		}
	}
	for i := range k {
		w.put(at[i], values[i])
	}
	for _, p := range posts {
		h.Owe(p)
	}
	return at
}

// change changes entries of one leaf: those of the keys that the leaf of the first key is responsible for.
func (w *world) change(h *tree.Tree, r *rand.Rand, keys ...string) {
	w.t.Helper()
	a, value := w.seek(h, index.PlaceOf([]byte(keys[0])))
	n, err := blink.Decode(value)
	if err != nil {
		w.t.Fatal(err)
	}
	slices.Sort(keys)
	var changes []index.Change
	for _, k := range slices.Compact(keys) {
		if n.Cover([]byte(k)) != blink.Here {
			continue
		}
		c := index.Change{Op: index.Link, Key: []byte(k)}
		if _, ok := w.model[k]; ok {
			c.Op = index.Unlink
			if r.IntN(4) == 0 {
				c.Op = index.Relink
			}
		}
		if c.Op == index.Unlink {
			delete(w.model, k)
		} else {
			w.rows++
			c.Addr, c.Class = memory.MakeAddr(9, uint32(w.rows)*memory.BlockAlign), memory.Class(w.rows%memory.NumClasses)
			w.model[k] = index.Candidate{Addr: c.Addr, Class: c.Class}
		}
		changes = append(changes, c)
	}
	ed := h.NewEditor()
	k, err := ed.Edit(value, changes)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(h, a, ed, k)
}

// fewer deletes the first keys from some key on.
func (w *world) fewer(h *tree.Tree, r *rand.Rand, from string, n int) {
	w.t.Helper()
	for _, k := range slices.Sorted(maps.Keys(w.model)) {
		if k >= from && n > 0 {
			n--
			w.change(h, r, k)
		}
	}
}

// post makes one change that a handle owes. ok is false if it owes nothing.
func (w *world) post(h *tree.Tree) (ok bool) {
	w.t.Helper()
	p, ok := h.Owed()
	if !ok {
		return false
	}
	child := w.blocks[p.Child]
	if child.state != record.Node || child.table != table || !h.Due(p, child.value) {
		return true
	}
	a, value := w.seek(h, index.Place{Bound: index.Bound{Key: p.Key}, Level: p.Level})
	if a == w.at {
		b := w.block()
		root, node, err := h.Grow(value, p, b)
		if err != nil {
			w.t.Fatal(err)
		}
		w.put(b, node)
		w.put(w.at, root)
		h.Published(b, node)
		h.Published(w.at, root)
		return true
	}
	ed := h.NewEditor()
	k, err := ed.EditPost(value, p)
	if err != nil {
		w.t.Fatal(err)
	}
	if k > 0 {
		for _, at := range w.write(h, a, ed, k) {
			h.Published(at, w.blocks[at].value)
		}
	}
	return true
}

// merge merges the node of a level that is responsible for a key into its left neighbour, if they are
// below one parent and one node has room for both.
func (w *world) merge(h *tree.Tree, r *rand.Rand, level int, key string) (done bool) {
	w.t.Helper()
	a, right := w.seek(h, index.Place{Bound: index.Bound{Key: []byte(key)}, Level: level})
	if a == w.at {
		return false
	}
	low := h.Low(right)
	if len(low) == 0 {
		return false
	}
	l, left := w.seek(h, index.Place{Bound: index.Bound{Key: low}, Below: true, Level: level})
	up, parent := w.seek(h, index.Place{Bound: index.Bound{Key: low}, Level: level + 1})
	ed := h.NewEditor()
	if fits, err := ed.EditMerge(left, right, a); err != nil || !fits {
		if err != nil {
			w.t.Fatal(err)
		}
		return false
	}
	unpost := h.NewEditor()
	k := 0
	if up != w.at {
		var err error
		if k, err = unpost.EditUnpost(parent, index.Post{Level: level + 1, Key: low, Child: a}); err != nil {
			return false // it is the first one below its parent
		}
	}
	if k > 0 {
		w.write(h, up, unpost, k)
	}
	w.write(h, l, ed, 1)
	w.vacate(a, r)
	return true
}

// height is the level of the root.
func (w *world) height() int {
	r, err := blink.DecodeRoot(w.blocks[w.at].value)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Level
}

// verify walks over the whole tree.
func (w *world) verify() (t blink.Totals) {
	w.t.Helper()
	root, err := blink.DecodeRoot(w.blocks[w.at].value)
	if err != nil {
		w.t.Fatal(err)
	}
	read := func(a memory.Addr) ([]byte, error) {
		if b := w.blocks[a]; b.state == record.Node && b.table == table {
			return b.value, nil
		}
		return nil, fmt.Errorf("block %v is no node", a)
	}
	t = blink.Verify(w.g, root, read, func(memory.Addr, blink.Node) {}, func(f blink.NodeError) { w.t.Error(f) })
	if t.Entries != len(w.model) {
		w.t.Fatalf("%d entries of %d keys", t.Entries, len(w.model))
	}
	return t
}

// get looks a key up.
func (w *world) get(h *tree.Tree, key string) {
	w.t.Helper()
	_, leaf := w.seek(h, index.PlaceOf([]byte(key)))
	got, found := h.Entry(leaf, []byte(key))
	if want, ok := w.model[key]; found != ok || got != want {
		w.t.Fatalf("key %x: %+v, %v; want %+v, %v", key, got, found, want, ok)
	}
}

// scan lists what is between two bounds as a scan of package occ does, `most` entries at a time, and the
// leaves that it was read from.
func (w *world) scan(h *tree.Tree, from, to index.Bound, down bool, most int) (list []index.Candidate, leaves []memory.Addr) {
	w.t.Helper()
	p := index.Place{Bound: from}
	if down {
		p = index.Place{Bound: to, Below: true}
	}
	for range len(w.blocks) + len(w.model) + 1 {
		a, leaf := w.seek(h, p)
		if len(leaves) == 0 || leaves[len(leaves)-1] != a {
			leaves = append(leaves, a)
		}
		lower, upper := p.Bound, to
		if down {
			lower, upper = from, p.Bound
		}
		before := len(list)
		var more bool
		list, p, more = h.Entries(list, leaf, lower, upper, down, most)
		if len(list)-before > most {
			w.t.Fatalf("%d entries at once, of at most %d", len(list)-before, most)
		}
		if !more {
			return list, leaves
		}
	}
	w.t.Fatalf("the scan from %+v to %+v, down %v, does not end", from, to, down)
	return nil, nil
}

// between is what is between two bounds, by the model.
func (w *world) between(from, to index.Bound, down bool) (list []index.Candidate) {
	for _, k := range slices.Sorted(maps.Keys(w.model)) {
		f, u := bytes.Compare([]byte(k), from.Key), bytes.Compare([]byte(k), to.Key)
		if !from.End && (f > 0 || f == 0 && !from.After) && (to.End || u < 0 || u == 0 && to.After) {
			list = append(list, w.model[k])
		}
	}
	if down {
		slices.Reverse(list)
	}
	return list
}

// emptyRange reports whether nothing can be between two bounds. Package occ does not scan then.
func emptyRange(from, to index.Bound) bool {
	if from.End || to.End {
		return from.End
	}
	d := bytes.Compare(from.Key, to.Key)
	return d > 0 || d == 0 && (from.After || !to.After)
}

// compare compares a scan with the model.
func (w *world) compare(h *tree.Tree, from, to index.Bound, down bool, most int) {
	w.t.Helper()
	if emptyRange(from, to) {
		return
	}
	got, _ := w.scan(h, from, to, down, most)
	if want := w.between(from, to, down); !slices.Equal(got, want) {
		w.t.Fatalf("from %+v to %+v, down %v, at most %d at once:\n%v\n%v", from, to, down, most, got, want)
	}
}

// poison has a handle cache a node, or a root, as it was once.
func (w *world) poison(h *tree.Tree, r *rand.Rand) {
	old := w.past[r.IntN(len(w.past))]
	h.Published(old.at, old.value)
}
