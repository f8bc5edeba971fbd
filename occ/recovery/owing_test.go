package recovery_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/verify"
)

// strays counts, by process, the free blocks of its segments that no allocator has. Those that
// another process has freed do not count: they are found when the owner looks through its segments.
func strays(t *testing.T, all []*world, report func(f verify.Finding) error) (out []int) {
	t.Helper()
	var free []memory.FreeBlock
	w := all[0]
	must(t, w.space.Follow())
	w.examine(verify.Options{Report: report, Free: func(a layout.Addr, v uint64) {
		free = append(free, memory.FreeBlock{Addr: a, Version: v})
	}})
	c := w.newThread().Plain()
	must(t, recovery.Reconnect(c, w.space))
	buf, err := c.Thread().Alloc(record.LineSize)
	must(t, err)
	for _, x := range all {
		must(t, x.space.Follow())
		nobodys, twice := x.space.Unowned(free)
		if len(twice) > 0 {
			t.Errorf("process %d has blocks twice: %v", x.space.Process(), twice)
		}
		n := 0
		for _, f := range nobodys {
			var b rdma.Batch
			b.Read(w.space.View().At(f.Addr, 0), buf, record.LineSize)
			must(t, c.Do(&b))
			if record.Image(c.Thread().Bytes(buf, record.LineSize)).Freed() != memory.FreedByOther {
				n++
			}
		}
		out = append(out, n)
	}
	return out
}

// settleDead recovers coordinators, and sweeps nothing. All processes know of it then.
func (w *world) settleDead(ids ...uint32) {
	w.t.Helper()
	must(w.t, w.space.Follow())
	if len(ids) > 0 {
		th := w.newThread()
		must(w.t, recovery.Reconnect(th.Plain(), w.space))
		_, err := recovery.Recover(th.Plain(), w.eng.Recovery(), ids...)
		must(w.t, err)
	}
	for _, x := range (*w.others)[1:] {
		must(w.t, x.space.Follow())
		must(w.t, recovery.Reconnect(x.ctl.Plain(), x.space))
	}
}

// TestOwing: blocks become strays in each way that there is, and the sweep for all is done by a
// process that cannot tell. Their owner finds them, though another process has the right to sweep.
// Afterwards no process has anything to be swept.
func TestOwing(t *testing.T) {
	const term = 1_000_000_000
	sound := func(f verify.Finding) error {
		t.Errorf("%v", f)
		return nil
	}
	large := strings.Repeat("large ", 500)
	// A session that was at work has blocks of its process in its lists.
	worked := func(w *world, key string) (*occ.Session, *occ.Tx) {
		se, tx := w.session()
		for i := range 5 {
			w.sure(se, tx, put(fmt.Sprint(key, i), "x"))
		}
		w.sure(se, tx, del(fmt.Sprint(key, 0)))
		tx.Coro().Sleep(10_000)
		return se, tx
	}
	// The third process has the right to sweep.
	third := func(p, q, r *world) {
		se, _ := worked(r, "third")
		r.settleDead(se.Coordinator())
		if holder := r.space.Layout().Holder(layout.RightSweep); holder != r.space.Process() {
			t.Fatalf("the holder is %d", holder)
		}
		must(t, p.space.Follow())
		must(t, q.space.Follow())
	}
	cases := []struct {
		name string
		n    int
		do   func(p, q, r *world, k int) // something stops after k verbs
	}{
		{"recovered by another process", 1, func(p, q, _ *world, _ int) {
			se, _ := worked(p, "k")
			q.settleDead(se.Coordinator())
		}},
		{"recovered by its own process, beside the holder", 1, func(p, q, r *world, _ int) {
			se, _ := worked(p, "k")
			third(p, q, r)
			p.settleDead(se.Coordinator())
		}},
		{"recovered by the holder", 1, func(p, q, r *world, _ int) {
			se, _ := worked(p, "k")
			third(p, q, r)
			r.settleDead(se.Coordinator())
		}},
		{"freed by a recovery of another process's coordinator", 40, func(p, q, r *world, k int) {
			se, _ := worked(p, "k")
			must(t, se.Close())
			third(p, q, r)
			_, victim := q.session()
			q.arm(k)
			_ = q.do(victim, put("k1", large))
			q.disarm()
			p.settleDead(victim.ID().Coordinator())
		}},
		{"freed by a recovery that another process has ended", 60, func(p, q, r *world, k int) {
			se, _ := worked(p, "k")
			must(t, se.Close())
			third(p, q, r)
			_, victim := q.session()
			n := 0
			q.stop = stop{left: -1, pick: func(wr *rdma.WR) bool { // behind the commit
				n++
				return n > 12
			}}
			_ = q.do(victim, put("k1", large), put("k2", large))
			q.disarm()
			by, _ := p.session()
			o, c := by.Recovery(), by.Thread().Plain()
			o.Term = 1_000_000
			p.arm(k)
			_, _ = recovery.Recover(c, o, victim.ID().Coordinator())
			p.disarm()
			must(t, q.space.Follow())
			c.Sleep(40 * o.Term) // until the claim has expired
			if q.space.Registered(victim.ID().Coordinator()) {
				q.settleDead(victim.ID().Coordinator())
			}
		}},
		{"adopted when slots may lead to free blocks", 1, func(p, q, r *world, _ int) {
			must(t, p.f.StopBlade(0))
			_, err := recovery.FailOver(p.newThread().Plain(), p.eng.Recovery(), p.space.DeclareDead(0))
			must(t, err)
			p.settleDead()
			must(t, recovery.Reconnect(p.ctl.Plain(), p.space))
			se, tx := r.session()
			for i := range 5 {
				r.sure(se, tx, put(fmt.Sprint("k", i), large))
			}
			must(t, se.Close())
			gone := r.space.Process()
			must(t, r.space.Close(r.ctl.Plain()))
			*p.others = (*p.others)[:len(*p.others)-1]
			must(t, p.space.Follow())
			_, err = p.space.TakeOver(p.f.Now())
			must(t, err)
			p.settleDead()
			for range 2 {
				for _, w := range []*world{p, q} {
					var s *recovery.Sweeper
					w.maintain(w.newThread().Plain(), &s, 1<<20)
				}
			}
			if got := strays(t, []*world{p, q}, sound); got[0]+got[1] > 0 {
				t.Fatalf("strays before: %v", got)
			}
			se, tx = p.session()
			for i := range 90 {
				p.sure(se, tx, put(fmt.Sprint("new", i), large))
			}
			must(t, se.Close())
			l := p.space.Layout()
			if slices.ContainsFunc(l.Segments, func(g layout.Segment) bool {
				return g.Owner == gone && g.Kind == layout.KindBlocks && g.Class == 6
			}) {
				t.Fatal("nothing was adopted")
			}
		}},
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			found := 0
			for k := range x.n {
				all := expiring(t, term)
				x.do(all[0], all[1], all[2], k)
				all = (*all[0].others)[1:]
				before := strays(t, all, func(verify.Finding) error { return nil })
				found += before[0]
				for range 3 {
					for _, w := range all {
						var s *recovery.Sweeper
						w.maintain(w.newThread().Plain(), &s, 1<<20)
					}
				}
				if after := strays(t, all, sound); slices.Max(after) > 0 {
					t.Fatalf("after %d verbs: strays are left: %v, of %v", k, after, before)
				}
				for _, w := range all {
					must(t, w.space.Follow())
					if _, due := w.space.Unswept(); due {
						t.Fatalf("after %d verbs: process %d has something to sweep", k, w.space.Process())
					}
				}
			}
			if found == 0 {
				t.Fatal("no strays")
			}
		})
	}
}
