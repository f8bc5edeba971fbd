package recovery_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/index"
	"txnode/index/tree"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestTombstonesOfClosed: a session that has taken the deleted records of others upon itself is
// closed, or dies, and cannot reclaim some of them: somebody else does, although the sessions
// whose they are live on.
func TestTombstonesOfClosed(t *testing.T) {
	for _, s := range settings(t) {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v dies=%v", s, dies), func(t *testing.T) {
				w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
				ours, own := w.session()
				busy, tx := w.session()
				late, _ := w.session()
				w.sure(ours, own, put("a", "1"), put("b", "1"))
				w.sure(ours, own, del("a"), del("b"))
				own.Coro().Sleep(10_000) // until its locks are released
				must(t, w.open(tx, put("a", "2")))
				if n, err := late.MakeRoom(late.Thread().Plain()); n != 1 || err != nil {
					t.Fatalf("%d deleted records are reclaimed: %v", n, err)
				}
				if dies {
					w.arm(0)
					late.Break(errors.New("dead"))
				}
				if err := late.Close(); (err != nil) != dies {
					t.Errorf("closed: %v", err)
				}
				if w.disarm(); dies {
					w.decideUntil(late.Coordinator(), -1)
				}
				_ = tx.Rollback()
				w.sure(busy, tx, put("c", "1")) // it may have to rejoin
				w.sure(ours, own, put("d", "1"))
				w.sweep()
				must(t, busy.Close())
				must(t, ours.Close())
				if n := w.deleted(w.table); n > 0 {
					t.Errorf("%d records are deleted, and all sessions closed", n)
				}
				w.check("closed")
			})
		}
	}
}

// closedTogether is TestClosedTogether, in which the second one ends so much later, in nanoseconds.
func closedTogether(t *testing.T, s setting, first int, delay int64) {
	w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
	var ours, busy *occ.Session
	var own, tx *occ.Tx
	if ours, own = w.session(); first == 0 {
		busy, tx = w.session()
	} else {
		busy, tx = ours, own
		ours, own = w.session()
	}
	w.sure(ours, own, put("a", "1"), put("b", "1"))
	w.sure(ours, own, del("a"), del("b"))
	own.Coro().Sleep(10_000) // until its locks are released
	must(t, w.open(tx, put("a", "2")))
	w.f.Run(2, func(i int) {
		if i == 0 {
			must(t, ours.Close())
			return
		}
		tx.Coro().Sleep(delay)
		_ = tx.Rollback()
		must(t, busy.Close())
	})
	if n := w.deleted(w.table); n > 0 {
		t.Errorf("closed %d ns apart: %d records are deleted, and all sessions closed", delay, n)
	}
	w.check("closed")
}

// TestReclaimUnwound: a session that has taken the deleted records of another one upon itself is
// unwound in the middle of reclaiming them, and closed: somebody else reclaims them, although the
// session whose they are lives on.
func TestReclaimUnwound(t *testing.T) {
	for _, s := range settings(t) {
		if s.caps.Synchronous {
			s.caps.Synchronous = false // else no coroutine waits in the middle
		}
		t.Run(s.String(), func(t *testing.T) {
			for delay, over := int64(0), false; !over; delay += 300 {
				if over = reclaimUnwound(t, s, delay); t.Failed() {
					t.Fatalf("unwound after %d ns", delay)
				}
			}
		})
	}
}

// reclaimUnwound is TestReclaimUnwound, so much later, in nanoseconds; true: nothing was
// left to be reclaimed.
func reclaimUnwound(t *testing.T, s setting, delay int64) (over bool) {
	w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
	ours, own := w.session()
	late, _ := w.session()
	w.sure(ours, own, put("a", "1"), put("b", "1"))
	w.sure(ours, own, del("a"), del("b"))
	own.Coro().Sleep(10_000) // until its locks are released
	func() {
		defer func() { _ = recover() }()
		late.Thread().Run(2, func(c *rdma.Coro) {
			if c.ID() == 0 {
				n, err := late.MakeRoom(c)
				must(t, err)
				over = n == 2
				return
			}
			c.Sleep(delay)
			panic("unwound")
		})
	}()
	late.Unwound(errors.New("unwound"))
	if err := late.Close(); err == nil {
		t.Error("closed in order")
	}
	w.decideUntil(late.Coordinator(), -1)
	w.sure(ours, own, put("d", "1"))
	w.sweep()
	must(t, ours.Close())
	if n := w.deleted(w.table); n > 0 {
		t.Errorf("%d records are deleted, and all sessions closed", n)
	}
	w.check("closed")
	return over
}

// deleted counts the deleted records to which slots of a table lead.
func (w *world) deleted(t *occ.Table) (n int) {
	w.t.Helper()
	was := w.table
	w.table = t
	defer func() { w.table = was }()
	w.blocks(w.ctl.Plain(), func(_ layout.Addr, line record.Image) {
		if line.Meta().State() == record.Absent {
			n++
		}
	})
	return n
}

// power opens the database as after a loss of power.
func (w *world) power(tables ...*occ.Table) {
	w.t.Helper()
	_, err := recovery.Power(w.ctl.Plain(), recovery.Options{Space: w.space})
	must(w.t, err)
	for _, t := range tables {
		t.Index = w.openTable(t.ID).Index
	}
	w.eng = occ.NewEngine(w.space, occ.Options{Policy: occ.PolicyDefault, ReclaimAfter: 100})
}

// reopen opens the database anew, and has it recovered, as package txn does. Its
// sessions are closed.
func (w *world) reopen(o occ.Options, tables ...*occ.Table) {
	w.t.Helper()
	c := w.ctl.Plain()
	l := w.space.Layout()
	must(w.t, w.space.Close(c))
	var err error
	w.space, err = memory.Open(c, w.f, w.cat, memory.Options{
		Backups: l.Backups, SegmentSize: l.SegmentSize, LogArea: l.LogArea,
	})
	must(w.t, err)
	w.eng = occ.NewEngine(w.space, o)
	if _, due := w.space.Unswept(); due {
		alone := recovery.Options{Space: w.space, Steal: true, Alone: true}
		_, err := recovery.Sweep(c, alone)
		must(w.t, err)
	}
	for _, t := range tables {
		t.Index = w.openTable(t.ID).Index
	}
}

// spoil overwrites the leaf of a table on all copies. What it returns brings it back.
func (w *world) spoil(t *occ.Table) (mended func()) {
	w.t.Helper()
	var leaf layout.Addr
	must(w.t, t.Index.(*tree.Tree).Walk(w.ctl.Plain(), func(at layout.Addr, _ index.Candidate) error {
		leaf = at
		return nil
	}))
	v := w.space.View()
	var copies, was [][]byte
	for k := range v.Copies(leaf) {
		at := v.At(leaf, k)
		p := w.f.Memory(at.Blade)[at.Off:][:tree.LeafClass.Size()]
		copies, was = append(copies, p), append(was, slices.Clone(p))
		for i := range p {
			p[i] = 0xa5
		}
	}
	return func() {
		for k, p := range copies {
			copy(p, was[k])
		}
	}
}

// TestReclaimBesideDamage: a session has deleted records of a table whose leaf is damaged on all
// copies. It reclaims those of other tables when space is short, and can be closed.
func TestReclaimBesideDamage(t *testing.T) {
	for _, s := range settings(t) {
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
			sound, spoilt := w.table, w.another("spoilt")
			ours, own := w.session()
			w.table = spoilt
			w.sure(ours, own, put("a", "1"))
			w.sure(ours, own, del("a"))
			w.table = sound
			w.sure(ours, own, put("b", "1"), put("c", "1"))
			w.sure(ours, own, del("b"))
			own.Coro().Sleep(10_000) // until its lock is released
			mended := w.spoil(spoilt)
			if n, err := ours.MakeRoom(own.Coro()); n != 1 || err != nil {
				t.Errorf("%d deleted records are reclaimed beside a damaged leaf: %v", n, err)
			}
			w.sure(ours, own, del("c"))
			own.Coro().Sleep(10_000)
			must(t, ours.Close())
			if w.space.Registered(ours.Coordinator()) {
				t.Error("a session that is closed is registered")
			}
			if n := w.deleted(sound); n > 0 {
				t.Errorf("%d records of the sound table are deleted, and their session is closed", n)
			}
			mended()
			w.check("closed")
		})
	}
}
