package sim_test

import (
	"testing"

	"txnode/rdma"
	"txnode/rdma/sim"
)

// stepwise is a fabric whose ports leave the turns of coroutines to Thread.Run.
type stepwise struct{ *sim.Fabric }

func (f stepwise) NewPort(c rdma.PortConfig) (rdma.Port, error) {
	p, err := f.Fabric.NewPort(c)
	return struct{ rdma.Port }{p}, err
}

// A run is the same one, to the byte, whoever lets the coroutines take their turns:
// with locks that threads wait for, with coroutines that sleep, yield and start
// others, with threads that stop at a verb or at a time.
func TestDrivenRunsAreTheSame(t *testing.T) {
	for name, policy := range map[string]rdma.QPPolicy{
		"a doorbell each": rdma.PerThreadDoorbell, "a queue pair each": rdma.PerThreadQP, "shared": rdma.SharedQP,
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				run := func(driven bool) (hash, events uint64, sum uint64, stopped int) {
					o := sim.Options{Seed: seed, Freedom: sim.FreedomHostile}
					if seed%2 == 1 {
						o.Faults = []sim.Fault{
							{Kind: sim.FaultStop, Thread: 3, Verb: 100}, {Kind: sim.FaultStop, Thread: 5, At: 40_000},
						}
					}
					f := newFabric(t, 2, o)
					var g rdma.Fabric = f
					if !driven {
						g = stepwise{f}
					}
					const threads = 24
					var ts []*rdma.Thread
					for i := range threads {
						th, err := rdma.NewThread(g, rdma.ThreadOptions{
							Index: i, Techniques: rdma.AllTechniques, Policy: policy, Arena: 1 << 14,
						})
						if err != nil {
							t.Fatal(err)
						}
						ts = append(ts, th)
					}
					f.Run(threads, func(i int) {
						ts[i].Run(3, func(c *rdma.Coro) {
							var b rdma.Batch
							for k := range 30 {
								c.Each(1+k%3, func(c *rdma.Coro, j int) {
									var b rdma.Batch
									b.Read(at(rdma.BladeID(j&1), c.Thread().Rand()%512*8), uint32(64*j), 8)
									_ = c.Do(&b)
								})
								b.Reset()
								b.FAA(at(rdma.BladeID(k&1), 8*uint64(k%5)), 1)
								if c.Do(&b) != nil {
									return
								}
								sum += b.Result(0)
								switch k % 7 {
								case 0:
									c.Sleep(3000)
								case 1:
									c.Yield()
								}
							}
						})
					})
					for _, th := range ts {
						_ = th.Close()
					}
					return f.TraceHash(), f.Stats().Events, sum, len(f.Stopped())
				}
				h1, e1, s1, n1 := run(true)
				h2, e2, s2, n2 := run(false)
				if h1 != h2 || e1 != e2 || s1 != s2 || n1 != n2 {
					t.Errorf("seed %d: driven %#x, %d events, sum %d, %d stopped; stepwise %#x, %d, %d, %d",
						seed, h1, e1, s1, n1, h2, e2, s2, n2)
				}
				if want := 2 * int(seed%2); n1 != want || s1 == 0 {
					t.Errorf("seed %d: %d threads were stopped, want %d; sum %d", seed, n1, want, s1)
				}
			}
		})
	}
}

// What a coroutine panics with comes out of the Thread.Run of its body, which may
// catch it, and goes on; the other coroutines are unwound.
func TestPanicComesOutOfThreadRun(t *testing.T) {
	f := newFabric(t, 1, sim.Options{})
	ts := [2]*rdma.Thread{}
	for i := range ts {
		ts[i] = newThread(t, f, rdma.ThreadOptions{Index: i, Arena: 4096})
	}
	var unwound, after int
	var caught any
	f.Run(2, func(i int) {
		body := func() {
			ts[i].Run(4, func(c *rdma.Coro) {
				defer func() { unwound++ }()
				c.Sleep(1000)
				if i == 0 && c.ID() == 2 {
					panic("of a coroutine")
				}
				c.Sleep(1000)
			})
		}
		if i == 1 {
			body()
			return
		}
		caught = catch(body)
		ts[0].Run(2, func(c *rdma.Coro) {
			c.Sleep(5000)
			after++
		})
	})
	if caught != "of a coroutine" || unwound != 8 || after != 2 {
		t.Errorf("caught %v, %d coroutines ended, %d ran after it", caught, unwound, after)
	}
}

// A coroutine may run the coroutines of another thread, and wait in them.
func TestRunInsideACoroutine(t *testing.T) {
	f := newFabric(t, 1, sim.Options{})
	var ts []*rdma.Thread
	for i := range 4 {
		ts = append(ts, newThread(t, f, rdma.ThreadOptions{Index: i, Policy: rdma.SharedQP, Arena: 4096}))
	}
	add := func(c *rdma.Coro) {
		var b rdma.Batch
		for range 10 {
			b.Reset()
			b.FAA(at(0, 0), 1)
			if err := c.Do(&b); err != nil {
				t.Error(err)
			}
		}
	}
	f.Run(2, func(i int) {
		ts[i].Run(3, func(c *rdma.Coro) {
			add(c)
			if c.ID() == 1 {
				ts[2+i].Run(3, add)
				add(ts[2+i].Plain())
			}
			add(c)
		})
	})
	var word [8]byte
	if err := f.ReadMemory(0, 0, word[:]); err != nil {
		t.Fatal(err)
	}
	if want := byte(2 * (6 + 4) * 10); word[0] != want {
		t.Errorf("%d additions, want %d", word[0], want)
	}
}
