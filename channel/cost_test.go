package channel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"txnode/channel"
	"txnode/channel/channeltest"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/rdma/rdmatest"
)

// cost is the verbs and round trips of an operation.
type cost struct{ verbs, trips uint64 }

// costs measures what operations post.
type costs struct {
	t *testing.T
	c *rdma.Coro
}

func (k costs) want(what string, want cost, fn func() error) {
	k.t.Helper()
	before := *k.c.Count
	if err := fn(); err != nil {
		k.t.Errorf("%s: %v", what, err)
	}
	n := uint64(0)
	for i := range before.Verbs {
		n += k.c.Count.Verbs[i] - before.Verbs[i]
	}
	if got := (cost{n, k.c.Count.RoundTrips - before.RoundTrips}); got != want {
		k.t.Errorf("%s: %d verbs in %d round trips, want %d in %d", what, got.verbs, got.trips, want.verbs, want.trips)
	}
}

func newInproc(tb testing.TB, n int, size uint64) rdma.Fabric {
	f, err := inproc.New(inproc.Options{Blades: bladesOf(n, inproc.BladeOptions{Size: size, Key: 1}), Seed: 1})
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// TestCosts asserts the exact verbs and round trips of each operation when nothing is contended,
// with all promises of a fabric, and with none.
func TestCosts(t *testing.T) {
	for _, all := range []bool{true, false} {
		name, f := "no promises", rdma.Fabric(rdmatest.New(rdmatest.Options{Blades: 2, Size: 1 << 20}))
		p := uint64(1) // the READ behind a WRITE
		if all {
			name, f, p = "all promises", newInproc(t, 2, 1<<20), 0
		}
		t.Run(name, func(t *testing.T) {
			w := channeltest.NewWorld(t, f)
			w.Run(1, func(_ int, m *channel.Member, c *rdma.Coro) error {
				ctx, s, k := context.Background(), m.Scope("s"), costs{t, c}
				pick := func(with, without cost) cost {
					if all {
						return with
					}
					return without
				}
				v, err := channel.OpenVar[int64](ctx, c, s, "v")
				if err != nil {
					return err
				}
				k.want("Var.Load", cost{1, 1}, func() error { _, err := v.Load(c); return err })
				k.want("Var.Add", cost{1, 1}, func() error { _, err := v.Add(c, -1); return err })
				k.want("Var.CompareAndSwap", cost{1, 1}, func() error {
					_, _, err := v.CompareAndSwap(c, 0, 1)
					return err
				})
				k.want("Var.Store", pick(cost{1, 1}, cost{2, 2}), func() error { return v.Store(c, 5) })

				o, err := channel.OpenOwned(ctx, c, s, "o", channel.Plain[channeltest.Wide]("wide"))
				if err != nil {
					return err
				}
				k.want("Owned.Own", cost{2, 1}, func() error { return o.Own(ctx, c) })
				k.want("Owned.Store", cost{1 + p, 1}, func() error { return o.Store(c, channeltest.WideOf(1)) })
				k.want("Owned.Load", cost{1, 1}, func() error { _, _, err := o.Load(c); return err })
				k.want("Owned.Disown", cost{1, 1}, func() error { return o.Disown(c) })

				t1, err := channel.OpenSST(ctx, c, s, "t", channel.Plain[uint64]("word"), 64)
				if err != nil {
					return err
				}
				k.want("SST.Store", cost{1 + p, 1}, func() error { return t1.Store(c, 1) })
				k.want("SST.Look", cost{1, 1}, func() error { return t1.Look(c) })
				k.want("Beat, not due", cost{0, 0}, func() error { return m.Beat(c) })

				l, err := channel.OpenMutex(ctx, c, s, "l")
				if err != nil {
					return err
				}
				k.want("Mutex.Lock", cost{1, 1}, func() error { _, err := l.Lock(ctx, c); return err })
				k.want("Mutex.Unlock", cost{1, 1}, func() error { return l.Unlock(c) })
				q, err := channel.OpenTicketLock(ctx, c, s, "q")
				if err != nil {
					return err
				}
				k.want("TicketLock.Lock", cost{3, 2}, func() error { _, err := q.Lock(ctx, c); return err })
				k.want("TicketLock.Unlock", cost{2, 1}, func() error { return q.Unlock(c) })
				a, err := channel.OpenBarrier(ctx, c, s, "a", 1)
				if err != nil {
					return err
				}
				k.want("Barrier.Wait", cost{2, 1}, func() error { return a.Wait(ctx, c) })
				if err := w.Put(m, c, 0, 0, 1); err != nil {
					return err
				}
				k.want("Barrier.Wait with a fence", pick(cost{2, 1}, cost{3, 2}), func() error {
					return a.Wait(ctx, c)
				})
				if err := w.Put(m, c, 1, 0, 1); err != nil {
					return err
				}
				if err := w.Put(m, c, 0, 0, 1); err != nil {
					return err
				}
				if _, err := l.Lock(ctx, c); err != nil {
					return err
				}
				k.want("Mutex.Unlock with a fence", pick(cost{1, 1}, cost{2, 2}), func() error { return l.Unlock(c) })
				r, err := channel.OpenRing(ctx, c, s, "r", channel.Plain[uint64]("word"), 16, 4)
				if err != nil {
					return err
				}
				from, err := r.Sender(ctx, c)
				if err != nil {
					return err
				}
				to, err := r.Receiver(ctx, c)
				if err != nil {
					return err
				}
				k.want("Send, and look for room", cost{2 + p, 2}, func() error { return from.Send(ctx, c, 1) })
				k.want("Send", cost{1 + p, 1}, func() error { return from.Send(ctx, c, 2) })
				k.want("Receive", cost{1, 1}, func() error { _, err := to.Receive(ctx, c); return err })
				k.want("Receive the next", cost{0, 0}, func() error { _, err := to.Receive(ctx, c); return err })
				if err := lappedCosts(ctx, k, s, c, p); err != nil {
					return err
				}
				u, err := channel.OpenQueue(ctx, c, s, "u", channel.Plain[uint64]("word"), 16, 4)
				if err != nil {
					return err
				}
				var item channel.Item[uint64]
				k.want("Queue.TryTake, empty", cost{2, 1}, func() error { _, _, err := u.TryTake(c); return err })
				k.want("Queue.Push", cost{3, 2}, func() error { return u.Push(ctx, c, 1) })
				k.want("Queue.Take", cost{5, 2}, func() (err error) { item, err = u.Take(ctx, c); return err })
				k.want("Queue.Done", cost{1, 1}, func() error { return u.Done(c, item) })
				if err := kvCosts(ctx, k, m, c); err != nil {
					return err
				}

				var b rdma.Batch
				k.want("three objects in one doorbell", cost{3 + p, 1}, func() error {
					if err := v.StageAdd(&b, 1); err != nil {
						return err
					}
					if err := v.StageCompareAndSwap(&b, 1, 1); err != nil {
						return err
					}
					if err := t1.StageStore(&b, 2); err != nil {
						return err
					}
					return m.Do(c, &b)
				})
				return nil
			})
		})
	}
}

// kvCosts is TestCosts of a KV.
func kvCosts(ctx context.Context, k costs, m *channel.Member, c *rdma.Coro) error {
	v, err := openKV(m, c, channel.KVOptions{Keys: 2, Bucket: 1})
	if err != nil {
		return err
	}
	keys := neighbours(v, 3)
	insert := func(key uint64) func() error {
		return func() error { _, err := v.Insert(ctx, c, key, channeltest.WideOf(1)); return err }
	}
	get := func(key uint64) func() error { return func() error { _, _, err := v.Get(c, key); return err } }
	put := func(key uint64) func() error {
		return func() error { return v.Put(ctx, c, key, channeltest.WideOf(2)) }
	}
	del := func(key uint64) func() error { return func() error { _, err := v.Delete(ctx, c, key); return err } }
	update := func(key uint64) func() error {
		return func() error { _, err := v.Update(ctx, c, key, channeltest.WideOf(3)); return err }
	}
	k.want("KV.Get of nothing", cost{1, 1}, get(keys[0]))
	k.want("KV.Delete of nothing", cost{3, 2}, del(keys[0]))
	k.want("KV.Update of nothing", cost{3, 2}, update(keys[0]))
	k.want("KV.Insert", cost{4, 2}, insert(keys[0]))
	k.want("KV.Insert of what is there", cost{3, 2}, insert(keys[0]))
	k.want("KV.Get", cost{1, 1}, get(keys[0]))
	k.want("KV.Put", cost{4, 2}, put(keys[0]))
	k.want("KV.Update", cost{4, 2}, update(keys[0]))
	k.want("KV.Insert, the first key of a block", cost{8, 4}, insert(keys[1]))
	k.want("KV.Get in a block", cost{2, 2}, get(keys[1]))
	k.want("KV.Put in a block", cost{5, 3}, put(keys[1]))
	k.want("KV.Insert, the first key of another block", cost{9, 5}, insert(keys[2]))
	k.want("KV.Get in the second block", cost{3, 3}, get(keys[1]))
	k.want("KV.Delete, the last key of a block", cost{7, 4}, del(keys[1]))
	k.want("KV.Delete", cost{4, 2}, del(keys[0]))
	k.want("KV.Insert, beside a block", cost{5, 3}, insert(keys[0]))
	k.want("KV.Hold", cost{2, 1}, func() error { _, _, err := v.Hold(ctx, c, keys[0]); return err })
	var b rdma.Batch
	k.want("KV.StagePut", cost{2, 1}, func() error {
		if err := v.StagePut(&b, channeltest.WideOf(4)); err != nil {
			return err
		}
		return m.Do(c, &b)
	})
	return nil
}

// TestAllocations: operations allocate nothing.
func TestAllocations(t *testing.T) {
	w := channeltest.NewWorld(t, newInproc(t, 2, 1<<20))
	w.Run(1, func(_ int, m *channel.Member, c *rdma.Coro) error {
		ctx, s := context.Background(), m.Scope("s")
		v, err := channel.OpenVar[int64](ctx, c, s, "v")
		if err != nil {
			return err
		}
		o, err := channel.OpenOwned(ctx, c, s, "o", channel.Plain[channeltest.Wide]("wide"))
		if err != nil {
			return err
		}
		if err := o.Own(ctx, c); err != nil {
			return err
		}
		t1, err := channel.OpenSST(ctx, c, s, "t", channel.Plain[uint64]("word"), 8)
		if err != nil {
			return err
		}
		none := func(what string, fn func() error) {
			if n := testing.AllocsPerRun(50, func() {
				if err := fn(); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}); n != 0 {
				t.Errorf("%s allocates %v times", what, n)
			}
		}
		none("Var.Add", func() error { _, err := v.Add(c, 1); return err })
		none("Var.Load", func() error { _, err := v.Load(c); return err })
		none("Var.Store", func() error { return v.Store(c, 1) })
		none("Owned.Store", func() error { return o.Store(c, channeltest.WideOf(1)) })
		none("Owned.Load", func() error { _, _, err := o.Load(c); return err })
		none("SST.Store", func() error { return t1.Store(c, 1) })
		none("SST.Look", func() error { return t1.Look(c) })
		l, err := channel.OpenMutex(ctx, c, s, "l")
		if err != nil {
			return err
		}
		none("Mutex", func() error {
			if _, err := l.Lock(ctx, c); err != nil {
				return err
			}
			return l.Unlock(c)
		})
		q, err := channel.OpenTicketLock(ctx, c, s, "q")
		if err != nil {
			return err
		}
		none("TicketLock", func() error {
			if _, err := q.Lock(ctx, c); err != nil {
				return err
			}
			return q.Unlock(c)
		})
		a, err := channel.OpenBarrier(ctx, c, s, "a", 1)
		if err != nil {
			return err
		}
		r, err := channel.OpenRing(ctx, c, s, "r", channel.Plain[channeltest.Wide]("wide"), 4, 4)
		if err != nil {
			return err
		}
		from, err := r.Sender(ctx, c)
		if err != nil {
			return err
		}
		to, err := r.Receiver(ctx, c)
		if err != nil {
			return err
		}
		none("Ring", func() error {
			if err := from.Send(ctx, c, channeltest.WideOf(1)); err != nil {
				return err
			}
			_, err := to.Receive(ctx, c)
			return err
		})
		u, err := channel.OpenQueue(ctx, c, s, "u", channel.Plain[channeltest.Wide]("wide"), 4, 4)
		if err != nil {
			return err
		}
		none("Queue", func() error {
			if err := u.Push(ctx, c, channeltest.WideOf(1)); err != nil {
				return err
			}
			_, err := u.Pop(ctx, c)
			return err
		})
		kv, err := openKV(m, c, channel.KVOptions{Keys: 2, Bucket: 1})
		if err != nil {
			return err
		}
		keys := neighbours(kv, 2)
		none("KV", func() error {
			for _, k := range keys {
				if err := kv.Put(ctx, c, k, channeltest.WideOf(1)); err != nil {
					return err
				}
			}
			for _, k := range keys {
				if _, ok, err := kv.Get(c, k); !ok || err != nil {
					return err
				}
				if _, err := kv.Delete(ctx, c, k); err != nil {
					return err
				}
			}
			return nil
		})
		none("Barrier.Wait", func() error { return a.Wait(ctx, c) })
		return nil
	})
}

// lappedCosts are those of a ring without rows.
func lappedCosts(ctx context.Context, k costs, s channel.Scope, c *rdma.Coro, p uint64) error {
	r, err := channel.OpenRing(ctx, c, s, "lapping", channel.Plain[uint64]("word"), 4, 0)
	if err != nil {
		return err
	}
	from, err := r.Sender(ctx, c)
	if err != nil {
		return err
	}
	var to *channel.Receiver[uint64]
	k.want("Ring.Receiver, without rows", cost{1, 1}, func() error { to, err = r.Receiver(ctx, c); return err })
	for n := range uint64(9) {
		k.want("Send, without rows", cost{1 + p, 1}, func() error { return from.Send(ctx, c, n) })
	}
	k.want("Receive, lapped", cost{3, 3}, func() error {
		var lapped *channel.LappedError
		if _, err := to.Receive(ctx, c); !errors.As(err, &lapped) || lapped.Missed != 5 {
			return fmt.Errorf("lapped: %w", err)
		}
		return nil
	})
	for _, verbs := range []uint64{1, 0, 0, 1} { // messages 6 to 8 lie in a row
		k.want("Receive, without rows", cost{verbs, verbs}, func() error { _, err := to.Receive(ctx, c); return err })
	}
	return nil
}
