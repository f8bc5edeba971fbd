package tree

import (
	"bytes"
	"fmt"
	"math"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

var _ index.Walker = (*Tree)(nil)

// Walk calls fn for each block that a leaf links, in the order of the keys. Leaves are read one by one; one that is
// locked serves, too. It needs an arena of one node.
func (t *Tree) Walk(c *rdma.Coro, fn func(at memory.Addr, x index.Candidate) error) error {
	var blocks []index.Candidate
	return t.Leaves(c, func(at memory.Addr, value []byte) error {
		blocks, _, _ = t.Entries(blocks[:0], value, index.Bound{}, index.Bound{End: true}, false, math.MaxInt)
		for _, x := range blocks {
			if err := fn(at, x); err != nil {
				return err
			}
		}
		return nil
	})
}

// Leaves calls fn for each leaf, from left to right. The value is fn's until it returns.
func (t *Tree) Leaves(c *rdma.Coro, fn func(at memory.Addr, value []byte) error) error {
	th := c.Thread()
	size := int(t.geometry.Class.Size())
	buf, err := th.Alloc(size)
	if err != nil {
		return err
	}
	defer th.Free(buf, size)
	q := index.Query{Local: buf}
	for p := (index.Place{}); ; {
		q.View = t.space.ViewOn(th)
		value, a, err := t.reach(c, &q, p)
		if err != nil {
			return err
		}
		_, rest, more := t.Entries(nil, value, p.Bound, index.Bound{End: true}, false, math.MaxInt)
		if err := fn(a, bytes.Clone(value)); err != nil {
			return err
		}
		if !more {
			return nil
		}
		p = rest
	}
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
