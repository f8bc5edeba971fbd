package rdma_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/rdma"
	"txnode/rdma/fabrictest"
	"txnode/rdma/rdmatest"
)

// fence runs a fence and returns what it posted.
func fence(t *testing.T, c *rdma.Coro, scope rdma.Scope, blade rdma.BladeID) rdma.Counters {
	t.Helper()
	before := c.Thread().Counters()
	var b rdma.Batch
	must(t, c.Fence(scope, blade, &b))
	after := c.Thread().Counters()
	return after.Sub(&before)
}

// TestFenceVerbs: a fence costs nothing where every WRITE is known to be placed,
// else a READ of no bytes per blade.
func TestFenceVerbs(t *testing.T) {
	for _, caps := range []rdma.Caps{{}, {Placed: true}, {Synchronous: true}, {Synchronous: true, Placed: true}} {
		t.Run(fmt.Sprintf("%+v", caps), func(t *testing.T) {
			th := newThread(t, rig{Options: rdmatest.Options{Caps: caps}})
			c := th.Plain()
			do := func(add func(b *rdma.Batch)) {
				t.Helper()
				var b rdma.Batch
				add(&b)
				must(t, c.Do(&b))
			}
			write := func(blade rdma.BladeID) func(b *rdma.Batch) {
				return func(b *rdma.Batch) { b.Write(at(blade, 0), 0, 8) }
			}
			expect := func(what string, got rdma.Counters, reads uint64) {
				t.Helper()
				if caps.Placed {
					reads = 0
				}
				want := rdma.Counters{Doorbells: reads}
				want.Verbs[rdma.OpRead] = reads
				if got.RoundTrips = 0; got != want {
					t.Errorf("%s: the fence posted %+v; want %d READs", what, got, reads)
				}
			}
			expect("nothing written", fence(t, c, rdma.FenceThread, 0), 0)
			do(write(1))
			expect("WRITE, fence of another blade", fence(t, c, rdma.FencePair, 2), 0)
			expect("WRITE", fence(t, c, rdma.FencePair, 1), 1)
			expect("fenced already", fence(t, c, rdma.FencePair, 1), 0)
			expect("fenced already, all blades", fence(t, c, rdma.FenceThread, 0), 0)
			do(write(1))
			do(write(3))
			expect("WRITEs to two blades", fence(t, c, rdma.FenceThread, 0), 2)
			do(func(b *rdma.Batch) { write(1)(b); b.Read(at(1, 64), 0, 8) })
			expect("READ behind the WRITE", fence(t, c, rdma.FenceThread, 0), 0)
			do(write(1))
			do(func(b *rdma.Batch) { b.FAA(at(1, 64), 1) })
			expect("FAA behind the WRITE", fence(t, c, rdma.FencePair, 1), 0)
			do(func(b *rdma.Batch) { b.Read(at(1, 64), 0, 8); write(1)(b) })
			expect("READ before the WRITE", fence(t, c, rdma.FencePair, 1), 1)
			do(func(b *rdma.Batch) { write(1)(b); b.Read(at(2, 64), 0, 8) })
			expect("READ of another blade", fence(t, c, rdma.FencePair, 1), 1)
			do(func(b *rdma.Batch) { write(1)(b); b.Flush(at(1, 64), 8) })
			expect("FLUSH of other bytes", fence(t, c, rdma.FencePair, 1), 1)
			expect("no such blade", fence(t, c, rdma.FencePair, 77), 0)

			var b rdma.Batch
			write(0)(&b)
			b.Read(at(2, 1<<20), 0, 8)
			if err := c.Do(&b); err == nil {
				t.Error("READ past the end: no error")
			}
			expect("a batch with an error elsewhere", fence(t, c, rdma.FencePair, 0), 1)
		})
	}
}

// TestFenceWaits: a fence waits for what is outstanding, in its scope only.
func TestFenceWaits(t *testing.T) {
	for _, placed := range []bool{false, true} {
		th := newThread(t, rig{Options: rdmatest.Options{Caps: rdma.Caps{Placed: placed}, LatencyNs: 5000}})
		body := func(c *rdma.Coro) {
			var w, r, other rdma.Batch
			r.Read(at(0, 0), 0, 8)
			w.Write(at(0, 64), 64, 8)
			c.Post(&r)
			c.Post(&w)
			c.Sleep(1000)
			other.Read(at(1, 0), 8, 8)
			c.Post(&other)
			before := th.Counters().RoundTrips
			fence(t, c, rdma.FencePair, 0)
			if !r.Done() || !w.Done() {
				t.Errorf("placed %v: behind a fence READ done %v, WRITE done %v", placed, r.Done(), w.Done())
			}
			if n := th.Counters().RoundTrips - before; n != 1 {
				t.Errorf("placed %v: the fence counts %d round trips", placed, n)
			}
			if placed && other.Done() {
				t.Error("the pair fence waited for another blade")
			}
			fence(t, c, rdma.FenceThread, 0)
			if !other.Done() {
				t.Errorf("placed %v: behind a thread fence a READ is outstanding", placed)
			}
		}
		body(th.Plain())
		th.Run(1, body)
	}
}

// TestFenceAmongCoroutines: a fence ends although the others go on posting.
func TestFenceAmongCoroutines(t *testing.T) {
	for _, placed := range []bool{false, true} {
		th := newThread(t, rig{Options: rdmatest.Options{Caps: rdma.Caps{Placed: placed}}, tech: rdma.AllTechniques})
		fenced, most := 0, 0
		th.Run(8, func(c *rdma.Coro) {
			if c.ID() < 2 {
				for range 50 {
					fence(t, c, rdma.FenceThread, 0)
					fenced++
					c.Sleep(100)
				}
				return
			}
			var b [2]rdma.Batch // one is always outstanding
			for i := 0; fenced < 100 && most < 100_000; i++ {
				must(t, c.Wait(&b[i%2]))
				b[i%2].Reset()
				b[i%2].Write(at(0, 0), 0, 64)
				c.Post(&b[i%2])
				most++
			}
			must(t, c.Wait(&b[0]))
			must(t, c.Wait(&b[1]))
		})
		if most >= 100_000 {
			t.Errorf("placed %v: %d of 100 fences ended while others posted %d WRITEs", placed, fenced, most)
		}
	}
}

// TestFenceAfterErrors: a failed READ proves nothing; the fence's own error is
// returned; after Reconnect it works again.
func TestFenceAfterErrors(t *testing.T) {
	f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 1 << 16})
	th := addThread(t, f, rig{})
	c := th.Plain()
	var b rdma.Batch
	b.Write(at(0, 0), 0, 8)
	b.Read(at(0, 1<<20), 0, 8)
	if err := c.Do(&b); err == nil {
		t.Fatal("READ past the end: no error")
	}
	var v *rdma.VerbError
	if err := c.Fence(rdma.FencePair, 0, &b); !errors.As(err, &v) || v.Status != rdma.StatusFlushed {
		t.Errorf("fence of a broken queue pair: %v", err)
	}
	must(t, th.Reconnect(0))
	if n := fence(t, c, rdma.FencePair, 0); n.Verbs[rdma.OpRead] != 1 {
		t.Errorf("after Reconnect the fence posted %+v", n)
	}
	b.Reset()
	b.Write(at(0, 0), 0, 8)
	must(t, c.Do(&b))
	_, err := fabrictest.Rekey(f, 0)
	must(t, err) // the WRITE's key is stale: so is the fence's
	if err := c.Fence(rdma.FenceThread, 0, &b); !errors.Is(err, rdma.ErrStaleKey) {
		t.Errorf("fence of a fenced client: %v; want ErrStaleKey", err)
	}
}

// TestGlobalFence places the WRITEs of all threads, and returns the first error.
func TestGlobalFence(t *testing.T) {
	f := rdmatest.New(rdmatest.Options{Blades: 3, Size: 1 << 16, SpreadNs: 1_000_000})
	var threads []*rdma.Thread
	for i := range 3 {
		threads = append(threads, addThread(t, f, rig{index: i}))
	}
	var b rdma.Batch
	for i, th := range threads {
		th.PutWord(0, uint64(i)+1)
		b.Reset()
		b.Write(at(rdma.BladeID(i), 8), 0, 8)
		must(t, th.Plain().Do(&b))
	}
	if f.Memory(2)[8] != 0 {
		t.Fatal("the WRITE is placed too early for this test")
	}
	must(t, rdma.GlobalFence(threads, &b))
	for i, th := range threads {
		if got := f.Memory(rdma.BladeID(i))[8]; int(got) != i+1 {
			t.Errorf("thread %d's WRITE is not placed", i)
		}
		if n := th.Counters().Verbs[rdma.OpRead]; n != 1 {
			t.Errorf("thread %d posted %d READs; want 1", i, n)
		}
	}
	for i, th := range threads {
		b.Reset()
		b.Write(at(rdma.BladeID(i), 8), 0, 8)
		must(t, th.Plain().Do(&b))
	}
	_, err := fabrictest.Rekey(f, 0)
	must(t, err)
	if err := rdma.GlobalFence(threads, &b); !errors.Is(err, rdma.ErrStaleKey) {
		t.Errorf("with a stale key: %v", err)
	}
	if n := threads[2].Counters().Verbs[rdma.OpRead]; n != 2 {
		t.Errorf("after an error the last thread was not fenced")
	}
}
