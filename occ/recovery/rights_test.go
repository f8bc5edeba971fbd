package recovery_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/verify"
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

// TestTwoHolders: a session dies and leaves locks. One process sweeps
// alone, or two are there, whose maintenance takes steps in turn. They need as many verbs as
// one. No lock is left then, and both can insert.
func TestTwoHolders(t *testing.T) {
	verbs := map[int]uint64{}
	for _, n := range []int{1, 2} {
		all := processes(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{ReclaimAfter: 1}, 3, 24<<20, false)
		p, q, dead := all[0], all[1], all[2]
		coordinator := dead.leaveLocks()
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
		t.Logf("%d processes sweep: %d verbs, %d round trips of both", n, verbs[n], total.RoundTrips)
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

// leaveLocks has a session of a process stop with locks, and returns its coordinator.
func (w *world) leaveLocks() uint32 {
	w.t.Helper()
	se, tx := w.session()
	var ops []op
	for i := range 40 {
		ops = append(ops, put(fmt.Sprint("key", i), "x"))
	}
	w.sure(se, tx, ops...)
	tx.Coro().Sleep(10_000)
	must(w.t, w.open(tx, ops...))
	return se.Coordinator()
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
			dead := owner.leaveLocks()
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
	for k := range 2 {
		all := expiring(t, 1_000_000_000)
		p, holder := all[k], all[2]
		dead, _ := p.reserved()
		holder.settleDead(dead)
		name := uint64(record.HeldBy(record.MakeTxID(p.space.Process(), record.MaxSequence)))
		if p.failing(func(wr *rdma.WR) bool { return wr.Op == rdma.OpCAS && wr.Swap == name }) {
			cases++
		}
		due := true
		for round := 0; due && round < 4; round++ {
			due = false
			for _, w := range []*world{holder, all[1-k], p} {
				c := w.newThread().Plain()
				must(t, recovery.Reconnect(c, w.space))
				var s *recovery.Sweeper
				due = w.maintain(c, &s, 1<<20) || due
			}
		}
		if due {
			t.Fatalf("process %d: something stays to be swept", k)
		}
		whole(t, fmt.Sprintf("process %d", k), all)
	}
	if cases == 0 {
		t.Error("no sweep has taken a lock over")
	}
}

// verified demands that the database of a world is sound.
func verified(t *testing.T, w *world) {
	t.Helper()
	must(t, w.space.Follow())
	w.examine(verify.Options{Report: func(f verify.Finding) error { t.Error(f); return nil }})
}
