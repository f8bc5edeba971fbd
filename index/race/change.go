package race

import (
	"txnode/index"
	"txnode/memory/layout"
	"txnode/rdma"
)

// Remove clears the slot of block a (RACE, algorithm 2), wherever an insert that is undone
// may have put it: see late.go.
func (ix *Index) Remove(c *rdma.Coro, q *index.Query, a layout.Addr) error {
	return ix.change(c, q, a, trace(c))
}

// Replace makes the slot of block old point to block a (RACE, algorithm 3).
func (ix *Index) Replace(c *rdma.Coro, q *index.Query, old, a layout.Addr, class layout.Class) error {
	return ix.change(c, q, old, uint64(MakeSlot(fingerprint(q.Hash), class, a)))
}

// change sets the slot of block a. Nobody else but the client that splits the
// sub-table changes the slot, since the caller holds the block's lock. What the
// query has seen is tried first.
func (ix *Index) change(c *rdma.Coro, q *index.Query, a layout.Addr, to uint64) error {
	s := ix.get()
	defer ix.put(s)
	wait := waiting{}
	for fresh := false; ; fresh = true {
		if fresh {
			if err := ix.lookup(c, s, q); err != nil {
				return err
			}
		}
		own, n := ownSlot(ix.matches(c, s, q), a)
		switch {
		case n == 0:
			if !fresh {
				continue
			}
			if Slot(to).Empty() {
				if late, err := ix.removeLate(c, s, q, a); late || err != nil {
					return err
				}
			}
			return index.ErrChanged
		case n > 1 || own.value.Moving():
			if !fresh {
				continue
			}
			if Slot(to).Empty() && wait.tries > 0 {
				if err := ix.oneOfTwo(c, s, q, own, n); err != nil {
					return err
				}
			}
			if err := ix.waitFor(c, &wait, own.at, 0, "the move of a slot"); err != nil {
				return err
			}
		default:
			if ok, err := ix.one(c, s, q.View, own.at, uint64(own.value), to); ok || err != nil {
				return err
			}
		}
	}
}
