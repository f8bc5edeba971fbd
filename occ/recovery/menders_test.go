package recovery_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestTwoMenders: a session dies in the middle of a split of an index. One process sweeps alone, or two do it beside each other, step by step, until
// the first has come to its end, as maintenance does. The index is in order then, and both can insert. While one process recovers the
// index, another one is refused. It logs how many verbs they need.
func TestTwoMenders(t *testing.T) {
	verbs := map[int]uint64{}
	for _, n := range []int{1, 2} {
		all := processes(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{ReclaimAfter: 1}, 3, 24<<20, false)
		p, q, dead := all[0], all[1], all[2]
		se, victim := dead.session()
		locked, after := false, 0
		dead.stop = stop{left: -1, pick: func(wr *rdma.WR) bool {
			if locked {
				after++
				return after > 6
			}
			locked = wr.Op == rdma.OpCAS && wr.Swap>>16 == se.Thread().Owner() && wr.Cmp == 0
			return false
		}}
		for i := 0; i < 3000 && dead.do(victim, put(fmt.Sprint("key", i), "x")) == nil; i++ {
		}
		if !dead.disarm() {
			t.Fatal("the index has not been split")
		}
		o := p.eng.Recovery()
		o.Steal = true
		_, err := recovery.Recover(p.newThread().Plain(), o, victim.ID().Coordinator())
		must(t, err)

		var counts [2]rdma.Counters
		var coros [2]*rdma.Coro
		var sweepers [2]*recovery.Sweeper
		for i, w := range []*world{p, q} {
			must(t, w.space.Follow())
			coros[i] = w.newThread().Plain()
			must(t, recovery.Reconnect(coros[i], w.space))
			coros[i].Count = &counts[i]
			sweepers[i] = recovery.NewSweeper(w.eng.Recovery())
		}
		if !p.space.BeginMend(uint32(p.table.ID)) {
			t.Fatal("no right")
		}
		if err := recovery.SweepIndexes(coros[1], q.eng.Recovery()); !errors.Is(err, index.ErrBusy) {
			t.Errorf("the index is recovered by another process, and one gets: %v", err)
		}
		refused := counts[1]
		p.space.EndMend(uint32(p.table.ID))
		counts[1] = rdma.Counters{}

		for swept := false; !swept; {
			for i := range n {
				w := all[i]
				must(t, w.space.Follow())
				if _, due := w.space.Unswept(); !due {
					swept = true
					break
				}
				done, err := sweepers[i].Step(coros[i])
				must(t, err)
				if done && i == 0 {
					swept = true
					break
				}
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
		t.Logf("%d processes sweep: %d verbs, %d round trips of both; the one that was refused: %d verbs", n, verbs[n], total.RoundTrips, sum)
		for _, w := range all[:2] {
			again, tx := w.session()
			for i := range 200 {
				w.sure(again, tx, put(fmt.Sprint("more", i), "x"))
			}
			must(t, again.Close())
			ix, ok := w.table.Index.(*race.Index)
			if !ok {
				t.Fatal("no hash index")
			}
			must(t, ix.Verify(w.newThread().Plain()))
		}
	}
	if verbs[1] == 0 {
		t.Error("nothing was swept")
	}
}
