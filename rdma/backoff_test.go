package rdma_test

import (
	"slices"
	"testing"

	"txnode/internal/raced"
	"txnode/rdma"
)

// retry backs off once and returns how long that took.
func retry(c *rdma.Coro) int64 {
	t0 := c.Thread().Now()
	c.Backoff()
	return c.Thread().Now() - t0
}

// TestBackoffEquation: the i-th retry waits min(t0*2^i, t_max) + rand(t0).
func TestBackoffEquation(t *testing.T) {
	th := newThread(t, rig{tech: rdma.Techniques{Backoff: true}})
	c := th.Plain()
	jitter := map[int64]bool{}
	for range 20 {
		c.BeginOp()
		for i := range 25 {
			d := min(int64(rdma.BackoffUnitNs)<<min(i, 30), rdma.BackoffMaxNs)
			got := retry(c)
			if got < d || got >= d+rdma.BackoffUnitNs {
				t.Fatalf("retry %d waited %d ns; want from %d to less than %d", i, got, d, d+rdma.BackoffUnitNs)
			}
			jitter[got-d] = true
		}
		c.EndOp()
	}
	if len(jitter) < 300 {
		t.Errorf("the random part took %d values in 500 retries", len(jitter))
	}
	if rdma.BackoffMaxNs != rdma.BackoffUnitNs<<10 {
		t.Error("t_M is not 2^10 t_0")
	}
}

// TestBackoffOptions: SMART's program backs off without a limit where it is not dynamic, and its
// dynamic limit moves every 20 ms.
func TestBackoffOptions(t *testing.T) {
	r := rig{tech: rdma.Techniques{Backoff: true}, backoff: rdma.SMARTBackoff}
	c := newThread(t, r).Plain()
	c.BeginOp()
	for i := range 23 {
		d := int64(rdma.BackoffUnitNs) << min(i, 20)
		if got := retry(c); got < d || got >= d+rdma.BackoffUnitNs {
			t.Fatalf("retry %d waited %d ns; want from %d to less than %d", i, got, d, d+rdma.BackoffUnitNs)
		}
	}
	c.EndOp()
	r.tech.DynLimit = true
	th := newThread(t, r)
	from := th.Now()
	for th.Limits().BackoffNs == rdma.BackoffUnitNs {
		contend(th.Plain(), rdma.BackoffEpochNs, 3)
	}
	if took := th.Now() - from; took < 20_000_000 || took > 25_000_000 {
		t.Errorf("the limit moved after %d ns; want some 20 ms", took)
	}
	th.SetBackoff(rdma.BackoffOptions{})
	before := th.Limits().BackoffNs
	contend(th.Plain(), 2*rdma.BackoffEpochNs, 3)
	if now := th.Limits().BackoffNs; now <= before {
		t.Errorf("with epochs of a millisecond the limit is %d after two of them, and was %d", now, before)
	}
}

// TestBackoffOff: without the technique a retry only lets others run.
func TestBackoffOff(t *testing.T) {
	th := newThread(t, rig{})
	var order []int
	th.Run(3, func(c *rdma.Coro) {
		c.BeginOp()
		for range 5 {
			order = append(order, c.ID())
			if d := retry(c); d > 1000 {
				t.Errorf("a retry took %d ns", d)
			}
		}
		c.EndOp()
	})
	if !slices.Equal(order[:6], []int{0, 1, 2, 0, 1, 2}) {
		t.Errorf("order %v", order)
	}
}

// contend spends ns in operations of which each takes a microsecond and is
// retried that many times.
func contend(c *rdma.Coro, ns int64, retries int) {
	for until := c.Thread().Now() + ns; c.Thread().Now() < until; {
		c.BeginOp()
		for range retries {
			c.Backoff()
		}
		c.Sleep(1000)
		c.EndOp()
	}
}

// TestBackoffDynamicLimit: t_max doubles each millisecond while more than half of
// the attempts are retries, up to t_M, and halves while less than a tenth are,
// down to t_0, also when there are none; between, it stays.
func TestBackoffDynamicLimit(t *testing.T) {
	th := newThread(t, rig{tech: rdma.Techniques{Backoff: true, DynLimit: true}})
	c := th.Plain()
	limit := func() int64 { return th.Limits().BackoffNs }
	if limit() != rdma.BackoffUnitNs {
		t.Errorf("t_max starts at %d; want t_0", limit())
	}
	last := limit()
	for i := 0; limit() < rdma.BackoffMaxNs; i++ {
		contend(c, rdma.BackoffEpochNs, 3)
		if l := limit(); l != last && l != 2*last || i > 40 {
			t.Fatalf("t_max went from %d to %d after %d ms of contention", last, l, i+1)
		}
		last = limit()
	}
	contend(c, 10*rdma.BackoffEpochNs, 3)
	if limit() != rdma.BackoffMaxNs {
		t.Errorf("t_max went on to %d; want t_M, %d", limit(), rdma.BackoffMaxNs)
	}
	for range 50 { // every third attempt
		contend(c, rdma.BackoffEpochNs, 0)
		c.BeginOp()
		c.EndOp()
		break
	}
	mixed := func(ns int64) {
		for until := th.Now() + ns; th.Now() < until; {
			contend(c, 1, 0)
			contend(c, 1, 1)
		}
	}
	mixed(rdma.BackoffEpochNs * 3) // lets the epoch of the contention end
	last = limit()
	mixed(20 * rdma.BackoffEpochNs)
	if limit() != last {
		t.Errorf("with a third of the attempts retried, t_max went from %d to %d", last, limit())
	}
	for range 40 {
		last = limit()
		contend(c, rdma.BackoffEpochNs, 0)
		if l := limit(); l != last && l != last/2 {
			t.Fatalf("t_max went from %d to %d in a millisecond without retries", last, l)
		}
	}
	if limit() != rdma.BackoffUnitNs {
		t.Errorf("without retries t_max is %d in the end; want t_0, %d", limit(), rdma.BackoffUnitNs)
	}
}

// TestCoroutineCredits: under contention fewer and fewer coroutines may be in an
// operation, down to one; only then t_max grows; both recover.
func TestCoroutineCredits(t *testing.T) {
	raced.Skip(t)
	const coros = 12
	th := newThread(t, rig{tech: rdma.AllTechniques})
	phase := func(ns int64, retries int) (least, most int) {
		in := 0
		least = rdma.MaxCoroCredits
		end := th.Now() + ns
		th.Run(coros, func(c *rdma.Coro) {
			for th.Now() < end {
				c.BeginOp()
				in++
				least = min(least, th.Limits().Coroutines)
				if th.Now() > end-ns/2 {
					most = max(most, in)
				}
				for range retries {
					c.Backoff()
				}
				c.Sleep(1000)
				in--
				c.EndOp()
			}
		})
		if in != 0 || th.Active() != 0 {
			t.Errorf("%d coroutines and %d credits are left in operations", in, th.Active())
		}
		return least, most
	}
	if l := th.Limits(); l.Coroutines != rdma.MaxCoroCredits || l.BackoffNs != rdma.BackoffUnitNs {
		t.Errorf("at the start: %+v", l)
	}
	if _, most := phase(10*rdma.BackoffEpochNs, 0); most != coros {
		t.Errorf("without contention at most %d of %d coroutines were in an operation", most, coros)
	}
	if least, most := phase(10*rdma.BackoffEpochNs, 4); least != 1 || most != 1 {
		t.Errorf("under contention: c_max %d, at most %d coroutines in an operation; want 1 and 1", least, most)
	}
	if l := th.Limits(); l.BackoffNs <= rdma.BackoffUnitNs {
		t.Errorf("after long contention t_max is %d; want more than t_0", l.BackoffNs)
	}
	phase(30*rdma.BackoffEpochNs, 0)
	if l := th.Limits(); l.Coroutines < coros || l.BackoffNs != rdma.BackoffUnitNs {
		t.Errorf("when the contention is gone: %+v; want at least %d coroutines, t_max %d",
			l, coros, rdma.BackoffUnitNs)
	}
	if _, most := phase(5*rdma.BackoffEpochNs, 0); most != coros {
		t.Errorf("when the contention is gone at most %d of %d coroutines are in an operation", most, coros)
	}
}

// TestNoCoroutineStarves: with one credit for all, coroutines take turns, even
// those that begin an operation as soon as they have ended one.
func TestNoCoroutineStarves(t *testing.T) {
	const coros = 10
	th := newThread(t, rig{tech: rdma.AllTechniques})
	var done [coros]int
	var counting bool
	end := th.Now() + 40*rdma.BackoffEpochNs
	th.Run(coros, func(c *rdma.Coro) {
		for th.Now() < end {
			c.BeginOp()
			c.Backoff()
			c.Backoff()
			c.Backoff()
			if counting = counting || th.Limits().Coroutines == 1; counting {
				done[c.ID()]++
			}
			c.EndOp()
		}
	})
	if th.Limits().Coroutines != 1 {
		t.Fatalf("%d credits", th.Limits().Coroutines)
	}
	if lo, hi := slices.Min(done[:]), slices.Max(done[:]); lo < 5 || hi-lo > 2 {
		t.Errorf("operations by coroutine: %v", done)
	}
}

// TestCreditsComeBack: a coroutine that ends inside an operation gives its
// credit back; operations begun twice count once; the plain coroutine waits for
// nobody.
func TestCreditsComeBack(t *testing.T) {
	th := newThread(t, rig{tech: rdma.AllTechniques})
	th.Run(8, func(c *rdma.Coro) { contend(c, 10*rdma.BackoffEpochNs, 4) })
	if n := th.Limits().Coroutines; n != 1 {
		t.Fatalf("%d credits under contention", n)
	}
	ran := 0
	th.Run(5, func(c *rdma.Coro) {
		c.BeginOp()
		c.BeginOp()
		if n := th.Active(); n != 1 {
			t.Errorf("%d credits in use", n)
		}
		th.Plain().BeginOp()
		th.Plain().EndOp()
		c.Yield()
		ran++
	})
	if ran != 5 || th.Active() != 0 {
		t.Errorf("%d of 5 coroutines ran; %d credits are lost", ran, th.Active())
	}
	th.Plain().EndOp() // none begun
	if th.Active() != 0 {
		t.Errorf("%d credits in use", th.Active())
	}
}

// TestCoroutineCreditsOff: without the technique all may be in an operation.
func TestCoroutineCreditsOff(t *testing.T) {
	raced.Skip(t)
	th := newThread(t, rig{tech: rdma.Techniques{Backoff: true, DynLimit: true}})
	in, most := 0, 0
	end := th.Now() + 10*rdma.BackoffEpochNs
	th.Run(100, func(c *rdma.Coro) {
		for th.Now() < end {
			c.BeginOp()
			in++
			most = max(most, in)
			c.Backoff()
			c.Backoff()
			c.Backoff()
			in--
			c.EndOp()
		}
	})
	if most != 100 || th.Limits().Coroutines != 0 {
		t.Errorf("at most %d of 100 in an operation; limits %+v", most, th.Limits())
	}
}
