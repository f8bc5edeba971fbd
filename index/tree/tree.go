package tree

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"txnode/index"
	"txnode/index/blink"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// Space is what a Tree needs of memory.Space.
type Space interface {
	ViewOn(t *rdma.Thread) *memory.View
}

// Tree is the handle of an ordered index. Safe for concurrent use.
type Tree struct {
	space    Space
	geometry blink.Geometry
	table    uint16
	at       memory.Addr // of the root's block
	root     atomic.Pointer[blink.Root]

	mu    sync.RWMutex
	inner map[memory.Addr]blink.Node

	debts   sync.Mutex
	owed    []index.Post
	owing   map[memory.Addr]bool // children of owed
	detours map[memory.Addr]int  // nodes that no parent seems to lead to: how often a search has gone right to one
	n       atomic.Int32         // of owed
}

var _ index.Ordered = (*Tree)(nil)

// Limits of what a handle keeps. What does not fit is read again.
const (
	maxInner   = 1 << 16
	maxDetours = 1 << 10
)

// ErrLinks is what Insert, Replace and Remove return: the links of an ordered index change by commits.
var ErrLinks = errors.New("index: the links of an ordered index change by commits alone")

// Fit is the class of the nodes of a table whose longest key has so many bytes.
func Fit(maxKey int) (memory.Class, error) {
	g, err := blink.Geometry{MaxKey: maxKey}.Fit()
	return g.Class, err
}

// GeometryOf is the geometry of the index of an ordered table.
func GeometryOf(t *memory.Table) blink.Geometry {
	return blink.Geometry{Class: t.Nodes, MaxKey: int(t.MaxKey)}
}

// Open returns a handle on the index of an ordered table. It reads nothing.
func Open(s Space, t *memory.Table) (*Tree, error) { return New(s, GeometryOf(t), t.ID, t.Root) }

// New is Open of a tree of any geometry: for tests, which want small nodes.
func New(s Space, g blink.Geometry, table uint16, root memory.Addr) (*Tree, error) {
	if err := g.Validate(); err != nil {
		return nil, fmt.Errorf("%w: table %d: %w", index.ErrCorrupt, table, err)
	}
	return &Tree{
		space: s, geometry: g, table: table, at: root,
		inner: map[memory.Addr]blink.Node{}, owing: map[memory.Addr]bool{}, detours: map[memory.Addr]int{},
	}, nil
}

// Empty returns the values of the two blocks of an empty tree: of its only node, and of its root, if
// that node is at a.
func Empty(a memory.Addr) (node, root []byte) {
	return blink.AppendLeaf(nil, blink.Geometry{}), blink.Root{Addr: a}.Append(nil)
}

// Geometry is what all nodes have in common.
func (t *Tree) Geometry() blink.Geometry { return t.geometry }

// MaxKey is the length of the longest key in bytes.
func (t *Tree) MaxKey() int { return t.geometry.MaxKey }

// NodeClass is the class of the blocks of all nodes.
func (t *Tree) NodeClass() memory.Class { return t.geometry.Class }

// Root is where the root's block is.
func (t *Tree) Root() memory.Addr { return t.at }

func bound(b index.Bound) blink.Bound {
	switch {
	case b.End:
		return blink.End()
	case b.After:
		return blink.After(b.Key)
	}
	return blink.Before(b.Key)
}

// where says where p is, seen from a node.
func where(n blink.Node, p index.Place) blink.Place {
	if p.Below {
		return n.Below(bound(p.Bound))
	}
	return n.Above(bound(p.Bound))
}

// child is the child that leads to p.
func child(n blink.Node, p index.Place) memory.Addr {
	i := n.ChildAbove(bound(p.Bound))
	if p.Below {
		i = n.ChildBelow(bound(p.Bound))
	}
	if i < 0 {
		return 0
	}
	return n.Addr(i)
}

// Find returns the block to be read next on the way to p, as far as cached nodes lead.
func (t *Tree) Find(p index.Place) index.Hop {
	r := t.root.Load()
	if r == nil || r.Level < p.Level {
		return index.Hop{Addr: t.at}
	}
	t.mu.RLock()
	h, stale := t.find(p, *r)
	t.mu.RUnlock()
	if stale {
		return t.Astray(p)
	}
	return h
}

// find is Find from a root on. stale: a cached node cannot be on the way to p. The caller holds t.mu.
func (t *Tree) find(p index.Place, r blink.Root) (h index.Hop, stale bool) {
	a := r.Addr
	for l, hops := r.Level, 0; l > p.Level; hops++ {
		n, ok := t.inner[a]
		if !ok {
			return index.Hop{Addr: a}, false
		}
		if n.Level() != l || hops > 2*blink.MaxLevel {
			return h, true
		}
		switch where(n, p) {
		case blink.Here:
			a = child(n, p)
			l--
		case blink.GoRight:
			a = n.Right()
		default:
			return h, true
		}
		if a == 0 {
			return h, true
		}
	}
	return index.Hop{Addr: a, Near: true}, false
}

// Follow interprets the value of a block to which Find, or Follow, has led.
func (t *Tree) Follow(p index.Place, a memory.Addr, value []byte) (next index.Hop, here bool, err error) {
	if a == t.at {
		r, err := blink.DecodeRoot(value)
		if err != nil {
			return next, false, t.damaged(a, err)
		}
		t.root.Store(&r)
		if r.Level < p.Level {
			return next, true, nil
		}
		if p.Anew {
			return index.Hop{Addr: r.Addr, Near: r.Level == p.Level}, false, nil
		}
		return t.Find(p), false, nil
	}
	n, err := blink.Decode(value)
	if err != nil {
		return next, false, t.damaged(a, err)
	}
	if n.Level() < p.Level {
		return t.Astray(p), false, nil
	}
	switch where(n, p) {
	case blink.NotHere:
		return t.Astray(p), false, nil
	case blink.GoRight:
		t.detour(p, n)
		if n.Right() == 0 {
			return t.Astray(p), false, nil
		}
		if n.Level() > p.Level {
			t.learn(a, value)
		}
		return index.Hop{Addr: n.Right(), Near: n.Level() == p.Level}, false, nil
	}
	if n.Level() == p.Level {
		return next, true, nil
	}
	t.learn(a, value)
	if next = (index.Hop{Addr: child(n, p), Near: n.Level() == p.Level+1}); next.Addr == 0 {
		return next, false, t.damaged(a, blink.ErrMalformed)
	}
	if !next.Near && !p.Anew { // what is below may be cached
		t.mu.RLock()
		below, stale := t.find(p, blink.Root{Addr: next.Addr, Level: n.Level() - 1})
		t.mu.RUnlock()
		if !stale {
			next = below
		}
	}
	return next, false, nil
}

// learn caches a copy of an inner node.
func (t *Tree) learn(a memory.Addr, value []byte) {
	n, err := blink.Decode(append([]byte(nil), value...))
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.inner) >= maxInner {
		clear(t.inner)
	}
	t.inner[a] = n
}

// Astray forgets the cached nodes on the way to p, and returns where to begin.
func (t *Tree) Astray(p index.Place) index.Hop {
	if r := t.root.Swap(nil); r != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.forget(p, *r)
	}
	return index.Hop{Addr: t.at}
}

// forget drops the cached nodes on the way to p. The caller holds t.mu.
func (t *Tree) forget(p index.Place, r blink.Root) {
	t.way(p, r, func(a memory.Addr, _ blink.Node) { delete(t.inner, a) })
}

// way calls fn for the cached nodes on the way to p, which fn may drop. The caller holds t.mu.
func (t *Tree) way(p index.Place, r blink.Root, fn func(a memory.Addr, n blink.Node)) {
	a := r.Addr
	for range 2 * blink.MaxLevel {
		n, ok := t.inner[a]
		if !ok {
			return
		}
		fn(a, n)
		if where(n, p) == blink.GoRight {
			a = n.Right()
		} else {
			a = child(n, p)
		}
	}
}

// detour notes that a search has gone right from the node n: the lowest cached node above is stale. If none is cached, the
// root is. So a search that goes right many times drops all of them, and the next one is led by what is read then. If that
// happens once more for the same node, its separator was not added.
func (t *Tree) detour(p index.Place, n blink.Node) {
	if r := t.root.Load(); r != nil {
		t.mu.Lock()
		var above memory.Addr
		t.way(p, *r, func(a memory.Addr, m blink.Node) {
			if m.Level() > n.Level() {
				above = a
			}
		})
		delete(t.inner, above)
		t.mu.Unlock()
		if above == 0 {
			t.root.CompareAndSwap(r, nil)
		}
	}
	high, bounded := n.High()
	if !bounded || n.Right() == 0 {
		return
	}
	t.debts.Lock()
	defer t.debts.Unlock()
	if len(t.detours) >= maxDetours {
		clear(t.detours)
	}
	t.detours[n.Right()]++
	if t.detours[n.Right()] < 2 {
		return
	}
	delete(t.detours, n.Right())
	t.owe(index.Post{Level: n.Level() + 1, Key: append([]byte(nil), high...), Child: n.Right()})
}

// Owe notes a separator that is to be added. The key is the tree's from now on.
func (t *Tree) Owe(p index.Post) {
	t.debts.Lock()
	defer t.debts.Unlock()
	t.owe(p)
}

func (t *Tree) owe(p index.Post) {
	if t.owing[p.Child] {
		return
	}
	t.owing[p.Child] = true
	t.owed = append(t.owed, p)
	t.n.Store(int32(len(t.owed)))
}

// Owes reports whether there is a separator that is to be added.
func (t *Tree) Owes() bool { return t.n.Load() > 0 }

// Owed takes a separator that is to be added.
func (t *Tree) Owed() (p index.Post, ok bool) {
	if t.n.Load() == 0 {
		return p, false
	}
	t.debts.Lock()
	defer t.debts.Unlock()
	if len(t.owed) == 0 {
		return p, false
	}
	p = t.owed[0]
	t.owed = t.owed[1:]
	delete(t.owing, p.Child)
	t.n.Store(int32(len(t.owed)))
	return p, true
}

// Published caches an inner node, or the root, that a commit of this process has published.
func (t *Tree) Published(a memory.Addr, value []byte) {
	if a == t.at {
		if r, err := blink.DecodeRoot(value); err == nil {
			t.root.Store(&r)
		}
		return
	}
	if n, err := blink.Decode(value); err == nil && n.Level() > 0 {
		t.learn(a, value)
	}
}

// Due reports whether a node begins with the separator, and is of the level below.
func (t *Tree) Due(p index.Post, child []byte) bool {
	n, err := blink.Decode(child)
	return err == nil && n.Level() == p.Level-1 && bytes.Equal(n.Low(), p.Key)
}

// Grow returns the values of the root's block and of a new first node of a level above all others.
func (t *Tree) Grow(root []byte, p index.Post, a memory.Addr) (newRoot, node []byte, err error) {
	r, err := blink.DecodeRoot(root)
	if err != nil {
		return nil, nil, t.damaged(t.at, err)
	}
	if p.Level != r.Level+1 || p.Level > blink.MaxLevel {
		return nil, nil, t.damaged(t.at, fmt.Errorf("%w: a tree of level %d gets a separator of level %d", blink.ErrStructure, r.Level, p.Level))
	}
	node = blink.AppendRoot(nil, p.Level, r.Addr, p.Key, p.Child)
	return blink.Root{Addr: a, Level: p.Level}.Append(nil), node, nil
}

// Low is where the range of a node begins.
func (t *Tree) Low(node []byte) []byte {
	n, err := blink.Decode(node)
	if err != nil {
		return nil
	}
	return n.Low()
}

// High is where the range of a node ends.
func (t *Tree) High(node []byte) (key []byte, bounded bool) {
	n, err := blink.Decode(node)
	if err != nil {
		return nil, false
	}
	return n.High()
}

// Empty reports whether a leaf links nothing.
func (t *Tree) Empty(node []byte) bool {
	n, err := blink.Decode(node)
	return err == nil && n.Level() == 0 && n.Count() == 0
}

// Entry returns the block that a leaf links for a key.
func (t *Tree) Entry(node, key []byte) (c index.Candidate, found bool) {
	n := blink.Accepted(node)
	i, found := n.Search(key)
	if !found {
		return c, false
	}
	return index.Candidate{Addr: n.Addr(i), Class: n.Class(i)}, true
}

// Entries appends the blocks that a leaf links between two bounds.
func (t *Tree) Entries(dst []index.Candidate, node []byte, from, to index.Bound, down bool, most int) (blocks []index.Candidate, rest index.Place, more bool) {
	n := blink.Accepted(node)
	i, j := n.Rank(bound(from)), n.Rank(bound(to))
	if j-i > most {
		if down {
			i = j - most
			rest = index.Place{Bound: index.Bound{Key: n.AppendKey(nil, i)}, Below: true}
		} else {
			j = i + most
			rest = index.Place{Bound: index.Bound{Key: n.AppendKey(nil, j-1), After: true}}
		}
		more = true
	}
	if down {
		for k := j - 1; k >= i; k-- {
			dst = append(dst, index.Candidate{Addr: n.Addr(k), Class: n.Class(k)})
		}
		if more {
			return dst, rest, true
		}
		if n.Above(bound(from)) != blink.NotHere || len(n.Low()) == 0 {
			return dst, rest, false
		}
		return dst, index.Place{Bound: index.Bound{Key: append([]byte(nil), n.Low()...)}, Below: true}, true
	}
	for k := i; k < j; k++ {
		dst = append(dst, index.Candidate{Addr: n.Addr(k), Class: n.Class(k)})
	}
	if more {
		return dst, rest, true
	}
	high, bounded := n.High()
	if !bounded || n.Below(bound(to)) != blink.GoRight {
		return dst, rest, false
	}
	return dst, index.Place{Bound: index.Bound{Key: append([]byte(nil), high...)}}, true
}

// Ahead appends leaves that have keys between two bounds, as far as one cached parent knows them.
func (t *Tree) Ahead(dst []memory.Addr, from, to index.Bound, down bool, n int) []memory.Addr {
	r := t.root.Load()
	if r == nil || r.Level == 0 || n <= 0 {
		return dst
	}
	p := index.Place{Bound: from, Level: 1}
	if down {
		p = index.Place{Bound: to, Level: 1, Below: true}
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	h, stale := t.find(p, *r)
	parent, ok := t.inner[h.Addr]
	if stale || !ok || parent.Level() != 1 || where(parent, p) != blink.Here {
		return dst
	}
	i, j := parent.ChildAbove(bound(from)), parent.ChildBelow(bound(to))
	if parent.Above(bound(from)) == blink.NotHere {
		i = 0
	}
	if parent.Below(bound(to)) == blink.GoRight {
		j = parent.Count() - 1
	}
	for ; i <= j && n > 0; n-- {
		k := i
		if down {
			k = j
			j--
		} else {
			i++
		}
		dst = append(dst, parent.Addr(k))
	}
	return dst
}

func (t *Tree) damaged(a memory.Addr, err error) error {
	return fmt.Errorf("%w: table %d: node %v: %w", index.ErrCorrupt, t.table, a, err)
}

// Insert returns ErrLinks.
func (t *Tree) Insert(*rdma.Coro, *index.Query, memory.Addr, memory.Class) error { return ErrLinks }

// Replace returns ErrLinks.
func (t *Tree) Replace(*rdma.Coro, *index.Query, memory.Addr, memory.Addr, memory.Class) error {
	return ErrLinks
}

// Remove returns index.ErrChanged if the query has not found the block linked, and ErrLinks if it has.
func (t *Tree) Remove(_ *rdma.Coro, q *index.Query, a memory.Addr) error {
	for _, x := range q.Candidates {
		if x.Addr == a {
			return ErrLinks
		}
	}
	return index.ErrChanged
}

// Value returns the value of the block of a node, of this tree or its root, that was read. ok is false if it is
// something else, or being written.
func (t *Tree) Value(a memory.Addr, img record.Image) (value []byte, ok bool) {
	if _, err := img.Check(a); err != nil || img.Meta().State() != record.Node || img.Meta().Table() != t.table {
		return nil, false
	}
	return img.Value(), true
}
