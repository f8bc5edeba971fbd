package rdma_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// TestRunTakesTurns: coroutines that yield run round robin.
func TestRunTakesTurns(t *testing.T) {
	th := newThread(t, rig{})
	var order []int
	th.Run(4, func(c *rdma.Coro) {
		if c.Thread() != th || !c.Multiplexed() {
			t.Errorf("coroutine %d: wrong thread, or not multiplexed", c.ID())
		}
		for range 5 - c.ID() { // some end early
			order = append(order, c.ID())
			c.Yield()
		}
	})
	want := []int{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 0, 1, 0}
	if !slices.Equal(order, want) {
		t.Errorf("they ran in the order %v; want %v", order, want)
	}
	th.Run(0, func(*rdma.Coro) { t.Error("Run(0) runs something") })
	th.Run(1, func(c *rdma.Coro) {
		if c.Multiplexed() {
			t.Error("a single coroutine says that it is multiplexed")
		}
	})
	if th.Plain().Multiplexed() {
		t.Error("the plain coroutine says that it is multiplexed")
	}
}

// TestSleepOrder: sleepers wake in the order of their times, not before them;
// those of one time by number.
// TestSleepForEver: a sleep beyond what a clock can say lasts until another coroutine ends it.
func TestSleepForEver(t *testing.T) {
	var sleeper *rdma.Coro
	ended := false
	newThread(t, rig{}).Run(2, func(c *rdma.Coro) {
		if c.ID() == 0 {
			sleeper = c
			c.Sleep(math.MaxInt64)
			ended = true
			return
		}
		c.Sleep(1000)
		if ended {
			t.Error("it did not sleep")
		}
		sleeper.Wake()
	})
}

func TestSleepOrder(t *testing.T) {
	th := newThread(t, rig{})
	durations := []int64{5000, 3000, 3000, 0, 9000, 1000, 3000, -5}
	start := th.Now()
	var order []int
	th.Run(len(durations), func(c *rdma.Coro) {
		c.Sleep(start + durations[c.ID()] - th.Now())
		if now := th.Now(); now < start+durations[c.ID()] {
			t.Errorf("coroutine %d woke at %d", c.ID(), now-start)
		}
		order = append(order, c.ID())
	})
	if want := []int{3, 7, 5, 1, 2, 6, 0, 4}; !slices.Equal(order, want) {
		t.Errorf("they woke in the order %v; want %v", order, want)
	}
	var many []int64
	th.Run(100, func(c *rdma.Coro) {
		for range 20 {
			d := int64(th.Rand() % 10_000)
			until := th.Now() + d
			c.Sleep(d)
			if th.Now() < until {
				t.Errorf("woke %d ns early", until-th.Now())
			}
			many = append(many, th.Now())
		}
	})
	if !slices.IsSorted(many) {
		t.Error("time ran backwards")
	}
}

// TestWake: a coroutine that is woken goes on at once, whatever else sleeps; one that does not
// sleep is left alone.
func TestWake(t *testing.T) {
	th := newThread(t, rig{})
	const n = 20
	var all [n]*rdma.Coro
	start := th.Now()
	var order []int
	th.Run(n, func(c *rdma.Coro) {
		all[c.ID()] = c
		if c.ID() > 0 {
			c.Sleep(1_000_000 * int64(n-c.ID()))
			order = append(order, c.ID())
			return
		}
		c.Sleep(10)
		c.Wake()
		for _, i := range []int{1, 7, 1} {
			all[i].Wake()
			c.Sleep(10)
		}
		if took := th.Now() - start; !slices.Equal(order, []int{1, 7}) || took > 100_000 {
			t.Errorf("%v were woken after %d ns", order, took)
		}
	})
	want := []int{1, 7}
	for i := n - 1; i > 0; i-- {
		if i != 1 && i != 7 {
			want = append(want, i)
		}
	}
	if !slices.Equal(order, want) {
		t.Errorf("they woke in the order %v; want %v", order, want)
	}
}

// TestWaitLetsOthersRun: while one coroutine waits for its completions, the
// others run, and it goes on when its own have come.
func TestWaitLetsOthersRun(t *testing.T) {
	th := newThread(t, rig{Options: rdmatest.Options{LatencyNs: 10_000}})
	turns, waiting := 0, true
	th.Run(2, func(c *rdma.Coro) {
		if c.ID() == 0 {
			var b rdma.Batch
			b.Read(at(0, 0), 0, 8)
			must(t, c.Do(&b))
			waiting = false
			return
		}
		for waiting {
			turns++
			c.Yield()
		}
	})
	if turns < 100 {
		t.Errorf("the other coroutine ran %d times during a round trip", turns)
	}
}

// TestYieldAlone: without others to run, Yield still drives the transport.
func TestYieldAlone(t *testing.T) {
	th := newThread(t, rig{})
	poll := func(c *rdma.Coro) {
		var b rdma.Batch
		b.Read(at(0, 0), 0, 8)
		c.Post(&b)
		for range 1_000_000 {
			if b.Done() {
				return
			}
			c.Yield()
		}
		t.Error("the READ is never done")
	}
	poll(th.Plain())
	th.Run(1, poll)
}

// TestRunEndsEarly: a coroutine may end with requests outstanding; the batch is
// completed while others run, or later.
func TestRunEndsEarly(t *testing.T) {
	th := newThread(t, rig{tech: rdma.AllTechniques})
	var b [4]rdma.Batch
	th.Run(len(b), func(c *rdma.Coro) {
		b[c.ID()].FAA(at(0, 0), 1)
		c.Post(&b[c.ID()])
	})
	for i := range b {
		must(t, th.Plain().Wait(&b[i]))
		if v := b[i].Result(0); v != uint64(i) {
			t.Errorf("coroutine %d found %d", i, v)
		}
	}
}

// TestPlainInsideRun: code on a coroutine may use the plain one for a moment.
func TestPlainInsideRun(t *testing.T) {
	th := newThread(t, rig{tech: rdma.AllTechniques})
	th.FixLimit(2)
	total := 0
	th.Run(6, func(c *rdma.Coro) {
		for range 20 {
			var b, p rdma.Batch
			b.FAA(at(0, 0), 1)
			b.FAA(at(0, 0), 1)
			c.Post(&b)
			c.Yield()
			p.FAA(at(0, 8), 1)
			p.FAA(at(0, 8), 1)
			must(t, th.Plain().Do(&p))
			must(t, c.Wait(&b))
			total++
		}
	})
	var b rdma.Batch
	b.Read(at(0, 0), 0, 16)
	must(t, th.Plain().Do(&b))
	if x, y := th.Word(0), th.Word(8); total != 120 || x != 240 || y != 240 {
		t.Errorf("%d rounds counted to %d and %d", total, x, y)
	}
}

// TestRunPanics: a panic in a coroutine comes out of Run; the others are unwound
// where they wait, with their deferred calls; the thread works on.
func TestRunPanics(t *testing.T) {
	th := newThread(t, rig{
		Options: rdmatest.Options{Caps: rdma.Caps{Synchronous: true, Placed: true}}, tech: rdma.AllTechniques,
	})
	var unwound, past []int
	enter := func(c *rdma.Coro) { c.BeginOp() }
	wait := []func(c *rdma.Coro){
		func(c *rdma.Coro) { c.Yield() },
		func(c *rdma.Coro) { c.Sleep(1_000_000) },
		func(c *rdma.Coro) { enter(c); c.Backoff() },
		func(c *rdma.Coro) { c.Yield(); c.Yield(); panic("at the disco") },
		func(c *rdma.Coro) { c.Sleep(2_000_000) },
	}
	run := func() (r any) {
		defer func() { r = recover() }()
		th.Run(len(wait), func(c *rdma.Coro) {
			defer func() {
				unwound = append(unwound, c.ID())
				if c.ID() == 4 {
					var b rdma.Batch // clean up with verbs, as a rollback would
					b.Write(at(0, 0), 0, 8)
					must(t, c.Do(&b))
				}
			}()
			for range 3 {
				wait[c.ID()](c)
			}
			c.Sleep(10_000_000)
			past = append(past, c.ID())
		})
		return nil
	}
	for range 3 {
		unwound = nil
		if r := run(); r != "at the disco" {
			t.Errorf("Run panics with %v", r)
		}
		slices.Sort(unwound)
		if !slices.Equal(unwound, []int{0, 1, 2, 3, 4}) {
			t.Errorf("unwound were %v", unwound)
		}
		if len(past) != 0 {
			t.Errorf("stopped coroutines %v ran on", past)
		}
		if n := th.Active(); n != 0 {
			t.Errorf("%d coroutine credits are lost", n)
		}
	}
	// The credit's holder is stopped after those that wait for it.
	th.FixCredits(1)
	func() {
		defer func() { recover() }()
		th.Run(6, func(c *rdma.Coro) {
			if c.ID() < 4 {
				c.Yield()
			}
			if c.ID() == 5 {
				c.Yield()
				panic("")
			}
			c.BeginOp()
			c.Sleep(1_000_000)
			t.Error("a coroutine ran on")
		})
	}()
	if n := th.Active(); n != 0 {
		t.Errorf("%d coroutine credits are lost", n)
	}
	th.Plain().BeginOp()
	th.Run(1, func(c *rdma.Coro) {})
	if n := th.Active(); n != 1 {
		t.Errorf("%d coroutine credits in use; want that of the plain one", n)
	}
	th.Plain().EndOp()
	n := 0
	th.Run(3, func(c *rdma.Coro) {
		var b rdma.Batch
		b.Read(at(0, 0), 0, 8)
		must(t, c.Do(&b))
		c.Yield()
		n++
	})
	if n != 3 {
		t.Errorf("after a panic, %d of 3 coroutines run", n)
	}
}

// TestUnwoundPostsNothing: what a coroutine does when it is unwound has no effect: it does not know
// how far it had come. The thread of a synchronous fabric is good for more.
func TestUnwoundPostsNothing(t *testing.T) {
	th := newThread(t, rig{Options: rdmatest.Options{Caps: rdma.Caps{Synchronous: true, Placed: true}}})
	add := func(c *rdma.Coro, word uint64) {
		var b rdma.Batch
		b.FAA(at(0, word), 1)
		must(t, c.Do(&b))
	}
	func() {
		defer func() { _ = recover() }()
		th.Run(3, func(c *rdma.Coro) {
			defer add(c, 8*uint64(c.ID()))
			c.Yield()
			if c.ID() == 1 {
				panic("unwound")
			}
			c.Yield()
		})
	}()
	c := th.Plain()
	for i, want := range []uint64{0, 1, 0} {
		var b rdma.Batch
		b.Read(at(0, 8*uint64(i)), 0, 8)
		must(t, c.Do(&b))
		if got := th.Word(0); got != want {
			t.Errorf("coroutine %d has added %d; want %d", i, got, want)
		}
	}
}

// TestRunGoexit: so does the end of the goroutine, as by testing.T.FailNow.
func TestRunGoexit(t *testing.T) {
	th := newThread(t, rig{Options: rdmatest.Options{Caps: rdma.Caps{Synchronous: true, Placed: true}}})
	unwound, returned := 0, false
	done := make(chan struct{})
	go func() {
		defer close(done)
		th.Run(3, func(c *rdma.Coro) {
			defer func() { unwound++ }()
			c.Yield()
			if c.ID() == 1 {
				runtime.Goexit()
			}
			c.Yield()
			c.Yield()
		})
		returned = true
	}()
	<-done
	if unwound != 3 || returned {
		t.Errorf("%d of 3 coroutines were unwound; Run returned: %v", unwound, returned)
	}
}

func TestRunDoesNotNest(t *testing.T) {
	th := newThread(t, rig{})
	defer func() {
		if r := fmt.Sprint(recover()); !strings.Contains(r, "inside Thread.Run") {
			t.Errorf("a nested Run panics with %q", r)
		}
	}()
	th.Run(1, func(*rdma.Coro) { th.Run(1, func(*rdma.Coro) {}) })
}

// TestCountersOfCoroutines: the thread's counters hold those of coroutines that
// run and that have ended.
func TestCountersOfCoroutines(t *testing.T) {
	th := newThread(t, rig{})
	for round := range uint64(3) {
		th.Run(4, func(c *rdma.Coro) {
			var b rdma.Batch
			b.Read(at(0, 0), 0, 8)
			must(t, c.Do(&b))
			if c.ID() == 3 {
				if n := th.Counters().Verbs[rdma.OpRead]; n != 4*round+4 {
					t.Errorf("while the coroutines run: %d READs; want %d", n, 4*round+4)
				}
			}
			c.Yield()
		})
	}
	c := th.Counters()
	if c.Verbs[rdma.OpRead] != 12 || c.RoundTrips != 12 || c.Doorbells != 12 || c.BytesRead != 96 {
		t.Errorf("counted %+v", c)
	}
}

// TestDeterminism: on a deterministic fabric, one seed is one run.
func TestDeterminism(t *testing.T) {
	run := func(seed uint64) string {
		f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 1 << 16, Seed: seed})
		var threads [2]*rdma.Thread
		for i := range threads {
			threads[i] = addThread(t, f, rig{tech: rdma.AllTechniques, index: i})
		}
		var log strings.Builder
		f.Run(len(threads), func(i int) {
			th := threads[i]
			th.Run(5, func(c *rdma.Coro) {
				var b rdma.Batch
				for range 20 {
					c.BeginOp()
					b.Reset()
					b.FAA(at(rdma.BladeID(th.Rand()%2), 0), 1)
					must(t, c.Do(&b))
					fmt.Fprintf(&log, "%d %d.%d %d\n", th.Now(), i, c.ID(), b.Result(0))
					if th.Rand()%4 == 0 {
						c.Backoff()
					}
					c.EndOp()
				}
			})
		})
		return log.String()
	}
	a, b := run(1), run(1)
	if a != b {
		t.Error("two runs with one seed differ")
	}
	if a == run(2) {
		t.Error("runs with two seeds are the same")
	}
	if n := strings.Count(a, "\n"); n != 200 {
		t.Errorf("%d of 200 steps", n)
	}
}
