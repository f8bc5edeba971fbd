package recovery_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/memory"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// inFlight is how many transactions a coordinator is stopped in the middle of.
const inFlight = 64

// mostTrips is how many round trips a recovery of them may take, beyond the reading
// of the log.
const mostTrips = 50

// TestRoundTrips: the transactions of a coordinator are recovered together.
func TestRoundTrips(t *testing.T) {
	for _, s := range []setting{
		{occ.PolicyDefault, 1, weak}, {occ.PolicyDefault, 2, weak}, {occ.PolicyFORD, 1, weak}, {occ.PolicyFORD, 2, weak},
	} {
		w := newWorld(t, s, occ.Options{})
		ours, own := w.session()
		for i := range inFlight {
			w.sure(ours, own, put(fmt.Sprintf("%da", i), "1"), put(fmt.Sprintf("%db", i), "1"))
		}
		own.Coro().Sleep(10_000)
		th := w.newThreadOf(16 << 20)
		se, err := w.eng.NewSession(th)
		must(t, err)
		// Every transaction runs until it has written its images, and none is released.
		left := inFlight
		th.Run(inFlight, func(c *rdma.Coro) {
			tx, err := se.NewTx(c)
			must(t, err)
			must(t, tx.Begin())
			for _, k := range []string{"a", "b"} {
				i, err := tx.Stage(w.table, fmt.Appendf(nil, "%d%s", c.ID(), k), true)
				must(t, err)
				must(t, tx.Put(i, []byte("2")))
			}
			must(t, tx.Execute())
			for left--; left > 0; {
				c.Yield()
			}
			if c.ID() == 0 {
				w.arm(inFlight * (3*s.backups + 1)) // the log records and, more or less, the images
			}
			if err := tx.Commit(); err != nil && !errors.Is(err, occ.ErrBroken) && !errors.Is(err, occ.ErrOutcomeUnknown) {
				t.Error(err)
			}
		})
		w.disarm()
		rep, err := recovery.Recover(w.ctl.Plain(), w.eng.Recovery(), se.Coordinator())
		must(t, err)
		t.Logf("%v: %d finished, %d undone: %d round trips, and %d for the log", s, rep.Finished, len(rep.Aborted), rep.RoundTrips, rep.ScanTrips)
		if n := rep.Finished + len(rep.Aborted); n < inFlight/2 {
			t.Errorf("%v: %d transactions were in flight", s, n)
		}
		if rep.RoundTrips > mostTrips {
			t.Errorf("%v: %d round trips, more than %d", s, rep.RoundTrips, mostTrips)
		}
		_, err = recovery.Sweep(w.ctl.Plain(), w.eng.Recovery())
		must(t, err)
		w.check(s.String())
	}
}

// TestClaims: one recovers, others wait, until he is dead himself.
func TestClaims(t *testing.T) {
	w := newWorld(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{})
	se, _ := w.session()
	id := se.Coordinator()
	before := w.space.View().Epoch
	first, err := w.space.Claim(memory.ClaimOptions{By: 7, Now: 100, Until: 200}, id)
	must(t, err)
	if e := w.space.View().Epoch; e != before+1 {
		t.Errorf("epoch %d after %d", e, before)
	}
	if _, err := w.space.Claim(memory.ClaimOptions{By: 8, Now: 200, Until: 300}, id); !errors.Is(err, memory.ErrClaimed) {
		t.Errorf("claimed twice: %v", err)
	}
	if st := w.space.Lease(id, 150); st != memory.LeaseClaimed {
		t.Errorf("lease: %v", st)
	}
	second, err := w.space.Claim(memory.ClaimOptions{By: 8, Now: 201, Until: 300}, id)
	must(t, err)
	if err := first.Forget(); !errors.Is(err, memory.ErrClaimed) {
		t.Errorf("the first one forgets what the second has claimed: %v", err)
	}
	if err := first.Decide([]memory.Verdict{{Coordinator: id}}); !errors.Is(err, memory.ErrClaimed) {
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
	if _, err := w.space.Claim(memory.ClaimOptions{By: 8}, id); !errors.Is(err, memory.ErrNoCoordinator) {
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
	before := w.space.View().Epoch
	own, err := w.space.Claim(memory.ClaimOptions{By: id, Now: 100, Until: 200, Stay: true}, id)
	must(t, err)
	own, err = w.space.Claim(memory.ClaimOptions{By: id, Now: 100, Until: 200, Stay: true, Again: own}, id)
	must(t, err)
	if e := w.space.View().Epoch; e != before {
		t.Errorf("epoch %d after %d, without anybody else", e, before)
	}
	second, err := w.space.Claim(memory.ClaimOptions{By: 8, Now: 210, Until: 300, Stay: true}, id)
	must(t, err)
	if e := w.space.View().Epoch; e != before+1 {
		t.Errorf("epoch %d after %d: verbs of the first one can arrive still", e, before)
	}
	if _, err := w.space.Claim(memory.ClaimOptions{By: id, Now: 220, Until: 400, Stay: true, Again: own}, id); !errors.Is(err, memory.ErrClaimed) {
		t.Errorf("the first one takes back what the second has: %v", err)
	}
	// One more of the second's session: without the claim, it is somebody else.
	_, err = w.space.Claim(memory.ClaimOptions{By: 8, Now: 210, Until: 300, Stay: true}, id)
	must(t, err)
	if e := w.space.View().Epoch; e != before+2 {
		t.Errorf("epoch %d after %d", e, before+1)
	}
	if err := second.Forget(); !errors.Is(err, memory.ErrClaimed) {
		t.Errorf("a claim that was taken over: %v", err)
	}
}
