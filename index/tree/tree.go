package tree

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"

	"txnode/index"
	"txnode/index/blink"
	"txnode/index/bucket"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// Tree is the handle of an ordered index. Safe for concurrent use.
type Tree struct {
	space    index.Space
	geometry blink.Geometry
	table    uint16
	at       layout.Addr // of the root's block
	root     atomic.Pointer[blink.Root]

	mu    sync.RWMutex
	inner map[layout.Addr]blink.Node

	// Of an index of hashes: see NewHashed.
	hashed    bool
	leafClass layout.Class
	leafRoom  int // bytes of the entries of a leaf
	directory *bucket.Directory

	debts   sync.Mutex
	owed    []index.Post
	owing   map[debt]bool       // of owed
	detours map[layout.Addr]int // nodes that no parent seems to lead to: how often a search has gone right to one
	n       atomic.Int32        // of owed
}

// debt is what tells one post from another.
type debt struct {
	op    index.PostOp
	child layout.Addr
}

var (
	_ index.Ranged = (*Tree)(nil)
	_ index.Finder = (*Tree)(nil)
)

// Limits of what a handle keeps. What does not fit is read again.
const (
	maxInner   = 1 << 16
	maxDetours = 1 << 10
)

// Fit is the class of the nodes of a table whose longest key has so many bytes.
func Fit(maxKey int) (layout.Class, error) {
	g, err := blink.Geometry{MaxKey: maxKey}.Fit()
	return g.Class, err
}

// GeometryOf is the geometry of the nodes of a table's index: of one of hashes, that of inner nodes.
func GeometryOf(t *layout.Table) blink.Geometry {
	if !t.Ordered() {
		return hashGeometry
	}
	return blink.Geometry{Class: t.Nodes, MaxKey: int(t.MaxKey)}
}

// Options are what a process chooses for a handle.
type Options struct {
	MaxEntries int // of a node, as of all processes: for tests. 0: as many as have room
	Leaves     int // of an index of hashes: of how many the handle remembers the address, about
}

// Open returns a handle on the index of a table whose index has nodes. It reads nothing.
func Open(s index.Space, t *layout.Table, o Options) (*Tree, error) {
	if t.Ordered() {
		g := GeometryOf(t)
		g.MaxEntries = o.MaxEntries
		return New(s, g, t.ID, t.Root)
	}
	return NewHashed(s, HashesOf(t.Nodes, o), t.ID, t.Root)
}

// New is Open of a tree of any geometry: for tests, which want small nodes.
func New(s index.Space, g blink.Geometry, table uint16, root layout.Addr) (*Tree, error) {
	if err := g.Validate(); err != nil {
		return nil, fmt.Errorf("%w: table %d: %w", index.ErrCorrupt, table, err)
	}
	return &Tree{
		space: s, geometry: g, table: table, at: root,
		inner: map[layout.Addr]blink.Node{}, owing: map[debt]bool{}, detours: map[layout.Addr]int{},
	}, nil
}

// Empty returns the values of the two blocks of an empty tree: of its only node, and of its root,
// if that node is at a.
func Empty(a layout.Addr) (node, root []byte) {
	return blink.AppendLeaf(nil), blink.Root{Addr: a}.Append(nil)
}

// Geometry is what all nodes have in common.
func (t *Tree) Geometry() blink.Geometry { return t.geometry }

// MaxKey is the length of the longest key of a record in bytes.
func (t *Tree) MaxKey() int {
	if t.hashed {
		return record.MaxKey
	}
	return t.geometry.MaxKey
}

// NodeClass is the largest class of the blocks of nodes.
func (t *Tree) NodeClass() layout.Class { return max(t.geometry.Class, t.leafClass) }

// Root is where the root's block is.
func (t *Tree) Root() layout.Addr { return t.at }

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
func child(n blink.Node, p index.Place) layout.Addr {
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
	p.Bound = t.bound(p.Bound)
	if h := position(p.Bound); t.hashed && p.Level == 0 && !p.Below && h < 1<<bucket.MaxDepth {
		if a := t.directory.Find(h); a != 0 {
			return index.Hop{Addr: a, Near: true}
		}
	}
	return t.findInner(p)
}

// findInner is Find without the directory of leaves.
func (t *Tree) findInner(p index.Place) index.Hop {
	r := t.root.Load()
	if r == nil || r.Level < p.Level {
		return index.Hop{Addr: t.at}
	}
	t.mu.RLock()
	h, stale := t.find(p, *r)
	t.mu.RUnlock()
	if stale {
		return t.astray(p, 0)
	}
	return h
}

// find is Find from a root on. stale: a cached node cannot be on the way to p. The
// caller holds t.mu.
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

// anewAfter is how many hops a search takes with the help of cached nodes. Then they are not asked
// below what was read: an old copy may lead to a block that holds a node of a higher level by now,
// and this one to the old copy again.
const anewAfter = 16

// Follow interprets a node to which Find, or Follow, has led.
func (t *Tree) Follow(p index.Place, x index.Node, hops int) (index.Hop, index.Step, error) {
	p.Bound = t.bound(p.Bound)
	anew := hops > anewAfter
	switch {
	case x.Body == nil:
		return t.astray(p, x.Addr), index.Astray, nil
	case x.Addr == t.at:
		r, err := blink.DecodeRoot(x.Body)
		if err != nil {
			return index.Hop{}, index.Next, t.damaged(x.Addr, err)
		}
		t.root.Store(&r)
		if r.Level < p.Level {
			return index.Hop{}, index.Here, nil
		}
		if anew {
			return index.Hop{Addr: r.Addr, Near: r.Level == p.Level}, index.Next, nil
		}
		if h := t.findInner(p); h.Addr != t.at {
			return h, index.Next, nil
		}
		return index.Hop{Addr: t.at}, index.Astray, nil
	}
	n, err := t.decode(x.Body)
	if err != nil {
		return index.Hop{}, index.Next, t.damaged(x.Addr, err)
	}
	if n.level() < p.Level {
		return t.astray(p, x.Addr), index.Astray, nil
	}
	switch n.where(p) {
	case blink.NotHere:
		return t.astray(p, x.Addr), index.Astray, nil
	case blink.GoRight:
		t.detour(p, &n)
		if n.right() == 0 {
			return t.astray(p, x.Addr), index.Astray, nil
		}
		if n.level() > p.Level {
			t.learn(x)
		}
		return index.Hop{Addr: n.right(), Near: n.level() == p.Level}, index.Next, nil
	}
	if n.level() == p.Level {
		if n.bucket {
			t.directory.Learn(n.leaf.Low(), n.leaf.Depth(), x.Addr)
		}
		return index.Hop{}, index.Here, nil
	}
	t.learn(x)
	next := index.Hop{Addr: child(n.Node, p), Near: n.level() == p.Level+1}
	if next.Addr == 0 {
		return next, index.Next, t.damaged(x.Addr, blink.ErrMalformed)
	}
	if !next.Near && !anew { // what is below may be cached
		t.mu.RLock()
		below, stale := t.find(p, blink.Root{Addr: next.Addr, Level: n.level() - 1})
		t.mu.RUnlock()
		if !stale {
			next = below
		}
	}
	return next, index.Next, nil
}

// learn caches a copy of an inner node. Of leaves of hashes the directory knows more than
// the nodes above them.
func (t *Tree) learn(x index.Node) {
	n, err := blink.Decode(bytes.Clone(x.Body))
	if err != nil {
		return
	}
	if t.hashed && n.Level() == 1 {
		t.hint(n)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.inner) >= maxInner {
		clear(t.inner)
	}
	t.inner[x.Addr] = n
}

// astray forgets the cached nodes on the way to p, which has led to a, and returns where to begin.
func (t *Tree) astray(p index.Place, a layout.Addr) index.Hop {
	if h := position(p.Bound); t.hashed && h < 1<<bucket.MaxDepth {
		t.directory.Forget(h, a)
	}
	if r := t.root.Swap(nil); r != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.forget(p, *r)
	}
	return index.Hop{Addr: t.at}
}

// forget drops the cached nodes on the way to p. The caller holds t.mu.
func (t *Tree) forget(p index.Place, r blink.Root) {
	t.way(p, r, func(a layout.Addr, _ blink.Node) { delete(t.inner, a) })
}

// way calls fn for the cached nodes on the way to p, which fn may drop. The caller holds t.mu.
func (t *Tree) way(p index.Place, r blink.Root, fn func(a layout.Addr, n blink.Node)) {
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

// detour notes that a search has gone right from the node n: the lowest cached node above is
// stale. If none is cached, the root is. So a search that goes right many times drops all of them,
// and the next one is led by what is read then. If that happens once more for the same node, its
// separator was not added.
func (t *Tree) detour(p index.Place, n *node) {
	if r := t.root.Load(); r != nil {
		t.mu.Lock()
		var above layout.Addr
		t.way(p, *r, func(a layout.Addr, m blink.Node) {
			if m.Level() > n.level() {
				above = a
			}
		})
		delete(t.inner, above)
		t.mu.Unlock()
		if above == 0 {
			t.root.CompareAndSwap(r, nil)
		}
	}
	right := n.right()
	if right == 0 {
		return
	}
	t.debts.Lock()
	defer t.debts.Unlock()
	if len(t.detours) >= maxDetours {
		clear(t.detours)
	}
	t.detours[right]++
	if t.detours[right] < 2 {
		return
	}
	delete(t.detours, right)
	if high, bounded := n.high(); bounded {
		t.owe(index.Post{Level: n.level() + 1, Key: bytes.Clone(high), Child: right})
	}
}

// maxMerges is how often a merge is tried that meets locks. A node that stays empty does no harm.
const maxMerges = 4

// Owe notes what is to be done. The key is the tree's from now on.
func (t *Tree) Owe(p index.Post) {
	t.debts.Lock()
	defer t.debts.Unlock()
	if p.Op != index.Merge || p.Tries < maxMerges {
		t.owe(p)
	}
}

func (t *Tree) owe(p index.Post) {
	d := debt{p.Op, p.Child}
	if t.owing[d] {
		return
	}
	t.owing[d] = true
	t.owed = append(t.owed, p)
	t.n.Store(int32(len(t.owed)))
}

// Owes reports whether there is something to be done.
func (t *Tree) Owes() bool { return t.n.Load() > 0 }

// Owed takes what is to be done next.
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
	delete(t.owing, debt{p.Op, p.Child})
	t.n.Store(int32(len(t.owed)))
	return p, true
}

// Published caches an inner node, or the root, that a commit of this process has published.
func (t *Tree) Published(x index.Node) {
	if x.Addr == t.at {
		if r, err := blink.DecodeRoot(x.Body); err == nil {
			t.root.Store(&r)
		}
		return
	}
	if !blink.IsLeaf(x.Body) {
		t.learn(x)
	} else if t.hashed {
		l := bucketOf(x.Body)
		t.directory.Learn(l.Low(), l.Depth(), x.Addr)
	}
}

// Candidates appends the block that the leaf links for a key.
func (t *Tree) Candidates(dst []index.Candidate, key []byte, evidence []index.Node) []index.Candidate {
	if t.hashed {
		l, h := bucketOf(evidence[0].Body), bucket.HashAt(key)
		for i := l.Rank(h); i < l.Count() && l.Block(i).Hash == h; i++ {
			dst = append(dst, index.Candidate{Addr: l.Block(i).Addr, Class: l.Block(i).Class})
		}
		return dst
	}
	n := blink.Accepted(evidence[0].Body)
	if i, found := n.Search(key); found {
		dst = append(dst, index.Candidate{Addr: n.Addr(i), Class: n.Class(i)})
	}
	return dst
}

// Entries appends the blocks that a leaf links between two bounds.
func (t *Tree) Entries(dst []index.Candidate, x index.Node, from, to index.Bound, down bool,
	most int) (blocks []index.Candidate, rest index.Place, more bool) {
	if t.hashed {
		return bucketEntries(dst, bucketOf(x.Body), from, to, down, most)
	}
	n := blink.Accepted(x.Body)
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
func (t *Tree) Ahead(dst []layout.Addr, from, to index.Bound, down bool, n int) []layout.Addr {
	r := t.root.Load()
	if r == nil || r.Level == 0 || n <= 0 {
		return dst
	}
	from, to = t.bound(from), t.bound(to)
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

func (t *Tree) damaged(a layout.Addr, err error) error {
	return fmt.Errorf("%w: table %d: node %v: %w", index.ErrCorrupt, t.table, a, err)
}
