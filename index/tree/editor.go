package tree

import (
	"bytes"
	"errors"

	"txnode/index"
	"txnode/index/blink"
	"txnode/memory"
)

// editor makes new values of nodes.
type editor struct {
	t       *Tree
	builder blink.Builder
	changes []blink.Change
	level   int
}

// NewEditor returns what makes new values of nodes, for one coroutine.
func (t *Tree) NewEditor() index.Editor { return &editor{t: t} }

var ops = [...]blink.Op{index.Link: blink.Insert, index.Relink: blink.Replace, index.Unlink: blink.Delete}

// Edit plans the changes of a leaf.
func (e *editor) Edit(node []byte, changes []index.Change) (int, error) {
	n, err := blink.Decode(node)
	if err != nil {
		return 0, err
	}
	e.changes = e.changes[:0]
	for _, c := range changes {
		e.changes = append(e.changes, blink.Change{Op: ops[c.Op], Key: c.Key, Addr: c.Addr, Class: c.Class})
	}
	e.level = n.Level()
	return e.builder.Apply(e.t.geometry, n, e.changes)
}

// EditPost plans a separator that is added to an inner node.
func (e *editor) EditPost(node []byte, p index.Post) (int, error) {
	n, err := blink.Decode(node)
	if err != nil {
		return 0, err
	}
	if i, found := n.Search(p.Key); found && n.Addr(i) == p.Child {
		return 0, nil
	}
	e.level = n.Level()
	e.changes = append(e.changes[:0], blink.Change{Op: blink.Put, Key: p.Key, Addr: p.Child})
	return e.builder.Apply(e.t.geometry, n, e.changes)
}

// EditMerge plans the one value of two neighbours.
func (e *editor) EditMerge(left, right []byte, a memory.Addr) (bool, error) {
	l, err := blink.Decode(left)
	if err != nil {
		return false, err
	}
	r, err := blink.Decode(right)
	if err != nil {
		return false, err
	}
	e.level = l.Level()
	err = e.builder.Merge(e.t.geometry, l, r, a)
	if errors.Is(err, blink.ErrFull) || errors.Is(err, blink.ErrNeighbours) {
		return false, nil
	}
	return err == nil, err
}

// EditUnpost plans the removal of a separator.
func (e *editor) EditUnpost(node []byte, p index.Post) (int, error) {
	n, err := blink.Decode(node)
	if err != nil {
		return 0, err
	}
	i, found := n.Search(p.Key)
	switch {
	case !found || n.Addr(i) != p.Child:
		return 0, nil
	case i == 0:
		return 0, index.ErrFirst
	}
	e.level = n.Level()
	e.changes = append(e.changes[:0], blink.Change{Op: blink.Delete, Key: p.Key})
	return e.builder.Apply(e.t.geometry, n, e.changes)
}

// Size is the length of value i in bytes.
func (e *editor) Size(i int) int { return e.builder.Size(i) }

// Append appends value i to dst.
func (e *editor) Append(dst []byte, i int, next memory.Addr) []byte {
	return e.builder.AppendImage(dst, i, next)
}

// Post is what is owed for value i.
func (e *editor) Post(i int, a memory.Addr) index.Post {
	return index.Post{Level: e.level + 1, Key: bytes.Clone(e.builder.Low(i)), Child: a}
}
