package tree

import (
	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// BufferSize is the size of a node's block in bytes.
func (t *Tree) BufferSize() int { return int(t.NodeClass().Size()) }

// placeOf is where the index has q's key.
func (t *Tree) placeOf(q *index.Query) index.Place {
	if t.hashed {
		return index.PlaceOf(index.AppendHash(nil, q.Hash))
	}
	return index.PlaceOf(q.Key)
}

// Search appends the READ of the block that is the next on the way to q's key.
func (t *Tree) Search(b *rdma.Batch, q *index.Query) {
	a := t.Find(t.placeOf(q)).Addr
	if !q.View.Valid(a) {
		a = t.at
	}
	q.State[0] = uint64(a)
	n := t.NodeClass().Size()
	switch {
	case a == t.at:
		n = record.LineSize
	case q.View.Valid(a):
		n = min(n, q.View.Class(a).Size())
	}
	b.Read(q.View.At(a, 0), q.Local, n)
}

// Resolve goes on to the leaf that is responsible for q's key. A leaf that is locked serves as
// well: what it links was committed.
func (t *Tree) Resolve(c *rdma.Coro, q *index.Query) (again bool, err error) {
	q.Thread = c.Thread()
	q.Candidates = q.Candidates[:0]
	p, x := t.placeOf(q), index.Node{Addr: layout.Addr(q.State[0])}
	x.Body = index.NodeIn(q.Thread.Bytes(q.Local, t.NodeClass().Size()), x.Addr, t.table)
	step := index.Astray
	if x.Body != nil {
		if _, step, err = t.Follow(p, x, 0); err != nil {
			return false, err
		}
	}
	if step != index.Here {
		if x, err = index.Lookup(c, t.space, t, t.table, q, p); err != nil {
			return false, err
		}
	}
	q.Candidates = t.Candidates(q.Candidates, p.Key, []index.Node{x})
	return false, nil
}
