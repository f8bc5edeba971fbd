package sim_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"txnode/rdma"
	"txnode/rdma/fabrictest"
	"txnode/rdma/sim"
)

// bench is one thread on two blades, with a fault, and what it needs to see what
// became of its verbs.
type bench struct {
	*testing.T
	f *sim.Fabric
	t *rdma.Thread
	c *rdma.Coro
	b rdma.Batch
}

// with runs body on thread 0 under the faults, and observe outside of Run when
// everything has arrived.
func with(t *testing.T, faults string, body func(b *bench), observe func(b *bench)) {
	t.Helper()
	xs, err := sim.ParseFaults(faults)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(8) {
		f := newFabric(t, 2, sim.Options{Seed: seed, Faults: xs, Freedom: sim.Freedom(seed % 3)})
		th := newThread(t, f, rdma.ThreadOptions{Arena: 1 << 16})
		b := &bench{T: t, f: f, t: th, c: th.Plain()}
		f.Run(1, func(int) { body(b) })
		f.Settle()
		if observe != nil {
			observe(b)
		}
		if err := th.Close(); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func at(blade rdma.BladeID, off uint64) rdma.RemoteAddr {
	return rdma.RemoteAddr{Blade: blade, Key: 1, Off: off}
}

// set appends a WRITE of a word.
func (b *bench) set(a rdma.RemoteAddr, v uint64) {
	local := uint32(64 + 8*b.b.Len())
	b.t.PutWord(local, v)
	b.b.Write(a, local, 8)
}

// word is what an observer sees.
func (b *bench) word(blade rdma.BladeID, off uint64) uint64 {
	b.Helper()
	var w [8]byte
	if err := b.f.ReadMemory(blade, off, w[:]); err != nil {
		b.Fatal(err)
	}
	var v uint64
	for i := range w {
		v |= uint64(w[i]) << (8 * i)
	}
	return v
}

func (b *bench) want(blade rdma.BladeID, words ...uint64) {
	b.Helper()
	for i, v := range words {
		if got := b.word(blade, uint64(8*i)); got != v {
			b.Errorf("blade %d, word %d: %d, want %d", blade, i, got, v)
		}
	}
}

func (b *bench) status(i int, want rdma.Status) {
	b.Helper()
	if got := b.b.WR(i).Status; got != want {
		b.Errorf("request %d ended with %q, want %q", i, got, want)
	}
}

// A thread stops after its third verb: that one and those before take effect,
// nothing later does, and its code does not go on, but its deferred calls run. What they
// do to the buffers of verbs that are on their way reaches nothing either.
func TestStop(t *testing.T) {
	for _, coros := range []int{0, 3} {
		went, deferred := 0, 0
		body := func(b *bench, c *rdma.Coro) {
			defer func() {
				deferred++
				for i := range uint32(5) {
					b.t.PutWord(64+8*i, 77)
				}
				b.b.Reset()
				b.set(at(1, 0), 99) // reaches nothing
				c.Post(&b.b)
			}()
			b.set(at(0, 0), 1)
			b.set(at(1, 8), 2)
			b.set(at(0, 16), 3)
			b.set(at(1, 24), 4)
			b.set(at(0, 32), 5)
			if err := c.Do(&b.b); err != nil {
				b.Error(err)
			}
			went++
		}
		with(t, "stop(thread=0,verb=3)", func(b *bench) {
			if coros == 0 {
				body(b, b.c)
			} else {
				b.t.Run(coros, func(c *rdma.Coro) {
					if c.ID() == 0 {
						body(b, c)
						return
					}
					defer func() { deferred++ }()
					c.Sleep(1e9)
					went++
				})
			}
			went++
		}, func(b *bench) {
			b.want(0, 1, 0, 3, 0, 0)
			b.want(1, 0, 2, 0, 0, 0)
			if !slices.Equal(b.f.Stopped(), []int{0}) {
				t.Errorf("stopped threads: %v", b.f.Stopped())
			}
		})
		if went != 0 {
			t.Errorf("with %d coroutines a stopped thread went on", coros)
		}
		// A coroutine that never began has nothing to defer.
		if deferred != 8 {
			t.Errorf("with %d coroutines, %d deferred calls ran in 8 runs, want 8", coros, deferred)
		}
	}
}

// A thread stops at a time, wherever it waits; others go on.
func TestStopAtATime(t *testing.T) {
	f := newFabric(t, 1, sim.Options{Faults: []sim.Fault{{Kind: sim.FaultStop, Thread: 1, At: 50 * time.Microsecond}}})
	var ts []*rdma.Thread
	for i := range 3 {
		ts = append(ts, newThread(t, f, rdma.ThreadOptions{Index: i, Arena: 1 << 12, Policy: rdma.SharedQP}))
	}
	var rounds [3]int
	var deferred bool
	f.Run(3, func(i int) {
		if i == 1 {
			defer func() { deferred = true }()
		}
		ts[i].Run(2, func(c *rdma.Coro) {
			var b rdma.Batch
			for c.Thread().Now() < 1_000_000 {
				b.Reset()
				b.Read(at(0, 0), 0, 64)
				if err := c.Do(&b); err != nil {
					t.Error(err)
				}
				rounds[i]++
			}
		})
	})
	if !deferred || !slices.Equal(f.Stopped(), []int{1}) {
		t.Errorf("deferred call ran: %v; stopped: %v", deferred, f.Stopped())
	}
	if rounds[1] == 0 || rounds[1]*4 > rounds[0] || rounds[2] < rounds[0]/2 {
		t.Errorf("rounds %v: thread 1 should have stopped after a twentieth of the time, and the others not", rounds)
	}
	for _, th := range ts {
		if err := th.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A fault counts verbs from when it is injected.
func TestInjectCountsFromNow(t *testing.T) {
	with(t, "", func(b *bench) {
		defer func() {
			if n := b.f.Posted(0); n != 7 {
				t.Errorf("%d verbs posted, want 7", n)
			}
		}()
		for v := range uint64(5) {
			b.b.Reset()
			b.set(at(0, 0), v)
			if err := b.c.Do(&b.b); err != nil {
				b.Fatal(err)
			}
		}
		if err := b.f.Inject(sim.Fault{Kind: sim.FaultDrop, Thread: 0, Verb: 2}); err != nil {
			b.Fatal(err)
		}
		b.b.Reset()
		b.set(at(0, 0), 10)
		b.set(at(0, 8), 11)
		if err := b.c.Do(&b.b); err == nil {
			b.Error("the second verb was to be dropped")
		}
	}, func(b *bench) { b.want(0, 10, 0) })
}

// A lost completion: the verb has taken effect, those behind it have not; the
// queue pair works again after a reset.
func TestLose(t *testing.T) {
	with(t, "lose(thread=0,verb=2)", func(b *bench) {
		b.set(at(0, 0), 1)
		i := b.b.FAA(at(0, 8), 7)
		b.set(at(0, 16), 3)
		b.set(at(1, 0), 4)
		b.b.WR(i).Result = 4711
		start := b.t.Now()
		err := b.c.Do(&b.b)
		if !errors.Is(err, rdma.ErrBladeDown) {
			b.Errorf("error %v", err)
		}
		if b.t.Now()-start < int64(b.f.Profile().TimeoutNs) {
			b.Error("it ended before the timeout")
		}
		b.status(0, rdma.StatusOK)
		b.status(1, rdma.StatusTimeout)
		b.status(2, rdma.StatusFlushed)
		b.status(3, rdma.StatusOK)
		if got := b.b.Result(i); got != 4711 {
			b.Errorf("a completion that was lost told %d", got)
		}
		b.b.Reset()
		b.set(at(0, 24), 5)
		if err := b.c.Do(&b.b); err == nil {
			b.Error("the queue pair works without a reset")
		}
		if err := b.t.Reconnect(0); err != nil {
			b.Error(err)
		}
		b.b.Reset()
		b.set(at(0, 32), 6)
		if err := b.c.Do(&b.b); err != nil {
			b.Error(err)
		}
	}, func(b *bench) {
		b.want(0, 1, 7, 0, 0, 6)
		b.want(1, 4)
	})
}

func TestDrop(t *testing.T) {
	with(t, "drop(thread=0,verb=2)", func(b *bench) {
		for i := range uint64(3) {
			b.set(at(0, 8*i), i+1)
		}
		if err := b.c.Do(&b.b); !errors.Is(err, rdma.ErrBladeDown) {
			b.Errorf("error %v", err)
		}
		b.status(0, rdma.StatusOK)
		b.status(1, rdma.StatusTimeout)
		b.status(2, rdma.StatusFlushed)
	}, func(b *bench) { b.want(0, 1, 0, 0) })
}

// A verb that is late but not given up: it and those behind take longer.
func TestLate(t *testing.T) {
	with(t, "late(thread=0,verb=1,by=300us)", func(b *bench) {
		b.set(at(0, 0), 1)
		b.set(at(0, 8), 2)
		start := b.t.Now()
		if err := b.c.Do(&b.b); err != nil {
			b.Error(err)
		}
		if took := b.t.Now() - start; took < 300_000 {
			b.Errorf("it took only %d ns", took)
		}
	}, func(b *bench) { b.want(0, 1, 2) })
}

// A late verb whose owner has given it up lands when nobody expects it, with what
// the buffer held when it was posted; unless the key has changed, or the queue
// pair was connected again.
func TestLateBeyondTheTimeout(t *testing.T) {
	for _, c := range []struct {
		name  string
		after func(b *bench) error
		want  uint64
	}{
		{"nothing", func(b *bench) error { return nil }, 1},
		{"fenced", func(b *bench) error { _, err := fabrictest.Rekey(b.f, 0); return err }, 0},
		{"reconnected", func(b *bench) error { return b.t.Reconnect(0) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			with(t, "late(thread=0,verb=1,by=5ms)", func(b *bench) {
				b.set(at(0, 0), 1)
				b.b.Read(at(0, 64), 512, 64)
				err := b.c.Do(&b.b)
				b.status(0, rdma.StatusTimeout)
				b.status(1, rdma.StatusFlushed)
				if err == nil || b.word(0, 0) != 0 {
					b.Errorf("error %v, word %d", err, b.word(0, 0))
				}
				b.t.PutWord(64, 77)
				if err := c.after(b); err != nil {
					b.Error(err)
				}
			}, func(b *bench) { b.want(0, c.want) })
		})
	}
}

// A WRITE is placed long after its completion; a later READ of its queue pair
// forces it, one of another queue pair does not.
func TestDelay(t *testing.T) {
	with(t, "delay(thread=0,verb=1,by=100us)", func(b *bench) {
		b.set(at(0, 0), 1)
		if err := b.c.Do(&b.b); err != nil {
			b.Error(err)
		}
		b.t.PutWord(64, 77) // the buffer is ours again
		b.b.Reset()
		b.b.Read(at(1, 0), 512, 8)
		if err := b.c.Do(&b.b); err != nil || b.word(0, 0) != 0 {
			b.Errorf("error %v, word %d: want it unplaced", err, b.word(0, 0))
		}
		b.b.Reset()
		b.b.Read(at(0, 0), 512, 8)
		if err := b.c.Do(&b.b); err != nil || b.t.Word(512) != 1 || b.word(0, 0) != 1 {
			b.Errorf("error %v, read %d, word %d: want it placed", err, b.t.Word(512), b.word(0, 0))
		}
	}, nil)
	with(t, "delay(thread=0,verb=1,by=100us)", func(b *bench) {
		b.set(at(0, 0), 1)
		if err := b.c.Do(&b.b); err != nil {
			b.Error(err)
		}
		b.c.Sleep(95_000)
		if b.word(0, 0) != 0 {
			b.Error("it was placed too early")
		}
		b.c.Sleep(20_000)
		b.want(0, 1)
	}, nil)
}

// A torn WRITE of two lines shows half of itself for a while.
func TestTear(t *testing.T) {
	const n = 512
	torn := 0
	with(t, "tear(thread=0,verb=1,by=50us)", func(b *bench) {
		for i := range b.t.Bytes(1024, n) {
			b.t.Bytes(1024, n)[i] = 7
		}
		b.b.Write(at(0, 0), 1024, n)
		b.c.Post(&b.b)
		b.c.Sleep(25_000)
		seen := make([]byte, n)
		if err := b.f.ReadMemory(0, 0, seen); err != nil {
			b.Fatal(err)
		}
		if slices.Contains(seen, 0) && slices.Contains(seen, 7) {
			torn++
		}
		if err := b.c.Wait(&b.b); err != nil {
			b.Error(err)
		}
	}, func(b *bench) { b.want(0, slices.Repeat([]uint64{0x0707070707070707}, n/8)...) })
	if torn < 4 {
		t.Errorf("torn in %d runs of 8", torn)
	}
}

// A slow blade is slow while it lasts, the other is not.
func TestSlow(t *testing.T) {
	with(t, "slow(blade=1,x=20,from=100us,for=200us)", func(b *bench) {
		took := func(blade rdma.BladeID) int64 {
			start := b.t.Now()
			b.b.Reset()
			b.b.Read(at(blade, 0), 512, 8)
			if err := b.c.Do(&b.b); err != nil {
				b.Error(err)
			}
			return b.t.Now() - start
		}
		before := took(1)
		b.c.Sleep(120_000)
		during, other := took(1), took(0)
		b.c.Sleep(300_000)
		after := took(1)
		// Generous: mild and hostile freedom delay too.
		if during < 10*min(before, after) || other > during {
			b.Errorf("%d ns before, %d slow, %d after; %d on the other blade", before, during, after, other)
		}
	}, nil)
}

// A short partition delays, a long one ends in a timeout; nothing of what is
// posted in it takes effect before its end.
func TestPartition(t *testing.T) {
	with(t, "partition(blade=1,for=400us)", func(b *bench) {
		b.set(at(1, 0), 1)
		if err := b.c.Do(&b.b); err != nil {
			b.Errorf("a short partition: %v", err)
		}
		if b.t.Now() < 400_000 {
			b.Errorf("it ended at %d ns, within the partition", b.t.Now())
		}
	}, func(b *bench) { b.want(1, 1) })
	with(t, "partition(blade=1,for=8ms)", func(b *bench) {
		b.set(at(1, 0), 1)
		b.set(at(0, 0), 2)
		if err := b.c.Do(&b.b); !errors.Is(err, rdma.ErrBladeDown) {
			b.Errorf("a long partition: %v", err)
		}
		b.status(1, rdma.StatusOK)
		if err := b.t.Reconnect(1); !errors.Is(err, rdma.ErrBladeDown) {
			b.Errorf("reconnecting within it: %v", err)
		}
		if _, err := b.f.Grant(1); !errors.Is(err, rdma.ErrBladeDown) {
			b.Errorf("control path within it: %v", err)
		}
		b.c.Sleep(8_000_000)
		if err := b.t.Reconnect(1); err != nil {
			b.Errorf("reconnecting after it: %v", err)
		}
		b.b.Reset()
		b.set(at(1, 8), 3)
		if err := b.c.Do(&b.b); err != nil {
			b.Errorf("after it: %v", err)
		}
	}, func(b *bench) {
		b.want(0, 2)
		b.want(1, 0, 3)
	})
	with(t, "partition(blade=1,thread=5)", func(b *bench) {
		b.set(at(1, 0), 1)
		if err := b.c.Do(&b.b); err != nil {
			b.Errorf("a partition of another thread: %v", err)
		}
	}, nil)
}

// A restart breaks every connection, changes the key, and keeps the memory or not.
func TestRestart(t *testing.T) {
	for memory, want := range map[bool]uint64{true: 1, false: 0} {
		with(t, fmt.Sprintf("restart(blade=1,at=300us,for=2ms,memory=%v)", memory), func(b *bench) {
			b.set(at(1, 0), 1)
			b.b.Read(at(1, 0), 512, 8) // places it
			if err := b.c.Do(&b.b); err != nil {
				b.Error(err)
			}
			b.c.Sleep(400_000)
			b.b.Reset()
			b.set(at(1, 8), 2)
			if err := b.c.Do(&b.b); !errors.Is(err, rdma.ErrBladeDown) {
				b.Errorf("while it is down: %v", err)
			}
			if err := b.t.Reconnect(1); !errors.Is(err, rdma.ErrBladeDown) {
				b.Errorf("reconnecting while it is down: %v", err)
			}
			b.c.Sleep(3_000_000)
			b.b.Reset()
			b.set(at(1, 16), 3)
			if err := b.c.Do(&b.b); err == nil {
				b.Error("an old connection works")
			}
			if err := b.t.Reconnect(1); err != nil {
				b.Error(err)
			}
			b.b.Reset()
			b.set(at(1, 24), 4)
			if err := b.c.Do(&b.b); !errors.Is(err, rdma.ErrStaleKey) {
				b.Errorf("the old key: %v", err)
			}
			if err := b.t.Reconnect(1); err != nil {
				b.Error(err)
			}
			b.b.Reset()
			b.t.PutWord(64, 5)
			b.b.Write(rdma.RemoteAddr{Blade: 1, Key: b.f.Blades()[1].Key, Off: 32}, 64, 8)
			if err := b.c.Do(&b.b); err != nil {
				b.Error(err)
			}
		}, func(b *bench) { b.want(1, want, 0, 0, 0, 5) })
	}
}

// What a restart finds unplaced is lost, even if it had completed, and a WRITE
// that it cuts in two stays half.
func TestRestartLosesWhatIsUnplaced(t *testing.T) {
	with(t, "delay(thread=0,verb=1,by=5ms) restart(blade=1,at=100us,for=10us,memory=true)", func(b *bench) {
		b.set(at(1, 0), 1)
		if err := b.c.Do(&b.b); err != nil || b.t.Now() > 90_000 {
			b.Errorf("error %v at %d", err, b.t.Now())
		}
	}, func(b *bench) { b.want(1, 0) })
	halves := 0
	with(t, "tear(thread=0,verb=1,by=500us) restart(blade=1,at=100us,for=10us,memory=true)", func(b *bench) {
		for i := range b.t.Bytes(1024, 512) {
			b.t.Bytes(1024, 512)[i] = 7
		}
		b.b.Write(at(1, 0), 1024, 512)
		if err := b.c.Do(&b.b); err == nil || !b.b.WR(0).Status.Uncertain() {
			b.Errorf("a WRITE that was cut in two ended with %v", err)
		}
	}, func(b *bench) {
		all := make([]byte, 512)
		if err := b.f.ReadMemory(1, 0, all); err != nil {
			b.Fatal(err)
		}
		if !slices.Contains(all, 0) {
			b.Error("its second half was placed after the restart")
		}
		if slices.Contains(all, 7) {
			halves++
		}
	})
	if halves < 4 {
		t.Errorf("the first half was placed in %d runs of 8", halves)
	}
}

// Outside Run there is no body to unwind: the verbs of a stopped thread fail.
func TestStopOutsideRun(t *testing.T) {
	f := newFabric(t, 1, sim.Options{Faults: []sim.Fault{{Kind: sim.FaultStop, Thread: 0, Verb: 1}}})
	th := newThread(t, f, rdma.ThreadOptions{Arena: 4096})
	var b rdma.Batch
	b.Write(at(0, 0), 0, 8)
	b.Write(at(0, 8), 0, 8)
	f.Settle()
	err := th.Plain().Do(&b)
	if !errors.Is(err, rdma.ErrBladeDown) {
		t.Errorf("error %v", err)
	}
	b.Reset()
	b.Read(at(0, 0), 0, 8)
	if err := th.Plain().Do(&b); !errors.Is(err, rdma.ErrBladeDown) {
		t.Errorf("error %v", err)
	}
	if err := th.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestCatalogDown: who asks is told when the catalog does not answer, while that lasts, or until
// everything is healed.
func TestCatalogDown(t *testing.T) {
	with(t, "catalog(from=100us,for=200us);catalog(from=1ms)", func(b *bench) {
		for _, x := range []struct {
			until int64
			down  bool
		}{
			{50_000, false}, {150_000, true}, {299_000, true}, {301_000, false}, {999_000, false}, {1_001_000, true},
			{90_000_000, true},
		} {
			b.c.Sleep(x.until - b.t.Now())
			if down := b.f.CatalogDown(1); down != x.down {
				b.Errorf("at %d ns: %v", b.t.Now(), down)
			}
		}
		b.f.Heal()
		if b.f.CatalogDown(0) {
			b.Error("it is down, and healed")
		}
		if n := b.f.Struck(sim.FaultCatalog); n != 4 {
			b.Errorf("it has struck %d times", n)
		}
	}, func(*bench) {})
}

// TestComputeFaults: when a compute blade is killed its threads stop, and no others, and the
// catalog can be told so until a thread connects there again. One that is paused does nothing until
// the pause ends, also where coroutines share threads; it then goes on. A catalog is away for one
// compute blade alone.
func TestComputeFaults(t *testing.T) {
	for _, coroutines := range []int{1, 3} {
		f := newFabric(t, 1, sim.Options{ThreadsPerBlade: 2})
		var threads []*rdma.Thread
		for i := range 6 {
			threads = append(threads, newThread(t, f, rdma.ThreadOptions{Index: i, Arena: 1 << 16}))
		}
		faults,
			err := sim.ParseFaults(
			"kill(compute=1,at=50us);pause(compute=2,from=60us,for=2ms);catalog(compute=3,from=70us,for=50us)")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Inject(faults...); err != nil {
			t.Fatal(err)
		}
		const until = 3_000_000
		var gap [6]int64 // the longest time without a verb
		ended := [6]bool{}
		deaf := 0
		f.Run(6, func(i int) {
			body := func(c *rdma.Coro) {
				var b rdma.Batch
				buf, err := c.Thread().Alloc(8)
				if err != nil {
					t.Error(err)
					return
				}
				for last := f.Now(); last < until; {
					b.Reset()
					b.Read(at(0, 64), buf, 8)
					if err := c.Do(&b); err != nil {
						t.Error(err)
					}
					c.Sleep(1000)
					if i >= 4 && f.CatalogDown(i/2+1) {
						deaf++
					}
					if i < 4 && f.CatalogDown(i/2+1) {
						t.Errorf("the catalog does not answer compute blade %d", i/2+1)
					}
					now := f.Now()
					gap[i] = max(gap[i], now-last)
					last = now
				}
			}
			if coroutines == 1 {
				body(threads[i].Plain())
			} else {
				threads[i].Run(coroutines, body)
			}
			ended[i] = true
		})
		if want := [6]bool{2: true, true, true, true}; ended != want {
			t.Errorf("threads that have ended: %v", ended)
		}
		for i, g := range gap {
			if paused := i/2 == 1; paused && g < 1_900_000 || !paused && g > 500_000 {
				t.Errorf("%d coroutines: thread %d did nothing for %d ns", coroutines, i, g)
			}
		}
		if deaf == 0 || f.Struck(sim.FaultKill) != 1 || f.Struck(sim.FaultPause) < 2 {
			t.Errorf("deaf %d times; struck: kill %d, pause %d", deaf, f.Struck(sim.FaultKill),
				f.Struck(sim.FaultPause))
		}
		if !f.Killed(1) || f.Killed(2) || f.Killed(0) || f.Killed(9) {
			t.Error("which compute blade was killed")
		}
		again := newThread(t, f, rdma.ThreadOptions{Index: 0, Arena: 1 << 16})
		if f.Killed(1) {
			t.Error("a thread runs where all were killed")
		}
		for _, x := range append(threads, again) {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
