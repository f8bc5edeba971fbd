package tree

import (
	"bytes"
	"math"

	"txnode/index"
	"txnode/index/blink"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

var _ index.Walker = (*Tree)(nil)

// Walk calls fn for each block that a leaf links, in the order of the keys. Leaves are read one by
// one; one that is locked serves, too. It needs an arena of one node.
func (t *Tree) Walk(c *rdma.Coro, fn func(at layout.Addr, x index.Candidate) error) error {
	return t.Pieces(c, index.Each(fn))
}

// Pieces is Walk, leaf by leaf. A leaf is the place of all of its links.
func (t *Tree) Pieces(c *rdma.Coro, fn func(links []index.Linked) error) error {
	var blocks []index.Candidate
	var links []index.Linked
	return t.Leaves(c, func(at layout.Addr, value []byte) error {
		blocks, _, _ = t.Entries(blocks[:0], index.Node{Addr: at, Body: value}, index.Bound{},
			index.Bound{End: true}, false, math.MaxInt)
		links = links[:0]
		for _, x := range blocks {
			links = append(links, index.Linked{At: at, Candidate: x})
		}
		return fn(links)
	})
}

// Leaves calls fn for each leaf, from left to right. The value is fn's until it returns.
func (t *Tree) Leaves(c *rdma.Coro, fn func(at layout.Addr, value []byte) error) error {
	return t.nodes(c, 0, func(at layout.Addr, n node) error { return fn(at, n.body) })
}

// Leaf reads the leaf that is responsible for a place. The value is the caller's.
func (t *Tree) Leaf(c *rdma.Coro, p index.Place) (value []byte, err error) {
	n, _, err := t.node(c, p)
	return n.body, err
}

// Linked is an entry of a leaf.
type Linked struct {
	Key []byte // nil in an index of hashes: only the block has it
	index.Candidate
}

// Keys lists the entries of a leaf behind a bound. more: the keys go on behind rest, in another
// leaf.
func (t *Tree) Keys(leaf []byte, from index.Bound) (list []Linked, rest index.Bound, more bool, err error) {
	n, err := t.decode(leaf)
	if err != nil {
		return nil, rest, false, err
	}
	if n.bucket {
		for i := n.leaf.Rank(position(from)); i < n.leaf.Count(); i++ {
			x := n.leaf.Block(i)
			list = append(list, Linked{Candidate: index.Candidate{Addr: x.Addr, Class: x.Class}})
		}
	} else {
		for i := n.Rank(bound(from)); i < n.Count(); i++ {
			list = append(list, Linked{n.AppendKey(nil, i), index.Candidate{Addr: n.Addr(i), Class: n.Class(i)}})
		}
	}
	high, more := n.high()
	return list, index.Bound{Key: bytes.Clone(high)}, more, nil
}

// nodes calls fn for each node of a level, from left to right. The node's image is fn's until it
// returns.
func (t *Tree) nodes(c *rdma.Coro, level int, fn func(at layout.Addr, n node) error) error {
	for p := (index.Place{Level: level}); ; {
		n, a, err := t.node(c, p)
		if err != nil {
			return err
		}
		if err := fn(a, n); err != nil {
			return err
		}
		high, bounded := n.high()
		if !bounded {
			return nil
		}
		p.Key = bytes.Clone(high)
	}
}

// node reads the node that is responsible for a place. The image is the caller's. If the tree does
// not have the level, a is that of the root's block, with an error.
func (t *Tree) node(c *rdma.Coro, p index.Place) (n node, a layout.Addr, err error) {
	th := c.Thread()
	size := int(t.NodeClass().Size())
	buf, err := th.Alloc(size)
	if err != nil {
		return n, 0, err
	}
	defer th.Free(buf, size)
	x, err := index.Lookup(c, t.space, t, t.table, &index.Query{Local: buf, View: t.space.ViewOn(th)}, p)
	if err != nil {
		return n, x.Addr, err
	}
	if n, err = t.decode(bytes.Clone(x.Body)); err != nil {
		return n, x.Addr, t.damaged(x.Addr, err)
	}
	return n, x.Addr, nil
}

// Stats describe a tree.
type Stats struct {
	Height int    // levels, at least 1: that of the leaves
	Leaves int    // nodes of level 0
	Inner  int    // nodes of the levels above
	Used   uint64 // bytes of the leaves' images
	Room   uint64 // bytes that the images of so many leaves can have
	Bytes  uint64 // blocks of all nodes and of the root, of one copy
}

// Stats reads all nodes, one by one. While commits change the tree, the figures are about right.
func (t *Tree) Stats(c *rdma.Coro) (s Stats, err error) {
	if _, _, err := t.node(c, index.Place{}); err != nil { // which learns the root
		return s, err
	}
	s.Height = 1
	if r := t.root.Load(); r != nil {
		s.Height = r.Level + 1
	}
	for level := range s.Height {
		if err := t.nodes(c, level, func(_ layout.Addr, n node) error {
			if level > 0 {
				s.Inner++
				return nil
			}
			s.Leaves++
			s.Used += uint64(len(n.body))
			s.Room += uint64(t.leafImage())
			return nil
		}); err != nil {
			return s, err
		}
	}
	s.Bytes = uint64(s.Leaves)*uint64(t.leafBlock().Size()) +
		uint64(s.Inner)*uint64(t.geometry.Class.Size()) + record.LineSize
	return s, nil
}

// leafBlock is the class of the blocks of leaves, and leafImage how long their values can be.
func (t *Tree) leafBlock() layout.Class {
	if t.hashed {
		return t.leafClass
	}
	return t.geometry.Class
}

func (t *Tree) leafImage() int { return blink.Geometry{Class: t.leafBlock()}.Room() }

// Behind returns the leaf that is responsible for a key, and the key with which the next leaf
// begins, as the level above knows them, without reading either: for what goes on behind a leaf
// that is damaged. ok is false if that is the last one; leaf is 0 if there is no level above.
func (t *Tree) Behind(c *rdma.Coro, key []byte) (leaf layout.Addr, next []byte, ok bool, err error) {
	n, a, err := t.node(c, index.Place{Bound: index.Bound{Key: key}, Level: 1})
	if a == t.at {
		return 0, nil, false, nil
	}
	if err != nil {
		return 0, nil, false, err
	}
	leaf = n.Addr(n.Child(key))
	if i := n.Rank(blink.After(key)); i < n.Count() {
		return leaf, n.AppendKey(nil, i), true, nil
	}
	next, ok = n.High()
	return leaf, next, ok, nil
}
