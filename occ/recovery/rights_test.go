package recovery_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// maintain does so many steps of what a process is to sweep, as maintenance does, and reports
// whether there is something to be swept. What another process sweeps is that, too.
func (w *world) maintain(c *rdma.Coro, sweeper **recovery.Sweeper, steps int) (due bool) {
	w.t.Helper()
	must(w.t, w.space.Follow())
	if _, due := w.space.Unswept(); !due {
		*sweeper = nil
		return false
	}
	if s := *sweeper; s == nil || s.Ended() {
		*sweeper = recovery.DueSweep(c, w.eng.Recovery())
	}
	for range steps {
		if *sweeper == nil {
			break
		}
		done, err := (*sweeper).Step(c)
		must(w.t, err)
		if done {
			*sweeper = nil
		}
	}
	return true
}

// TestTwoHolders: a session dies in the middle of a split of an index. One process sweeps
// alone, or two are there, whose maintenance takes steps in turn. They need as many verbs as
// one. The index is in order then, and both can insert. While one process recovers the index,
// another one is refused.
func TestTwoHolders(t *testing.T) {
	verbs := map[int]uint64{}
	for _, n := range []int{1, 2} {
		all := processes(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{ReclaimAfter: 1}, 3, 24<<20, false)
		p, q, dead := all[0], all[1], all[2]
		coordinator := dead.halfSplit()
		o := p.eng.Recovery()
		o.Steal = true
		_, err := recovery.Recover(p.newThread().Plain(), o, coordinator)
		must(t, err)

		var counts [2]rdma.Counters
		var coros [2]*rdma.Coro
		for i, w := range []*world{p, q} {
			must(t, w.space.Follow())
			coros[i] = w.newThread().Plain()
			must(t, recovery.Reconnect(coros[i], w.space))
			coros[i].Count = &counts[i]
		}
		if !p.space.AcquireRight(uint32(p.table.ID)) {
			t.Fatal("no right")
		}
		if err := recovery.SweepIndexes(coros[1], q.eng.Recovery()); !errors.Is(err, index.ErrBusy) {
			t.Errorf("the index is recovered by another process, and one gets: %v", err)
		}
		refused := counts[1]
		p.space.ReleaseRight(uint32(p.table.ID))
		counts[1] = rdma.Counters{}

		var sweepers [2]*recovery.Sweeper
		for due := true; due; {
			due = false
			for i := range n {
				due = all[i].maintain(coros[i], &sweepers[i], 1) || due
			}
		}
		total := rdma.Counters{}
		for i := range counts {
			total.Add(&counts[i])
		}
		for _, k := range total.Verbs {
			verbs[n] += k
		}
		sum := uint64(0)
		for _, k := range refused.Verbs {
			sum += k
		}
		t.Logf("%d processes sweep: %d verbs, %d round trips of both; the one that was refused: %d verbs",
			n, verbs[n], total.RoundTrips, sum)
		for _, w := range all[:2] {
			again, tx := w.session()
			for i := range 200 {
				w.sure(again, tx, put(fmt.Sprint("more", i), "x"))
			}
			must(t, again.Close())
			verified(t, w)
		}
	}
	if verbs[1] == 0 || verbs[2] != verbs[1] {
		t.Errorf("one process needs %d verbs to sweep, and two %d", verbs[1], verbs[2])
	}
}

// expiring are three processes whose registrations end at a time of the fabric's clock.
func expiring(t *testing.T, until int64) (all []*world) {
	t.Helper()
	w := newWorldWith(t, rdmatest.Options{Blades: 3, Size: 24 << 20}, setting{occ.PolicyDefault, 1, strong},
		occ.Options{ReclaimAfter: 1},
		memory.Options{SegmentSize: 256 << 10, LogArea: 128 << 10, Shared: true})
	must(t, w.space.Close(w.ctl.Plain()))
	w.until = until
	for i := range 3 {
		all = append(all, w.join(setting{occ.PolicyDefault, 1, strong}, occ.Options{ReclaimAfter: 1}, 100*(i+1)))
	}
	return all
}

// halfSplit has a session of a process stop in the middle of a split of an index, and
// returns its coordinator.
func (w *world) halfSplit() uint32 {
	w.t.Helper()
	se, victim := w.session()
	locked, after := false, 0
	w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool {
		if locked {
			after++
			return after > 6
		}
		locked = wr.Op == rdma.OpCAS && wr.Swap>>16 == se.Thread().Owner() && wr.Cmp == 0
		return false
	}}
	for i := 0; i < 3000 && w.do(victim, put(fmt.Sprint("key", i), "x")) == nil; i++ {
	}
	if !w.disarm() {
		w.t.Fatal("the index has not been split")
	}
	return victim.ID().Coordinator()
}

// Ways by which a holder goes.
const (
	holderDies    = iota // it does nothing more
	holderSleeps         // its registration ends, and then it goes on
	holderStalls         // its registration is renewed, and it does not sweep
	holderFails          // its verbs fail, and it goes on
	holderCloses         // it closes the database
	holderOutcome        // how many there are
)

// TestHolderGoes: the process that sweeps for all goes in some way after so many steps. Another one
// sweeps then, and not before it may. Nothing stays unswept, and the index is in order.
func TestHolderGoes(t *testing.T) {
	const term = 1_000_000_000
	step := byRun(7, 1, 19)
	for way := range holderOutcome {
		for steps, over := 0, false; !over; steps += step {
			what := fmt.Sprintf("way %d, after %d steps", way, steps)
			all := expiring(t, term)
			p, q, owner := all[0], all[1], all[2]
			dead := owner.halfSplit()
			o := p.eng.Recovery()
			o.Steal = true
			_, err := recovery.Recover(p.newThread().Plain(), o, dead)
			must(t, err)
			pc, qc := p.newThread().Plain(), q.newThread().Plain()
			var ps, qs *recovery.Sweeper
			renew := func(worlds ...*world) {
				for _, w := range worlds {
					must(t, w.space.Renew(w.f.Now()+term))
				}
			}
			renew(all...)
			for range steps {
				over = over || !p.maintain(pc, &ps, 1)
			}
			over = over || ps == nil && steps > 0
			for range 3 {
				q.maintain(qc, &qs, 1)
			}
			if qs != nil && !over {
				t.Fatalf("%s: another process sweeps while the holder does", what)
			}
			if holder := q.space.Layout().Holder(layout.RightSweep); holder != p.space.Process() && !over {
				t.Fatalf("%s: the holder is process %d, and not %d", what, holder, p.space.Process())
			}
			alive := []*world{q, owner}
			switch way {
			case holderDies, holderSleeps:
				for range 4 {
					qc.Sleep(term/2 + 1)
					renew(alive...)
				}
				_, err := q.space.TakeOver(q.f.Now())
				must(t, err)
				must(t, recovery.Reconnect(qc, q.space))
			case holderStalls:
				for range 20 {
					q.maintain(qc, &qs, 0)
					qc.Sleep(term/2 + 1)
					renew(all...)
				}
			case holderFails:
				p.arm(0)
				if ps != nil {
					_, _ = ps.Step(pc)
				}
				p.disarm()
				must(t, recovery.Reconnect(pc, p.space))
				ps, alive = nil, all
			case holderCloses:
				must(t, p.space.Close(p.ctl.Plain()))
			}
			maintained := func(worlds ...*world) {
				t.Helper()
				due := true
				for round := 0; due && round < 4; round++ {
					due = false
					for _, w := range worlds {
						var s *recovery.Sweeper
						due = w.maintain(w.newThread().Plain(), &s, 1<<20) || due
					}
				}
				if due {
					t.Fatalf("%s: something stays to be swept", what)
				}
			}
			if way == holderSleeps { // late verbs of its sweep fail, or do no harm
				for i := 0; ps != nil && i < 100; i++ {
					if done, err := ps.Step(pc); done || err != nil {
						break
					}
				}
			}
			maintained(alive...)
			if way == holderSleeps || way == holderStalls {
				must(t, p.space.Follow())
				must(t, recovery.Reconnect(pc, p.space))
				// it comes to its end all the same, unless its registration was ended
				for i := 0; ps != nil && i < 10_000; i++ {
					if done, err := ps.Step(pc); done || err != nil {
						if way != holderSleeps || !errors.Is(err, memory.ErrEnded) {
							must(t, err)
						}
						break
					}
				}
				maintained(all...)
			}
			if l := q.space.Layout(); l.Unswept || l.Holder(layout.RightSweep) != 0 {
				t.Fatalf("%s: unswept %v, by process %d", what, l.Unswept, l.Holder(layout.RightSweep))
			}
			for _, w := range alive {
				must(t, w.space.Follow())
				if w.space.HalfDone(w.f.Now()) {
					t.Errorf("%s: process %d takes indexes to be half-changed", what, w.space.Process())
				}
				se, tx := w.session()
				for i := range 20 {
					w.sure(se, tx, put(fmt.Sprint("more", i), "x"))
				}
				must(t, se.Close())
			}
			verified(t, q)
			if t.Failed() {
				return
			}
		}
	}
}

// TestFailingBesideHolder: a process has taken over the lock of a dead one's block, and its verbs
// fail, while another process has the right to sweep. That one cannot tell that the lock is left
// over. The first one sweeps, too, and soon nothing is left.
func TestFailingBesideHolder(t *testing.T) {
	cases := 0
	for k := 2; k < 30; k++ {
		all := expiring(t, 1_000_000_000)
		p, holder := all[1], all[2] // the segments of indexes are the first one's
		_, victim := p.session()
		p.arm(k)
		_ = p.do(victim, put("a", "x"), put("b", "y"))
		if !p.disarm() {
			break
		}
		holder.settleDead(victim.ID().Coordinator())
		name := uint64(record.HeldBy(record.MakeTxID(p.space.Process(), record.MaxSequence)))
		if p.failing(func(wr *rdma.WR) bool { return wr.Op == rdma.OpCAS && wr.Swap == name }) {
			cases++
		}
		due := true
		for round := 0; due && round < 4; round++ {
			due = false
			for _, w := range []*world{holder, all[0], p} {
				c := w.newThread().Plain()
				must(t, recovery.Reconnect(c, w.space))
				var s *recovery.Sweeper
				due = w.maintain(c, &s, 1<<20) || due
			}
		}
		if due {
			t.Fatalf("a victim that stopped after %d verbs: something stays to be swept", k)
		}
		whole(t, fmt.Sprintf("a victim that stopped after %d verbs", k), all)
	}
	if cases == 0 {
		t.Error("no sweep has taken a lock over")
	}
}

// verified demands that the index of a world's table, a hash index, is sound.
func verified(t *testing.T, w *world) {
	t.Helper()
	ix, ok := w.table.Index.(*race.Index)
	if !ok {
		t.Fatal("no hash index")
	}
	must(t, ix.Verify(w.newThread().Plain()))
}
