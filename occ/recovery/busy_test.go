package recovery_test

import (
	"errors"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
)

// busyIndex is an index in which somebody's change is in the way of the next inserts, and
// of what unlinks them again.
type busyIndex struct {
	index.Slots
	inserts, removes int
	linked           bool // the slot is set when an insert gives up
}

func (x *busyIndex) Insert(c *rdma.Coro, q *index.Query, a layout.Addr, class layout.Class) error {
	if x.inserts == 0 {
		return x.Slots.Insert(c, q, a, class)
	}
	x.inserts--
	if x.linked {
		if err := x.Slots.Insert(c, q, a, class); err != nil {
			return err
		}
	}
	return &race.BusyError{Table: 1, What: "a split"}
}

func (x *busyIndex) Remove(c *rdma.Coro, q *index.Query, a layout.Addr) error {
	if x.removes == 0 {
		return x.Slots.Remove(c, q, a)
	}
	x.removes--
	return &race.BusyError{Table: 1, What: "a split"}
}

// TestBusyInsert: an insert gives up waiting for somebody else's change of the index. It is
// a conflict, that is counted, and the session goes on as the coordinator that it is,
// whether the slot was set or not. Only if the slot cannot be cleared either, the session
// is broken, and sees to that when it rejoins.
func TestBusyInsert(t *testing.T) {
	for _, s := range settings(t) {
		for _, x := range []busyIndex{
			{inserts: 1}, {inserts: 1, linked: true}, {inserts: 1, linked: true, removes: 1},
		} {
			w := newWorld(t, s, occ.Options{})
			se, tx := w.session()
			w.sure(se, tx, put("a", "1"))
			id, before := se.Coordinator(), tx.Aborts()[occ.AbortStale]
			stuck := x.removes > 0
			x.Slots = w.table.Index
			plain := w.table
			w.table = &occ.Table{ID: plain.ID, Name: plain.Name, Index: &x}
			err := w.do(tx, put("a", "2"), put("b", "2"))
			w.table = plain
			if !errors.Is(err, occ.ErrConflict) || !errors.Is(err, index.ErrBusy) {
				t.Errorf("%v: %v", s, err)
			}
			if n := tx.Aborts()[occ.AbortStale] - before; n != 1 {
				t.Errorf("%v: counted %d times", s, n)
			}
			if broken := se.Broken(); (broken != nil) != stuck {
				t.Errorf("%v, unlinking fails: %v: the session is broken: %v", s, stuck, broken)
			}
			tx.Coro().Sleep(10_000)
			if !stuck {
				w.check(s.String())
			}
			w.sure(se, tx, put("a", "3"), put("b", "3"))
			if got := w.values(se, tx, "a", "b"); got[0] != "3" || got[1] != "3" {
				t.Errorf("%v: %q", s, got)
			}
			if (se.Coordinator() == id) == stuck {
				t.Errorf("%v: coordinator %d is %d now", s, id, se.Coordinator())
			}
			tx.Coro().Sleep(10_000)
			w.check(s.String())
		}
	}
}
