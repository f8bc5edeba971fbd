package recovery_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// inFlight is how many transactions a coordinator is stopped in the middle of.
const inFlight = 64

// mostTrips is how many round trips a recovery of them may take, beyond the reading
// of the log.
const mostTrips = 50

// TestRoundTrips: the transactions of a coordinator are recovered together, whatever
// they were about to do, and wherever they were stopped.
func TestRoundTrips(t *testing.T) {
	stops := 12
	if testing.Short() {
		stops = 4
	}
	for _, kind := range []struct {
		name   string
		before bool // the records exist
		value  string
	}{
		{"updates", true, "2"},
		{"moves", true, long},
		{"inserts", false, "2"},
	} {
		for _, s := range []setting{
			{occ.PolicyDefault, 1, weak}, {occ.PolicyDefault, 2, weak}, {occ.PolicyFORD, 1, weak},
			{occ.PolicyFORD, 2, weak},
		} {
			_, verbs := roundTrips(t, s, kind.before, kind.value, never)
			most, trips := 0, uint64(0)
			for i := range stops {
				rep, _ := roundTrips(t, s, kind.before, kind.value, verbs*i/stops)
				most = max(most, rep.Finished+len(rep.Aborted))
				trips = max(trips, rep.RoundTrips)
			}
			t.Logf("%s, %v: at most %d to finish or undo, %d round trips", kind.name, s, most, trips)
			if most < inFlight*2/3 {
				t.Errorf("%s, %v: at most %d transactions were in flight", kind.name, s, most)
			}
			if trips > mostTrips {
				t.Errorf("%s, %v: %d round trips, more than %d", kind.name, s, trips, mostTrips)
			}
		}
	}
}

// never is a number of verbs that no test comes to.
const never = 1 << 30

// roundTrips lets 64 transactions begin to commit, each of which puts value to two
// keys, stops them after a number of verbs, and recovers them. It returns how many
// verbs there were.
func roundTrips(t *testing.T, s setting, before bool, value string, stop int) (recovery.Report, int) {
	t.Helper()
	return recoveryOn(t, s, before, value, stop, func(w *world) *rdma.Thread { return w.ctl })
}

// recoveryOn is roundTrips on a thread.
func recoveryOn(t *testing.T, s setting, before bool, value string, stop int,
	thread func(w *world) *rdma.Thread) (recovery.Report, int) {
	t.Helper()
	w := newWorld(t, s, occ.Options{})
	ours, own := w.session()
	for i := range inFlight {
		if before {
			w.sure(ours, own, put(fmt.Sprintf("%da", i), "1"), put(fmt.Sprintf("%db", i), "1"))
		}
	}
	own.Coro().Sleep(10_000)
	th := w.newThreadOf(16 << 20)
	se, err := w.eng.NewSession(th)
	must(t, err)
	// All have executed before the first one commits.
	left := inFlight
	th.Run(inFlight, func(c *rdma.Coro) {
		tx, err := se.NewTx(c)
		must(t, err)
		must(t, tx.Begin())
		for _, k := range []string{"a", "b"} {
			i, err := tx.Stage(w.table, fmt.Appendf(nil, "%d%s", c.ID(), k), true)
			must(t, err)
			if before {
				must(t, tx.Put(i, []byte(value)))
			} else {
				must(t, tx.Insert(i, []byte(value))) // Execute links a block
			}
		}
		must(t, tx.Execute())
		for left--; left > 0; {
			c.Yield()
		}
		if c.ID() == 0 {
			w.arm(stop)
		}
		if err := tx.Commit(); err != nil && !errors.Is(err, occ.ErrBroken) && !errors.Is(err, occ.ErrOutcomeUnknown) {
			t.Error(err)
		}
	})
	verbs := stop - w.stop.left
	w.disarm()
	rep, err := recovery.Recover(thread(w).Plain(), w.eng.Recovery(), se.Coordinator())
	must(t, err)
	w.sweep()
	w.check(fmt.Sprintf("%v, stopped after %d verbs", s, stop))
	return rep, verbs
}

// TestFlushes: a disk is not told of each image that a recovery writes: the FLUSHes of one after
// the loss of a blade are as many for hundreds of transactions as for a few.
func TestFlushes(t *testing.T) {
	flushes := func(n int) (uint64, int) {
		w := newWorldOf(t, setting{occ.PolicyDefault, 2, strong}, occ.Options{}, 256<<10)
		must(t, w.space.SetCheckpoint(1))
		w.eng = occ.NewEngine(w.space, occ.Options{CacheBytes: 64 << 10, Flush: occ.FlushDurable})
		se, tx := w.session()
		for i := range n {
			w.sure(se, tx, put(fmt.Sprint(i), fmt.Sprint(i)))
		}
		var count rdma.Counters
		c := w.newThread().Plain()
		c.Count = &count
		rep, err := recovery.FailOver(c, w.eng.Recovery(), w.space.DeclareDead(w.copiesOf("0")[0].Blade))
		must(t, err)
		if w.space.Checkpoint() == 1 {
			t.Error("no checkpoint has been made")
		}
		return count.Verbs[rdma.OpFlush], rep.Finished
	}
	few, _ := flushes(20)
	many, finished := flushes(240)
	t.Logf("%d FLUSHes, and %d with %d transactions to finish", few, many, finished)
	if finished < 200 {
		t.Errorf("%d transactions were finished: this tests nothing", finished)
	}
	if few == 0 || many > few+4 { // more of the log is to be cleared
		t.Errorf("%d FLUSHes, and %d with more transactions", few, many)
	}
}

// TestClaims: one recovers, others wait, until he is dead himself.
func TestClaims(t *testing.T) {
	w := newWorld(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{})
	se, _ := w.session()
	id := se.Coordinator()
	se, _ = w.session()
	seven := se.Coordinator()
	se, _ = w.session()
	eight := se.Coordinator()
	before := w.space.View().Epoch
	if _, err := w.space.Claim(memory.ClaimOptions{By: 1 << 20, Now: 100, Until: 200}, id); !errors.Is(err,
		memory.ErrClaimed) {
		t.Errorf("claimed by a coordinator that there is not: %v", err)
	}
	first, err := w.space.Claim(memory.ClaimOptions{By: seven, Now: 100, Until: 200}, id)
	must(t, err)
	if e := w.space.View().Epoch; e != before+1 {
		t.Errorf("epoch %d after %d", e, before)
	}
	if _, err := w.space.Claim(memory.ClaimOptions{By: eight, Now: 200, Until: 300}, id); !errors.Is(err,
		memory.ErrClaimed) {
		t.Errorf("claimed twice: %v", err)
	}
	if st := w.space.Lease(id, 150); st != memory.LeaseClaimed {
		t.Errorf("lease: %v", st)
	}
	second, err := w.space.Claim(memory.ClaimOptions{By: eight, Now: 201, Until: 300}, id)
	must(t, err)
	if err := first.Forget(); !errors.Is(err, memory.ErrClaimed) {
		t.Errorf("the first one forgets what the second has claimed: %v", err)
	}
	if err := first.Decide([]layout.Verdict{{Coordinator: id}}); !errors.Is(err, memory.ErrClaimed) {
		t.Errorf("the first one decides what the second has claimed: %v", err)
	}
	if first.View().Epoch == second.View().Epoch {
		t.Error("both have one epoch")
	}
	var rep recovery.Report
	must(t, recovery.Run(w.ctl.Plain(), w.eng.Recovery(), second, &rep))
	if w.space.Registered(id) {
		t.Error("it is still there")
	}
	if _, err := w.space.Claim(memory.ClaimOptions{By: eight}, id); !errors.Is(err, memory.ErrNoCoordinator) {
		t.Errorf("claimed when it was gone: %v", err)
	}
}

// TestClaimAfterSomebodyElse: who claims what somebody else has had a claim on moves the
// epoch, even if no verb of the coordinators can be on its way: his may be. Who claims
// again what is his still, after an attempt that has failed, need not.
func TestClaimAfterSomebodyElse(t *testing.T) {
	w := newWorld(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{})
	se, _ := w.session()
	id := se.Coordinator()
	se, _ = w.session()
	eight := se.Coordinator()
	before := w.space.View().Epoch
	own, err := w.space.Claim(memory.ClaimOptions{By: id, Now: 100, Until: 200, Stay: true}, id)
	must(t, err)
	own, err = w.space.Claim(memory.ClaimOptions{By: id, Now: 100, Until: 200, Stay: true, Again: own}, id)
	must(t, err)
	if e := w.space.View().Epoch; e != before {
		t.Errorf("epoch %d after %d, without anybody else", e, before)
	}
	second, err := w.space.Claim(memory.ClaimOptions{By: eight, Now: 210, Until: 300, Stay: true}, id)
	must(t, err)
	if e := w.space.View().Epoch; e != before+1 {
		t.Errorf("epoch %d after %d: verbs of the first one can arrive still", e, before)
	}
	if _, err := w.space.Claim(memory.ClaimOptions{By: id, Now: 220, Until: 400, Stay: true, Again: own},
		id); !errors.Is(err, memory.ErrClaimed) {
		t.Errorf("the first one takes back what the second has: %v", err)
	}
	// One more of the second's session: without the claim, it is somebody else.
	_, err = w.space.Claim(memory.ClaimOptions{By: eight, Now: 210, Until: 300, Stay: true}, id)
	must(t, err)
	if e := w.space.View().Epoch; e != before+2 {
		t.Errorf("epoch %d after %d", e, before+1)
	}
	if err := second.Forget(); !errors.Is(err, memory.ErrClaimed) {
		t.Errorf("a claim that was taken over: %v", err)
	}
}

// TestClaimIsRenewed: who recovers for longer than a claim is good is not taken for dead
// meanwhile; who has lost his claim learns it.
func TestClaimIsRenewed(t *testing.T) {
	const term = 5000
	w := newWorld(t, setting{occ.PolicyDefault, 2, weak}, occ.Options{LeaseTerm: term})
	se, tx := w.session()
	w.sure(se, tx, put("a", "1"), put("b", "1"))
	w.arm(9)
	if told := w.do(tx, put("a", "2"), put("b", "2"), put("c", "2")); !w.disarm() || told == nil {
		t.Fatalf("it was not stopped: %v", told)
	}
	other, _ := w.session()
	eight, begun, longest := other.Coordinator(), w.ctl.Now(), int64(0)
	w.stop.at = func() {
		now := w.ctl.Now()
		if longest == 0 && w.space.Lease(se.Coordinator(), now) != memory.LeaseClaimed {
			return
		}
		longest = now - begun
		if _, err := w.space.Claim(memory.ClaimOptions{By: eight, Now: now, Until: now + term},
			se.Coordinator()); !errors.Is(err, memory.ErrClaimed) {
			t.Fatalf("%d ns after the first verb: claimed by somebody else: %v", now-begun, err)
		}
	}
	_, err := recovery.Recover(w.ctl.Plain(), w.eng.Recovery(), se.Coordinator())
	must(t, err)
	if longest <= term {
		t.Fatalf("it took only %d ns", longest)
	}
	w.disarm()

	id, now := eight, w.ctl.Now()
	first, err := w.space.Claim(memory.ClaimOptions{Now: now, Until: now + term}, id)
	must(t, err)
	must(t, first.Renew(now+2*term))
	if _, err := w.space.Claim(memory.ClaimOptions{Now: now + term + 1, Until: now + 3*term}, id); !errors.Is(err,
		memory.ErrClaimed) {
		t.Errorf("claimed twice: %v", err)
	}
	second, err := w.space.Claim(memory.ClaimOptions{Now: now + 2*term + 1, Until: now + 3*term}, id)
	must(t, err)
	if err := first.Renew(now + 9*term); !errors.Is(err, memory.ErrClaimed) {
		t.Errorf("extended when it was somebody else's: %v", err)
	}
	must(t, w.space.AdvanceEpoch(nil))
	if err := second.Renew(now + 9*term); !errors.Is(err, rdma.ErrStaleKey) {
		t.Errorf("extended in another epoch: %v", err)
	}
}
