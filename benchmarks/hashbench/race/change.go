package race

import (
	"fmt"

	"txnode/memory/layout"
	"txnode/rdma"
)

// TryReplace is one attempt to make the slot of candidate old lead to block a, by a client that holds
// no lock (RACE, algorithm 3): it compares and swaps the slot that the query has seen. false: the
// slot has changed since; the caller looks the key up again. The block a must be placed.
//
// Of two clients that update a key one succeeds, and the other finds out. What the slot leads to was
// current at the moment of the swap, or its address had come back to the slot, which no blind write
// can tell.
func (ix *Table) TryReplace(c *rdma.Coro, q *Query, old Candidate, a layout.Addr, class layout.Class) (bool, error) {
	if old.more {
		return false, nil
	}
	_, ok, err := q.swap(c, old.at, uint64(old.slot), uint64(MakeSlot(q.Hash, class, a)))
	return ok, err
}

// Insert links the block a, which is placed and holds q's key (RACE, algorithm 1). The query must have
// been resolved. No other client inserts the key: RACE's second look for duplicates is left out.
func (ix *Table) Insert(c *rdma.Coro, q *Query, a layout.Addr, class layout.Class) error {
	for {
		to, err := q.choose(c)
		if err != nil {
			return err
		}
		if to.at == 0 {
			return fmt.Errorf("%w: no room for a key of table %d in its buckets at %v and %v", ErrFull, ix.geo.table,
				q.lineAddr(0), q.lineAddr(firstLines))
		}
		if to.second {
			if err := q.mark(c); err != nil {
				return err
			}
		}
		if _, ok, err := q.swap(c, to.at, 0, uint64(MakeSlot(q.Hash, class, a))); ok || err != nil {
			return err
		}
		// Another client has taken the slot.
		q.batch.Reset()
		ix.Search(&q.batch, q)
		if err := c.Do(&q.batch); err != nil {
			return err
		}
		if err := ix.Resolve(c, q); err != nil {
			return err
		}
	}
}

// firstUpTo is how many slots of its first choice are taken at most when a key goes there without a
// look at the second. More would leave fewer keys in their second choice, and less room: with 8,
// sub-tables of the large size are 88 % full when a key finds no room, and of the lookups of absent
// keys 0.2 % read the second choice at a load of 0.4, 2 % at 0.6, 6 % at 0.75.
const firstUpTo = 8

// chosen is where a key can be put.
type chosen struct {
	at     layout.Addr // of the slot, 0: there is no room
	second bool        // it is in the second choice
}

// choose returns an empty slot for the query's key: in its first choice, as long as that has many,
// otherwise in the less loaded of its two choices; main bucket first (RACE, section 3.2, takes the
// less loaded always).
func (q *Query) choose(c *rdma.Coro) (chosen, error) {
	first, used := q.free(c, 0)
	if first != 0 && used <= firstUpTo {
		return chosen{at: first}, nil
	}
	if !q.both {
		if err := q.readSecond(c); err != nil {
			return chosen{}, err
		}
	}
	second, more := q.free(c, 1)
	if second != 0 && (first == 0 || more < used) {
		return chosen{second, true}, nil
	}
	return chosen{at: first}, nil
}

// free returns an empty slot of choice k, 0: there is none; and how many are taken.
func (q *Query) free(c *rdma.Coro, k uint32) (at layout.Addr, used int) {
	p, main := q.lines(c.Thread()), mainLine(q.places[k])
	for _, i := range [2]uint32{firstLines*k + main, firstLines*k + 1 - main} {
		for j := range uint32(slotsPerLine) {
			switch {
			case word(p, i*lineSize+8*j) != 0:
				used++
			case at == 0:
				at = q.lineAddr(i) + layout.Addr(8*j)
			}
		}
	}
	return at, used
}

// mark says in the first choice that the key may be in its second.
func (q *Query) mark(c *rdma.Coro) error {
	at := q.lineAddr(mainLine(q.places[0])) + headerOff
	for h := q.markHeader(c.Thread()); !h.Marked(q.Hash); {
		now, ok, err := q.swap(c, at, uint64(h), uint64(h|markBit(q.Hash)))
		if ok || err != nil {
			return err
		}
		if h = Header(now); h.base() != q.header {
			return fmt.Errorf("%w: bucket at %v is %v, not of %v", ErrCorrupt, at, h, q.header)
		}
	}
	return nil
}

// swap compares and swaps a word. It returns what the word held.
func (q *Query) swap(c *rdma.Coro, at layout.Addr, old, to uint64) (had uint64, ok bool, err error) {
	q.batch.Reset()
	q.batch.CAS(q.View.At(at, 0), old, to)
	if err := c.Do(&q.batch); err != nil {
		return 0, false, err
	}
	had = q.batch.Result(0)
	return had, had == old, nil
}
