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
	"txnode/memory/layout"
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
	at      layout.Addr // of the root's block
	blocks  map[layout.Addr]block
	past    []image // all values that inner nodes and the root have ever had
	free    []layout.Addr
	next    int
	model   map[string]index.Candidate
	handles []*tree.Tree
	editors map[*tree.Tree]index.Editor
	rows    int
	alloc   func() layout.Addr               // nil: addresses in order
	placed  func(a layout.Addr, size uint32) // called after a block has changed; may be nil
	longest int                              // blocks of one search
	hashes  *tree.Hashes                     // nil: the keys are no hashes
}

// image is a value that a block has had.
type image struct {
	at    layout.Addr
	value []byte
}

func newWorld(t testing.TB, g blink.Geometry, handles int) *world {
	w := &world{t: t, g: g, blocks: map[layout.Addr]block{}, model: map[string]index.Candidate{}}
	w.begin(nil, handles)
	return w
}

// begin makes an empty tree and handles.
func (w *world) begin(s index.Space, handles int) {
	w.t.Helper()
	node := w.block()
	w.at = w.block()
	leaf, root := tree.Empty(node)
	if w.hashes != nil {
		leaf, root = tree.EmptyHashed(node)
	}
	w.put(node, leaf)
	w.put(w.at, root)
	for range handles {
		w.handles = append(w.handles, w.open(s))
	}
}

// open returns a further handle, with an empty cache.
func (w *world) open(s index.Space) *tree.Tree {
	w.t.Helper()
	h, err := tree.New(s, w.g, table, w.at)
	if w.hashes != nil {
		h, err = tree.NewHashed(s, *w.hashes, table, w.at)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

func (w *world) block() layout.Addr {
	if n := len(w.free); n > 0 {
		a := w.free[n-1]
		w.free = w.free[:n-1]
		return a
	}
	if w.alloc != nil {
		return w.alloc()
	}
	w.next++
	return layout.MakeAddr(1, uint32(w.next)*layout.BlockAlign)
}

// put makes a block a node of the tree.
func (w *world) put(a layout.Addr, value []byte) { w.set(a, block{record.Node, table, value}) }

func (w *world) set(a layout.Addr, b block) {
	w.blocks[a] = b
	if b.state == record.Node && b.table == table && (a == w.at || b.value[0] > 0 || w.hashes != nil) {
		w.past = append(w.past, image{a, b.value})
	}
	if w.placed != nil {
		w.placed(a, w.g.Class.Size())
	}
}

// vacate gives a block back. Another table may get it, or it stays free.
func (w *world) vacate(a layout.Addr, r *rand.Rand) {
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
func (w *world) seek(h *tree.Tree, p index.Place) index.Node {
	w.t.Helper()
	hop := h.Find(p)
	var way []layout.Addr
	for len(way) < 2*len(w.blocks)+36 { // each node once from the cached root, and once from the one that is read
		way = append(way, hop.Addr)
		x := w.read(hop.Addr)
		next, step, err := h.Follow(p, x, len(way))
		if err != nil {
			w.t.Fatalf("%+v: %v", p, err)
		}
		if step == index.Here {
			w.longest = max(w.longest, len(way))
			return x
		}
		hop = next
	}
	w.t.Fatalf("the search for %+v does not end: %v", p, way)
	return index.Node{}
}

// read is what a search finds at an address.
func (w *world) read(a layout.Addr) index.Node {
	x := index.Node{Addr: a}
	if b := w.blocks[a]; b.state == record.Node && b.table == table {
		x.Body = b.value
	}
	return x
}

// plan has an editor plan something, and gives it what it needs.
func (w *world) plan(h *tree.Tree, plan func(have []index.Node) ([]index.Edit, []index.Need, error)) []index.Edit {
	w.t.Helper()
	var have []index.Node
	for {
		edits, needs, err := plan(have)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(needs) == 0 {
			return edits
		}
		for _, need := range needs {
			x := w.read(need.At)
			if need.At == 0 {
				x = w.seek(h, need.Place)
			}
			have = append(have, x)
		}
	}
}

// commit makes edits, and has the handle owe what follows.
func (w *world) commit(h *tree.Tree, r *rand.Rand, ed index.Editor, edits []index.Edit) {
	w.t.Helper()
	var at []layout.Addr
	for _, x := range edits {
		if x.At == 0 {
			if x.At = w.block(); x.Class != w.g.Class && (w.hashes == nil || x.Class != w.hashes.Leaf) {
				w.t.Fatalf("a node of class %d, not %d", x.Class, w.g.Class)
			}
		}
		at = append(at, x.At)
	}
	values := make([][]byte, len(edits))
	for i, x := range edits {
		if x.Free {
			continue
		}
		values[i] = ed.Append(nil, i, at)
		if at[i] == w.at {
			continue
		}
		if w.hashes != nil && values[i][0] == 0 {
			w.leaf(values[i])
			continue
		}
		n, err := blink.Decode(values[i])
		if err == nil {
			err = n.Check(w.g)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	posts := ed.Posts(nil, at)
	for i, x := range edits {
		if x.Free {
			w.vacate(at[i], r)
			continue
		}
		w.put(at[i], values[i])
		h.Published(index.Node{Addr: at[i], Body: values[i]})
	}
	for _, p := range posts {
		h.Owe(p)
	}
}

// change changes entries.
func (w *world) change(h *tree.Tree, r *rand.Rand, keys ...string) {
	w.t.Helper()
	slices.Sort(keys)
	var changes []index.Change
	for _, k := range slices.Compact(keys) {
		old, ok := w.model[k]
		c := index.Change{Op: index.Link, Key: []byte(k), Old: old.Addr}
		if ok {
			c.Op = index.Unlink
			if r.IntN(4) == 0 {
				c.Op = index.Relink
			}
		}
		if c.Op == index.Unlink {
			delete(w.model, k)
		} else {
			w.rows++
			c.Addr, c.Class = layout.MakeAddr(9, uint32(w.rows)*layout.BlockAlign),
				layout.Class(w.rows%layout.NumClasses)
			w.model[k] = index.Candidate{Addr: c.Addr, Class: c.Class}
		}
		changes = append(changes, c)
	}
	ed := w.editor(h)
	w.commit(h, r, ed, w.plan(h, func(have []index.Node) ([]index.Edit, []index.Need, error) {
		return ed.Plan(have, changes)
	}))
}

// editor is the editor of a handle.
func (w *world) editor(h *tree.Tree) index.Editor {
	if w.editors == nil {
		w.editors = map[*tree.Tree]index.Editor{}
	}
	if w.editors[h] == nil {
		w.editors[h] = h.NewEditor()
	}
	return w.editors[h]
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
func (w *world) post(h *tree.Tree, r *rand.Rand) (ok bool) {
	w.t.Helper()
	p, ok := h.Owed()
	if ok {
		w.settle(h, r, p)
	}
	return ok
}

// settle makes a change of structure, and returns how many blocks that changes.
func (w *world) settle(h *tree.Tree, r *rand.Rand, p index.Post) int {
	w.t.Helper()
	ed := w.editor(h)
	edits := w.plan(h, func(have []index.Node) ([]index.Edit, []index.Need, error) { return ed.Settle(have, p) })
	w.commit(h, r, ed, edits)
	return len(edits)
}

// merge merges the node of a level that is responsible for a key with a neighbour.
func (w *world) merge(h *tree.Tree, r *rand.Rand, level int, key string) (done bool) {
	w.t.Helper()
	return w.settle(h, r, index.Post{Op: index.Merge, Level: level, Key: []byte(key)}) > 0
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
	read := func(a layout.Addr) ([]byte, error) {
		if b := w.blocks[a]; b.state == record.Node && b.table == table {
			return b.value, nil
		}
		return nil, fmt.Errorf("block %v is no node", a)
	}
	t = blink.Verify(w.g, root, read, nil, func(layout.Addr, blink.Node) {}, func(f blink.NodeError) { w.t.Error(f) })
	if t.Entries != len(w.model) {
		w.t.Fatalf("%d entries of %d keys", t.Entries, len(w.model))
	}
	return t
}

// get looks a key up.
func (w *world) get(h *tree.Tree, key string) {
	w.t.Helper()
	leaf := w.seek(h, index.PlaceOf([]byte(key)))
	got := h.Candidates(nil, []byte(key), []index.Node{leaf})
	if want, ok := w.model[key]; len(got) > 1 || ok != (len(got) == 1) || ok && got[0] != want {
		w.t.Fatalf("key %x: %+v; want %+v, %v", key, got, want, ok)
	}
}

// scan lists what is between two bounds as a scan of package occ does, `most` entries at a time,
// and the leaves that it was read from.
func (w *world) scan(h *tree.Tree, from, to index.Bound, down bool, most int) (list []index.Candidate,
	leaves []layout.Addr) {
	w.t.Helper()
	p := index.Place{Bound: from}
	if down {
		p = index.Place{Bound: to, Below: true}
	}
	for range len(w.blocks) + len(w.model) + 1 {
		leaf := w.seek(h, p)
		if len(leaves) == 0 || leaves[len(leaves)-1] != leaf.Addr {
			leaves = append(leaves, leaf.Addr)
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
	h.Published(index.Node{Addr: old.at, Body: old.value})
}
