package tree

import (
	"bytes"
	"fmt"
	"math"

	"txnode/index"
	"txnode/index/blink"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

var _ index.Walker = (*Tree)(nil)

// Walk calls fn for each block that a leaf links, in the order of the keys. Leaves are read one by one; one that is
// locked serves, too. It needs an arena of one node.
func (t *Tree) Walk(c *rdma.Coro, fn func(at memory.Addr, x index.Candidate) error) error {
	return t.Pieces(c, index.Each(fn))
}

// Pieces is Walk, leaf by leaf. A leaf is the place of all of its links.
func (t *Tree) Pieces(c *rdma.Coro, fn func(links []index.Linked) error) error {
	var blocks []index.Candidate
	var links []index.Linked
	return t.Leaves(c, func(at memory.Addr, value []byte) error {
		blocks, _, _ = t.Entries(blocks[:0], value, index.Bound{}, index.Bound{End: true}, false, math.MaxInt)
		links = links[:0]
		for _, x := range blocks {
			links = append(links, index.Linked{At: at, Candidate: x})
		}
		return fn(links)
	})
}

// Leaves calls fn for each leaf, from left to right. The value is fn's until it returns.
func (t *Tree) Leaves(c *rdma.Coro, fn func(at memory.Addr, value []byte) error) error {
	return t.nodes(c, 0, func(at memory.Addr, n blink.Node) error { return fn(at, n.Bytes()) })
}

// Leaf reads the leaf that is responsible for a place. The value is the caller's.
func (t *Tree) Leaf(c *rdma.Coro, p index.Place) (value []byte, err error) {
	n, _, err := t.node(c, p)
	return n.Bytes(), err
}

// Linked is an entry of a leaf.
type Linked struct {
	Key  []byte
	Addr memory.Addr // of its block
}

// Keys lists the entries of a leaf behind a bound. more: the keys go on behind rest, in another leaf.
func (t *Tree) Keys(leaf []byte, from index.Bound) (list []Linked, rest index.Bound, more bool, err error) {
	n, err := blink.Decode(leaf)
	if err != nil {
		return nil, rest, false, err
	}
	for i := n.Rank(bound(from)); i < n.Count(); i++ {
		list = append(list, Linked{n.AppendKey(nil, i), n.Addr(i)})
	}
	high, more := n.High()
	return list, index.Bound{Key: bytes.Clone(high)}, more, nil
}

// nodes calls fn for each node of a level, from left to right. The node's image is fn's until it returns.
func (t *Tree) nodes(c *rdma.Coro, level int, fn func(at memory.Addr, n blink.Node) error) error {
	for p := (index.Place{Level: level}); ; {
		n, a, err := t.node(c, p)
		if err != nil {
			return err
		}
		if err := fn(a, n); err != nil {
			return err
		}
		high, bounded := n.High()
		if !bounded {
			return nil
		}
		p.Key = bytes.Clone(high)
	}
}

// node reads the node that is responsible for a place. The image is the caller's. If the tree does not have the level,
// a is that of the root's block, with an error.
func (t *Tree) node(c *rdma.Coro, p index.Place) (n blink.Node, a memory.Addr, err error) {
	th := c.Thread()
	size := int(t.geometry.Class.Size())
	buf, err := th.Alloc(size)
	if err != nil {
		return n, 0, err
	}
	defer th.Free(buf, size)
	value, a, err := t.reach(c, &index.Query{Local: buf, View: t.space.ViewOn(th)}, p)
	if err != nil {
		return n, a, err
	}
	if n, err = blink.Decode(bytes.Clone(value)); err != nil {
		return n, a, t.damaged(a, err)
	}
	return n, a, nil
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
		if err := t.nodes(c, level, func(_ memory.Addr, n blink.Node) error {
			if level > 0 {
				s.Inner++
				return nil
			}
			s.Leaves++
			s.Used += uint64(len(n.Bytes()))
			s.Room += uint64(t.geometry.Room())
			return nil
		}); err != nil {
			return s, err
		}
	}
	s.Bytes = uint64(s.Leaves+s.Inner)*uint64(t.geometry.Class.Size()) + record.LineSize
	return s, nil
}

// Behind returns the leaf that is responsible for a key, and the key with which the next leaf begins, as the level
// above knows them, without reading either: for what goes on behind a leaf that is damaged. ok is false if that is
// the last one; leaf is 0 if there is no level above.
func (t *Tree) Behind(c *rdma.Coro, key []byte) (leaf memory.Addr, next []byte, ok bool, err error) {
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

// reach reads the node that is responsible for a place. The value lies in q's buffer.
func (t *Tree) reach(c *rdma.Coro, q *index.Query, p index.Place) (value []byte, a memory.Addr, err error) {
	th := c.Thread()
	var b rdma.Batch
	a = t.Find(p).Addr
	for looks, hops := 0, 0; looks < maxLooks && hops < maxHops; {
		if !q.View.Valid(a) {
			if v := t.space.ViewOn(th); v != q.View && v.Valid(a) {
				q.View = v
			} else if looks++; v.Vacant(a) { // a cached node led to one that was freed
				a = t.Astray(p).Addr
				continue
			} else {
				return nil, a, fmt.Errorf("%w: table %d: node %v is in no segment", index.ErrCorrupt, t.table, a)
			}
		}
		b.Reset()
		t.read(&b, q, a)
		if err := c.Do(&b); err != nil {
			return nil, a, err
		}
		img := record.Image(th.Bytes(q.Local, t.geometry.Class.Size()))
		value, ok := t.Value(a, img)
		if !ok {
			if looks++; looks > 2 {
				c.Yield()
			}
			if looks%8 == 0 {
				a = t.Astray(p).Addr
			}
			continue
		}
		p.Anew = hops > index.AnewAfter
		hop, here, err := t.Follow(p, a, value)
		if err != nil || here {
			q.State[leafAt], q.State[leafVersion] = uint64(a), uint64(img.Version())
			return value, a, err
		}
		a = hop.Addr
		hops++
	}
	return nil, a, fmt.Errorf("%w: table %d: no node is responsible for the keys from %.64x on; the last block was %v", index.ErrBusy, t.table, p.Key, a)
}
