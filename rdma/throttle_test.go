package rdma_test

import (
	"slices"
	"testing"

	"txnode/internal/raced"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

var throttled = rdma.Techniques{Throttle: true}

// TestThrottleCredits: never more requests outstanding than C_max, and no fewer
// when there are takers.
func TestThrottleCredits(t *testing.T) {
	for _, limit := range []int{1, 4, 7, 12} {
		most := 0
		th := newThread(t, rig{tech: throttled, Options: rdmatest.Options{ServiceNs: func(out int) int64 {
			most = max(most, out)
			return 30
		}}})
		th.FixLimit(limit)
		th.Run(9, func(c *rdma.Coro) {
			var b rdma.Batch
			for range 50 {
				b.Reset()
				for range 1 + int(th.Rand()%uint64(limit)) {
					b.Read(at(rdma.BladeID(th.Rand()%4), 0), 0, 8)
				}
				must(t, c.Do(&b))
				if n := th.Outstanding(); n > limit {
					t.Errorf("limit %d: %d credits in use", limit, n)
				}
			}
		})
		if most != limit || th.Outstanding() != 0 {
			t.Errorf("limit %d: at most %d outstanding, %d in the end", limit, most, th.Outstanding())
		}
	}
}

// TestThrottleOversizeAlone: a batch larger than C_max waits until nothing else
// is outstanding, and nothing joins it.
func TestThrottleOversizeAlone(t *testing.T) {
	const limit, large = 4, 20
	var outs []int
	th := newThread(t, rig{tech: throttled, Options: rdmatest.Options{ServiceNs: func(out int) int64 {
		outs = append(outs, out)
		return 30
	}}})
	th.FixLimit(limit)
	th.Run(5, func(c *rdma.Coro) {
		n := 3
		if c.ID() == 2 {
			n = large
		}
		var b rdma.Batch
		for range 10 {
			b.Reset()
			for range n {
				b.Read(at(0, 0), 0, 8)
			}
			must(t, c.Do(&b))
		}
	})
	runs := 0
	for i, out := range outs {
		switch {
		case out > limit && outs[i-1] != out-1:
			t.Fatalf("request %d is the %dth outstanding, after the %dth", i, out, outs[i-1])
		case out == large:
			runs++
		case out > large:
			t.Fatalf("%d outstanding", out)
		}
	}
	if runs != 10 {
		t.Errorf("%d oversize batches went through; want 10", runs)
	}
}

// TestThrottleIsFair: a batch that fits passes one that waits for more credits; but a batch that
// needs all credits waits for no more than MostPasses others, and those that waited before it.
func TestThrottleIsFair(t *testing.T) {
	const coros, small, large, limit = 9, 1, 8, 8
	th := newThread(t, rig{tech: throttled})
	th.FixLimit(limit)
	went, waited, rounds := 0, 0, 0
	th.Run(coros, func(c *rdma.Coro) {
		n := small
		if c.ID() == 0 {
			n = large
		}
		var b rdma.Batch
		for rounds < 100 {
			b.Reset()
			for range n {
				b.Read(at(0, 0), 0, 8)
			}
			before := went
			c.Post(&b)
			if n == large {
				waited = max(waited, went-before)
				rounds++
			}
			went++
			must(t, c.Wait(&b))
		}
	})
	if most := rdma.MostPasses + coros - 1; waited > most || waited < rdma.MostPasses {
		t.Errorf("a batch of %d waited for %d others; want from %d to %d", large, waited, rdma.MostPasses, most)
	}
}

// TestThrottleOvertakes: a request that fits does not wait behind a batch that does not.
func TestThrottleOvertakes(t *testing.T) {
	th := newThread(t, rig{tech: throttled})
	th.FixLimit(4)
	var order []int
	th.Run(3, func(c *rdma.Coro) {
		var b rdma.Batch
		for range []int{3, 3, 1}[c.ID()] {
			b.Read(at(0, 0), 0, 8)
		}
		c.Post(&b)
		order = append(order, c.ID())
		must(t, c.Wait(&b))
	})
	if want := []int{0, 2, 1}; !slices.Equal(order, want) {
		t.Errorf("batches of 3, 3 and 1 request went in the order %v; want %v", order, want)
	}
}

// TestThrottleErrors: a request that fails, or is flushed behind one that has failed, gives its
// credit back.
func TestThrottleErrors(t *testing.T) {
	posted, failed := 0, 0
	th := newThread(t, rig{tech: throttled, Options: rdmatest.Options{Fail: func(*rdma.WR) rdma.Status {
		if posted++; posted%3 == 0 {
			return rdma.StatusTimeout
		}
		return rdma.StatusOK
	}}})
	var b rdma.Batch
	for range 20 {
		b.Reset()
		for i := range 4 {
			b.Read(at(0, uint64(8*i)), uint32(8*i), 8)
		}
		if err := th.Plain().Do(&b); err != nil {
			failed++
			must(t, th.Reconnect(0))
		}
		if n := th.Outstanding(); n != 0 {
			t.Fatalf("after %d batches that failed, %d credits are lost", failed, n)
		}
	}
	if failed == 0 {
		t.Error("no batch has failed")
	}
}

// thrash is a device that serves a request every 10 µs, and up to four times slower
// when more than best are outstanding; with fewer the round trip is the limit.
func thrash(best *int) rdmatest.Options {
	return rdmatest.Options{
		LatencyNs: 10_000 * int64(min(*best, 12)),
		ServiceNs: func(out int) int64 { return 10_000 * int64(1+min(3, max(0, out-*best))) },
	}
}

// keepBusy runs n coroutines of single READs until the given time.
func keepBusy(t *testing.T, th *rdma.Thread, n int, until int64, each func()) {
	th.Run(n, func(c *rdma.Coro) {
		var b rdma.Batch
		for th.Now() < until {
			b.Reset()
			b.Read(at(0, 0), 0, 8)
			must(t, c.Do(&b))
			each()
		}
	})
}

// TestThrottleTuner: the candidate that completes most requests is found, or no
// limit when none is better, and found again when the workload has changed.
func TestThrottleTuner(t *testing.T) {
	raced.Skip(t)
	for _, policy := range rdma.TunerPolicies {
		update := int64(len(rdma.TunerOrder(policy))+1) * rdma.TuneSpanNs // all candidates, and some
		for _, want := range []int{4, 6, 8, 10, 12} {
			best := want
			th := newThread(t, rig{tech: throttled, tuner: rdma.NewTuner(policy), Options: thrash(&best)})
			keepBusy(t, th, 40, update, func() {})
			if got := th.Limits().WorkRequests; got != want {
				t.Errorf("best with %d outstanding: the tuner %v chose %d", want, policy, got)
			}
		}
		best := 1000
		th := newThread(t, rig{tech: throttled, tuner: rdma.NewTuner(policy), Options: thrash(&best)})
		keepBusy(t, th, 40, update, func() {})
		if got, want := th.Limits().WorkRequests, th.Caps().MaxBatch; got != want {
			t.Errorf("best without limit: the tuner %v chose %d; want %d", policy, got, want)
		}
		best = 8
		keepBusy(t, th, 40, 2*update+rdma.StableSpans*rdma.TuneSpanNs, func() {})
		if got := th.Limits().WorkRequests; got != 8 {
			t.Errorf("after the workload changed, the tuner %v chose %d; want 8", policy, got)
		}
	}
}

// TestThrottleEpochs: each candidate is tried for 8 ms, in order; then the best
// one is kept for 480 ms.
func TestThrottleEpochs(t *testing.T) {
	raced.Skip(t)
	for _, policy := range rdma.TunerPolicies {
		best := 6
		th := newThread(t, rig{tech: throttled, tuner: rdma.NewTuner(policy), Options: thrash(&best)})
		type change struct {
			limit int
			at    int64
		}
		changes := []change{{th.Limits().WorkRequests, 0}}
		keepBusy(t, th, 30, 75*rdma.TuneSpanNs, func() {
			if l := th.Limits().WorkRequests; l != changes[len(changes)-1].limit {
				changes = append(changes, change{l, th.Now()})
			}
		})
		var want []change
		for i, c := range append(slices.Clone(rdma.TunerOrder(policy)), 6) {
			if c == 0 {
				c = th.Caps().MaxBatch
			}
			want = append(want, change{c, int64(i) * rdma.TuneSpanNs})
		}
		want = append(want, change{want[0].limit, 66 * rdma.TuneSpanNs}, change{want[1].limit, 67 * rdma.TuneSpanNs})
		for i, w := range want {
			if i >= len(changes) || changes[i].limit != w.limit || changes[i].at < w.at ||
				changes[i].at > w.at+rdma.TuneSpanNs/2 {
				t.Fatalf("C_max of the tuner %v changed so: %v; want %v", policy, changes, want)
			}
		}
	}
}

// tuned feeds a tuner with what rate says each thread completes in a microsecond under a limit,
// until it is stable, and returns its choice.
func tuned(u *rdma.Tuner, threads int, rate func(thread, limit int) uint64) int {
	shares := make([]rdma.Share, threads)
	for i := range shares {
		shares[i] = u.Join()
	}
	step := int64(rdma.LookNs)
	for now := int64(1); now < int64(len(rdma.TunerOrder(rdma.TunerSMART))+1)*rdma.TuneSpanNs; now += step {
		for i, s := range shares {
			s.Done(rate(i, s.Limit()) * uint64(step) / 1000)
			s.Advance(now)
		}
	}
	return shares[0].Limit()
}

// TestTunerSums: threads that share a tuner have one limit, of which the sum of their completions
// decides. Alone, the first thread decides otherwise.
func TestTunerSums(t *testing.T) {
	best := []int{4, 12, 12}
	rate := func(thread, limit int) uint64 {
		if limit == best[thread] {
			return 10
		}
		return 5
	}
	if got := tuned(rdma.NewTuner(rdma.TunerSMART), len(best), rate); got != 12 {
		t.Errorf("two of three threads are best with 12 requests: they chose %d together", got)
	}
	if got := tuned(rdma.NewTuner(rdma.TunerThread), len(best), rate); got != 4 {
		t.Errorf("the first of three threads is best with 4 requests: alone it chose %d", got)
	}
}

// TestTunerGrows: what a tuner has found out with one thread is forgotten when more than twice as
// many take part, such as after a load by few.
func TestTunerGrows(t *testing.T) {
	u := rdma.NewTuner(rdma.TunerSMART)
	one := u.Join()
	now := int64(1)
	one.Advance(now)
	for range rdma.TunerOrder(rdma.TunerSMART) {
		one.Done(1000)
		now += rdma.TuneSpanNs
		one.Advance(now)
	}
	if got := one.Limit(); got != 0 {
		t.Fatalf("all limits are the same, and the tuner chose %d", got)
	}
	two := u.Join()
	if got := two.Limit(); got != 0 {
		t.Errorf("with a second thread the limit became %d", got)
	}
	u.Join()
	for _, want := range []int{4, 6, 8} {
		if got := one.Limit(); got != want {
			t.Errorf("with three threads the limit is %d, want %d: another update phase", got, want)
		}
		one.Advance(now + 1) // begins a span, or goes on with it
		two.Done(1000)
		now += rdma.TuneSpanNs + 1
		one.Advance(now)
	}
}

// TestTunerIdle: a span in which nothing completes decides nothing, and a thread that leaves
// takes nothing of what it has done away.
func TestTunerIdle(t *testing.T) {
	u := rdma.NewTuner(rdma.TunerSMART)
	a, b := u.Join(), u.Join()
	now := int64(1)
	a.Advance(now)
	for range 3 {
		now += rdma.TuneSpanNs
		a.Advance(now)
		if got := a.Limit(); got != 4 {
			t.Fatalf("nothing has completed, and the limit became %d", got)
		}
	}
	b.Done(1000)
	b.Leave()
	now += rdma.TuneSpanNs
	a.Advance(now)
	if got := a.Limit(); got != 6 {
		t.Errorf("a thread completed 1000 requests and left: the limit is %d; want 6", got)
	}
}

// TestThrottleBonus: no limit is kept, unless a candidate is clearly better.
func TestThrottleBonus(t *testing.T) {
	raced.Skip(t)
	for slower, want := range map[int64]int{30: 0, 80: 8} {
		o := rdmatest.Options{LatencyNs: 65_000, ServiceNs: func(out int) int64 {
			if out > 8 {
				return 10_000 + 10*slower
			}
			return 10_000
		}}
		th := newThread(t, rig{tech: throttled, Options: o})
		if want == 0 {
			want = th.Caps().MaxBatch
		}
		keepBusy(t, th, 40, 8*rdma.TuneSpanNs, func() {})
		if got := th.Limits().WorkRequests; got != want {
			t.Errorf("no limit being %d/1000 slower, the tuner chose %d; want %d", slower, got, want)
		}
	}
}

// TestThrottleMaxBatch: candidates above Caps.MaxBatch are none.
func TestThrottleMaxBatch(t *testing.T) {
	raced.Skip(t)
	best := 1000
	o := thrash(&best)
	o.Caps.MaxBatch = 5
	th := newThread(t, rig{tech: throttled, Options: o})
	keepBusy(t, th, 20, 80*rdma.TuneSpanNs, func() {
		if l := th.Limits().WorkRequests; l > 5 {
			t.Fatalf("C_max is %d, on a queue pair that holds 5 requests", l)
		}
	})
}

// TestThrottleOff: without the technique, or where completions are immediate,
// nothing is limited.
func TestThrottleOff(t *testing.T) {
	for _, r := range []rig{
		{tech: rdma.Techniques{Doorbells: true, Backoff: true, DynLimit: true, CoroLimit: true}},
		{tech: throttled, Options: rdmatest.Options{Caps: rdma.Caps{Synchronous: true}}},
	} {
		best, most := 4, 0
		o := thrash(&best)
		r.ServiceNs = func(out int) int64 {
			most = max(most, out)
			return o.ServiceNs(out)
		}
		th := newThread(t, r)
		if l := th.Limits().WorkRequests; l != 0 {
			t.Errorf("%+v: limit %d", r.tech, l)
		}
		keepBusy(t, th, 20, 10*rdma.TuneSpanNs, func() {})
		if want := 20; !r.Caps.Synchronous && most != want {
			t.Errorf("%+v: at most %d outstanding; want %d", r.tech, most, want)
		}
	}
}

// TestThrottlePlain: without coroutines the plain one waits for credits, too.
func TestThrottlePlain(t *testing.T) {
	most := 0
	th := newThread(t, rig{tech: throttled, Options: rdmatest.Options{ServiceNs: func(out int) int64 {
		most = max(most, out)
		return 10
	}}})
	th.FixLimit(5)
	var b [20]rdma.Batch
	for i := range b {
		b[i].Read(at(0, 0), 0, 8)
		b[i].Read(at(1, 0), 0, 8)
		th.Plain().Post(&b[i])
	}
	for i := range b {
		must(t, th.Plain().Wait(&b[i]))
	}
	if most != 5 || th.Outstanding() != 0 {
		t.Errorf("at most %d of 5 outstanding, %d in the end", most, th.Outstanding())
	}
}
