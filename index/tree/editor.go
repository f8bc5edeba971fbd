package tree

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"

	"txnode/index"
	"txnode/index/blink"
	"txnode/index/bucket"
	"txnode/memory/layout"
)

// editor plans changes of nodes.
type editor struct {
	t        *Tree
	builders []*blink.Builder
	used     int // of the builders
	changes  []blink.Change
	leaves   []*bucket.Builder
	leafs    int // of these: used
	links    []bucket.Change
	edits    []index.Edit
	images   []image // of the edits
	needs    []index.Need
	owed     []index.Post
	root     blink.Root // as it was, of a tree that grows by post
	post     index.Post
}

// image says where the value of an edit comes from.
type image struct {
	b     *blink.Builder // nil: of the root's block, or of the new node that it leads to
	leaf  *bucket.Builder
	i     int
	level int
}

// NewEditor returns what plans changes of nodes, for one coroutine.
func (t *Tree) NewEditor() index.Editor { return &editor{t: t} }

func (e *editor) reset() {
	e.leafs, e.used, e.changes, e.edits, e.images, e.needs, e.owed = 0, 0, e.changes[:0], e.edits[:0], e.images[:0],
		e.needs[:0], e.owed[:0]
}

var ops = [...]blink.Op{index.Link: blink.Insert, index.Relink: blink.Replace, index.Unlink: blink.Delete}

// Plan plans changes of entries. It needs the leaves of all keys.
func (e *editor) Plan(have []index.Node, changes []index.Change) ([]index.Edit, []index.Need, error) {
	e.reset()
	for _, c := range changes {
		e.changes = append(e.changes, blink.Change{Op: ops[c.Op], Key: c.Key, Addr: c.Addr, Class: c.Class})
	}
	planned := 0
	for _, x := range have {
		n, err := e.decode(x)
		if err != nil {
			return nil, nil, err
		}
		if n.level() > 0 {
			continue // a stale hint has led there
		}
		from := sort.Search(len(changes), func(i int) bool {
			return n.where(index.PlaceOf(changes[i].Key)) != blink.NotHere
		})
		to := from
		for ; to < len(changes) && n.where(index.PlaceOf(changes[to].Key)) == blink.Here; to++ {
			if n.bucket {
				continue
			}
			if err := links(n.Node, changes[to]); err != nil {
				return nil, nil, &index.NodeError{Addr: x.Addr, Err: err}
			}
		}
		if from == to {
			continue
		}
		planned += to - from
		var empty bool
		if n.bucket {
			empty, err = e.link(x.Addr, n.leaf, changes[from:to])
		} else if err = e.apply(x.Addr, n.Node, e.changes[from:to]); err == nil {
			b := e.images[len(e.images)-1].b
			empty = b.Images() == 1 && b.Count(0) == 0
		}
		if err != nil {
			return nil, nil, err
		}
		if low := n.low(); empty && (len(low) > 0 || n.right() != 0) {
			e.owed = append(e.owed, index.Post{Op: index.Merge, Key: low, Child: x.Addr})
		}
	}
	if planned == len(changes) {
		return e.edits, nil, nil
	}
	i := slices.IndexFunc(changes, func(c index.Change) bool { return !e.covered(have, c.Key) })
	if i < 0 {
		return nil, nil, &index.NodeError{
			Addr: e.edits[0].At,
			Err:  fmt.Errorf("%w: another leaf is responsible for some of its keys, too", blink.ErrStructure),
		}
	}
	e.needs = append(e.needs, index.Need{Place: index.PlaceOf(changes[i].Key)}) // others may be in the same leaf
	return nil, e.needs, nil
}

// covered reports whether one of the nodes is responsible for a key.
func (e *editor) covered(have []index.Node, key []byte) bool {
	for _, x := range have {
		if n, err := e.t.decode(x.Body); err == nil && n.level() == 0 && n.where(index.PlaceOf(key)) == blink.Here {
			return true
		}
	}
	return false
}

// link plans changes of a leaf of hashes. empty: it links nothing then.
func (e *editor) link(a layout.Addr, l bucket.Leaf, changes []index.Change) (empty bool, err error) {
	e.links = e.links[:0]
	for _, c := range changes {
		e.links = append(e.links, bucket.Change{
			Op: linkOps[c.Op], Hash: bucket.HashAt(c.Key), Old: c.Old, Addr: c.Addr, Class: c.Class,
		})
	}
	b := e.leafBuilder()
	k, err := b.Apply(e.t.leafRoom, l, e.links)
	if errors.Is(err, bucket.ErrFull) {
		return false, fmt.Errorf("%w: %w", index.ErrFull, err)
	}
	if err != nil {
		return false, &index.NodeError{Addr: a, Err: err}
	}
	e.edits = append(e.edits, index.Edit{At: a})
	e.images = append(e.images, image{leaf: b})
	for i := 1; i < k; i++ {
		e.edits = append(e.edits, index.Edit{Class: e.t.leafClass})
		e.images = append(e.images, image{leaf: b, i: i})
	}
	return k == 1 && b.Size(0) == 0, nil
}

var linkOps = [...]bucket.Op{index.Link: bucket.Link, index.Relink: bucket.Relink, index.Unlink: bucket.Unlink}

func (e *editor) leafBuilder() *bucket.Builder {
	if e.leafs == len(e.leaves) {
		e.leaves = append(e.leaves, &bucket.Builder{})
	}
	e.leafs++
	return e.leaves[e.leafs-1]
}

// links returns an error if a leaf does not lead to the block that a change says it leads to.
func links(n blink.Node, c index.Change) error {
	if c.Op == index.Link {
		return nil
	}
	if i, found := n.Search(c.Key); found && n.Addr(i) != c.Old {
		return fmt.Errorf("%w: it leads to %v for the key %.64x, whose record is at %v",
			blink.ErrStructure, n.Addr(i), c.Key, c.Old)
	}
	return nil
}

// Settle plans a change of structure.
func (e *editor) Settle(have []index.Node, p index.Post) ([]index.Edit, []index.Need, error) {
	e.reset()
	var err error
	switch p.Op {
	case index.Separator:
		err = e.separator(have, p)
	case index.Merge:
		err = e.merge(have, p)
	}
	if err != nil {
		return nil, nil, err
	}
	return e.edits, e.needs, nil
}

// separator adds a separator. The child proves that it is due, still: it may have been merged away,
// and its block hold another node. So the commit depends on the child's version.
func (e *editor) separator(have []index.Node, p index.Post) error {
	if len(have) == 0 {
		e.needs = append(e.needs, index.Need{At: p.Child})
		return nil
	}
	if !e.due(have[0], p) {
		return nil
	}
	if len(have) == 1 {
		e.needs = append(e.needs, index.Need{Place: index.Place{Bound: index.Bound{Key: p.Key}, Level: p.Level}})
		return nil
	}
	above := have[1]
	if above.Addr == e.t.at {
		return e.grow(above, p)
	}
	n, err := e.decode(above)
	if err != nil {
		return err
	}
	if i, found := n.Search(p.Key); found && n.Addr(i) == p.Child {
		return nil
	}
	e.changes = append(e.changes, blink.Change{Op: blink.Put, Key: p.Key, Addr: p.Child})
	return e.apply(above.Addr, n.Node, e.changes)
}

// due reports whether a node begins with the separator, and is of the level below.
func (e *editor) due(child index.Node, p index.Post) bool {
	n, err := e.t.decode(child.Body)
	return err == nil && n.level() == p.Level-1 && bytes.Equal(n.low(), p.Key)
}

// grow adds a level above all others, whose first node has two children.
func (e *editor) grow(root index.Node, p index.Post) error {
	r, err := blink.DecodeRoot(root.Body)
	if err == nil && (p.Level != r.Level+1 || p.Level > blink.MaxLevel) {
		err = fmt.Errorf("%w: a tree of level %d gets a separator of level %d", blink.ErrStructure, r.Level, p.Level)
	}
	if err != nil {
		return &index.NodeError{Addr: root.Addr, Err: err}
	}
	e.root, e.post = r, p
	e.edits = append(e.edits, index.Edit{At: root.Addr}, index.Edit{Class: e.t.geometry.Class})
	e.images = append(e.images, image{i: 0}, image{i: 1})
	return nil
}

// merge merges a node into its left neighbour, or, if it is the first one below its parent, its
// right neighbour into it. A node that is alone below its parent has no neighbour there: the parent
// is merged with one of its own before.
func (e *editor) merge(have []index.Node, p index.Post) error {
	need := func(key []byte, below bool, level int) {
		e.needs = append(e.needs,
			index.Need{Place: index.Place{Bound: index.Bound{Key: key}, Below: below, Level: level}})
	}
	if len(have) == 0 {
		need(p.Key, false, p.Level)
		return nil
	}
	if have[0].Addr == e.t.at {
		return nil // the tree does not have that level
	}
	n, err := e.decode(have[0])
	if err != nil {
		return err
	}
	low := n.low()
	if len(have) == 1 {
		need(low, false, p.Level+1)
		return nil
	}
	if len(low) > 0 && (!n.bucket || n.halfIsLeft()) {
		first, err := e.unpost(have[1], low, have[0].Addr)
		if err != nil {
			return err
		}
		if !first {
			if len(have) == 2 {
				e.reset()
				need(low, true, p.Level)
				return nil
			}
			return e.join(have[2], have[0], p)
		}
	}
	high, bounded := n.high()
	if n.bucket && n.halfIsLeft() {
		bounded = false
	}
	if !bounded && have[1].Addr == e.t.at {
		return nil // it is the only one of the highest level
	}
	if bounded {
		if len(have) == 2 {
			need(high, false, p.Level)
			need(high, false, p.Level+1)
			return nil
		}
		first, err := e.unpost(have[3], high, have[2].Addr)
		if err != nil {
			return err
		}
		if !first {
			return e.join(have[0], have[2], p)
		}
	}
	e.owed = append(e.owed, index.Post{
		Op: index.Merge, Level: p.Level + 1, Key: low, Child: have[1].Addr, Below: p.Below + 1,
	})
	return nil
}

// unpost removes the separator of a node from the node above, if that has it. first: it is the
// first one there, and stays.
func (e *editor) unpost(above index.Node, key []byte, child layout.Addr) (first bool, err error) {
	if above.Addr == e.t.at {
		return false, nil // the tree does not have that level
	}
	n, err := e.decode(above)
	if err != nil {
		return false, err
	}
	i, found := n.Search(key)
	switch {
	case !found || n.Addr(i) != child:
		return false, nil
	case i == 0:
		return true, nil
	}
	e.changes = append(e.changes, blink.Change{Op: blink.Delete, Key: key})
	return false, e.apply(above.Addr, n.Node, e.changes)
}

// join merges two nodes into the left one. If they do not fit, or are no neighbours,
// nothing is done at all.
func (e *editor) join(left, right index.Node, p index.Post) error {
	l, err := e.decode(left)
	if err != nil {
		return err
	}
	r, err := e.decode(right)
	if err != nil {
		return err
	}
	var x image
	fits := true
	switch {
	case l.bucket != r.bucket:
		fits = false
	case l.bucket:
		x.leaf = e.leafBuilder()
		fits, err = x.leaf.Merge(e.t.leafRoom, l.leaf, r.leaf, right.Addr)
	default:
		x.b = e.builder()
		err = x.b.Merge(e.t.geometry, l.Node, r.Node, right.Addr)
	}
	if !fits || errors.Is(err, blink.ErrFull) || errors.Is(err, blink.ErrNeighbours) ||
		errors.Is(err, bucket.ErrBuddies) {
		e.reset()
		return nil
	}
	if err != nil {
		return &index.NodeError{Addr: left.Addr, Err: err}
	}
	e.edits = append(e.edits, index.Edit{At: left.Addr}, index.Edit{At: right.Addr, Free: true})
	e.images = append(e.images, x, image{})
	if x.leaf != nil && x.leaf.Size(0) == 0 && x.leaf.Depth(0) > 0 {
		e.owed = append(e.owed, index.Post{Op: index.Merge, Key: l.low(), Child: left.Addr})
	}
	if p.Below > 0 {
		e.owed = append(e.owed, index.Post{
			Op: index.Merge, Level: p.Level - 1, Key: p.Key, Child: left.Addr, Below: p.Below - 1,
		})
	}
	return nil
}

func (e *editor) builder() *blink.Builder {
	if e.used == len(e.builders) {
		e.builders = append(e.builders, &blink.Builder{})
	}
	e.used++
	return e.builders[e.used-1]
}

// apply plans changes of one node.
func (e *editor) apply(a layout.Addr, n blink.Node, changes []blink.Change) error {
	b := e.builder()
	k, err := b.Apply(e.t.geometry, n, changes)
	if err != nil {
		return &index.NodeError{Addr: a, Err: err}
	}
	for i := range k {
		x := index.Edit{At: a}
		if i > 0 {
			x = index.Edit{Class: e.t.geometry.Class}
		}
		e.edits = append(e.edits, x)
		e.images = append(e.images, image{b: b, i: i, level: n.Level()})
	}
	return nil
}

func (e *editor) decode(x index.Node) (node, error) {
	n, err := e.t.decode(x.Body)
	if err != nil {
		return n, &index.NodeError{Addr: x.Addr, Err: err}
	}
	return n, nil
}

// Append appends the value of edit i.
func (e *editor) Append(dst []byte, i int, at []layout.Addr) []byte {
	x := e.images[i]
	switch {
	case x.leaf != nil:
		var next layout.Addr
		if x.i+1 < x.leaf.Images() {
			next = at[i+1]
		}
		return x.leaf.AppendBody(x.leaf.AppendHead(dst, x.i, next), x.i)
	case x.b == nil && x.i == 0:
		return blink.Root{Addr: at[i+1], Level: e.post.Level}.Append(dst)
	case x.b == nil:
		return blink.AppendRoot(dst, e.post.Level, e.root.Addr, e.post.Key, e.post.Child)
	}
	var next layout.Addr
	if x.i+1 < x.b.Images() {
		next = at[i+1]
	}
	return x.b.AppendImage(dst, x.i, next)
}

// Posts appends the separators of new nodes, and merges.
func (e *editor) Posts(dst []index.Post, at []layout.Addr) []index.Post {
	for i, x := range e.images {
		switch {
		case x.i == 0:
		case x.leaf != nil:
			dst = append(dst, index.Post{Level: 1, Key: x.leaf.Low(x.i).AppendSeparator(nil), Child: at[i]})
		case x.b != nil:
			dst = append(dst, index.Post{Level: x.level + 1, Key: bytes.Clone(x.b.Low(x.i)), Child: at[i]})
		}
	}
	for _, p := range e.owed {
		p.Key = bytes.Clone(p.Key)
		dst = append(dst, p)
	}
	return dst
}
