package channel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/channel"
	"txnode/channel/channeltest"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// TestHandOver: coroutines of a member hand a lock over without a verb, in the order in which
// they have asked. After seven times it is given back, so a member that waits with a ticket
// is the ninth holder.
func TestHandOver(t *testing.T) {
	const coroutines = 12
	for name, open := range kinds {
		for _, caps := range weak() {
			t.Run(fmt.Sprintf("%s, %+v", name, caps), func(t *testing.T) {
				w := channeltest.NewWorld(t, rdmatest.New(rdmatest.Options{Blades: 2, Size: 1 << 20, Caps: caps}))
				var order, want []int
				var token uint64
				held := false
				enter := func(n int, h channel.Held) {
					if h.Token <= token || h.Abandoned {
						t.Errorf("holder %d: %+v after token %d", n, h, token)
					}
					token, order = h.Token, append(order, n)
				}
				w.Fabric.Run(2, func(i int) {
					m, c := w.Join(i)
					if m == nil {
						return
					}
					defer m.Thread().Close()
					l, err := open(c, m.Scope("s"), "l")
					if err != nil {
						t.Error(err)
						return
					}
					if i == 1 {
						for !held {
							c.Sleep(1000)
						}
						h, err := l.Lock(t.Context(), c)
						check(t, err)
						enter(-1, h)
						check(t, l.Unlock(c))
						return
					}
					m.Thread().Run(coroutines, func(c *rdma.Coro) {
						n := c.ID()
						c.Sleep(int64(1000 * n)) // they ask in this order
						verbs := func() uint64 { return c.Count.Total() }
						before := verbs()
						h, err := l.Lock(t.Context(), c)
						check(t, err)
						enter(n, h)
						if spent := verbs() - before; (spent == 0) != (n != 0 && n != 8) {
							t.Errorf("coroutine %d has locked with %d verbs", n, spent)
						}
						if n == 0 {
							held = true
							c.Sleep(1_000_000) // the other member, and all coroutines, wait
						}
						before = verbs()
						check(t, l.Unlock(c))
						if spent := verbs() - before; (spent == 0) != (n != 7 && n != coroutines-1) {
							t.Errorf("coroutine %d has unlocked with %d verbs", n, spent)
						}
					})
				})
				for n := range coroutines {
					if n == 8 && name == "ticket lock" {
						want = append(want, -1)
					}
					want = append(want, n)
				}
				if name != "ticket lock" { // which of the two gets it is open
					order = slices.DeleteFunc(order, func(n int) bool { return n < 0 })
				}
				if !slices.Equal(order, want) {
					t.Errorf("holders %v, want %v", order, want)
				}
			})
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// shared is a member whose coroutines use a lock by one handle.
func shared(open opener, coroutines int, use func(m *channel.Member, c *rdma.Coro, l channel.Lock) error) body {
	return func(m *channel.Member, c *rdma.Coro) error {
		l, err := open(c, m.Scope("s"), "l")
		if err != nil {
			return err
		}
		errs := make([]error, coroutines)
		m.Thread().Run(coroutines, func(c *rdma.Coro) { errs[c.ID()] = use(m, c, l) })
		return errors.Join(errs...)
	}
}

// TestHandOverStop: a member whose coroutines hand a lock over stops after every half verb. Others
// get the lock, alone, with greater tokens; if they find two words of another blade different, the
// lock says that it was abandoned.
func TestHandOverStop(t *testing.T) {
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			stopsBeside(t, func(t *testing.T, caps rdma.Caps, beside bool) {
				stopEverywhere(t, caps, beside, func(w *channeltest.World) (body, []body) {
					k := &critical{w: w}
					use := func(victim bool) func(m *channel.Member, c *rdma.Coro, l channel.Lock) error {
						return func(m *channel.Member, c *rdma.Coro, l channel.Lock) error {
							return k.enter(m, c, l, victim)
						}
					}
					return shared(open, 3, use(true)), []body{shared(open, 2, use(false)), shared(open, 1, use(false))}
				})
			})
		})
	}
}

// TestHandOverFenced: a member is fenced while one of its coroutines holds a lock and the next one
// waits. Whichever has it then, nothing that it writes arrives, and both learn of it.
func TestHandOverFenced(t *testing.T) {
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			w := channeltest.NewWorld(t, disorderly(2))
			other := w.Catalog.Host()
			m, c := w.Join(0)
			l, err := open(c, m.Scope("s"), "l")
			if err != nil {
				t.Fatal(err)
			}
			defer m.Thread().Close()
			key := w.Raw(1, 0)
			waits := false
			m.Thread().Run(2, func(c *rdma.Coro) {
				if c.ID() == 1 {
					waits = true
				}
				if _, err := l.Lock(context.Background(), c); err != nil {
					t.Error(err)
				}
				if c.ID() == 0 {
					for !waits {
						c.Sleep(1000)
					}
					c.Sleep(10_000)
					if _, err := other.Enroll(c, "other"); err != nil {
						t.Error(err)
					}
					check(t, other.Fence(c, m.ID()))
				} else {
					local, err := m.Thread().Alloc(64)
					check(t, err)
					m.Thread().PutWord(local, 1)
					var b rdma.Batch
					b.Write(key, local, 8)
					if err := m.Do(c, &b); !errors.Is(err, channel.ErrFenced) {
						t.Errorf("a WRITE under a lock that was handed over by the dead: %v", err)
					}
				}
				if err := l.Unlock(c); err != nil && !errors.Is(err, channel.ErrFenced) || c.ID() == 1 && err == nil {
					t.Errorf("coroutine %d: Unlock: %v", c.ID(), err)
				}
			})
			m2, c2 := w.Join(1)
			defer m2.Thread().Close()
			if x, err := w.Get(m2, c2, 1, 0); x != 0 || err != nil {
				t.Errorf("the word is %d: %v", x, err)
			}
			l2, err := open(c2, m2.Scope("s"), "l")
			if err != nil {
				t.Fatal(err)
			}
			if h, err := l2.Lock(context.Background(), c2); err != nil || !h.Abandoned {
				t.Errorf("the lock of the dead: %+v, %v", h, err)
			}
		})
	}
}

// TestHandOverFence: a coroutine writes on another blade and hands the lock over. The next one
// gives it back without a fence of its own: with a batch, or because LockAll does not get another
// lock. What was written is visible then.
func TestHandOverFence(t *testing.T) {
	for name, open := range kinds {
		for _, staged := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, staged=%v", name, staged), func(t *testing.T) {
				f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 1 << 20, SpreadNs: 1_000_000, Seed: 5})
				w := channeltest.NewWorld(t, f)
				m, c := w.Join(0)
				defer m.Thread().Close()
				l, err := open(c, m.Scope("s"), "l")
				check(t, err)
				z, err := open(c, m.Scope("s"), "z")
				if err != nil {
					t.Fatal(err)
				}
				other := 1 - l.(interface{ Place() channel.Place }).Place().Blade
				handed, over := false, false
				m.Thread().Run(2, func(c *rdma.Coro) {
					if c.ID() == 0 {
						_, err := l.Lock(t.Context(), c)
						check(t, err)
						if !staged { // what the other one does not get
							_, err := z.Lock(t.Context(), c)
							check(t, err)
						}
						c.Sleep(20_000) // the other one waits
						check(t, w.Put(m, c, other, 0, 1))
						handed = true
						check(t, l.Unlock(c))
						for !over {
							c.Sleep(500)
						}
						if !staged {
							check(t, z.Unlock(c))
						}
						return
					}
					c.Sleep(10_000)
					if staged {
						_, err := l.Lock(t.Context(), c)
						var b rdma.Batch
						check(t, errors.Join(err, l.StageUnlock(&b), m.Do(c, &b)))
					} else if _, err := channel.LockAll(ended{t.Context(), &handed}, c, l,
						z); !errors.Is(err, context.Canceled) {
						t.Errorf("both locks: %v", err)
					}
					if x := f.Memory(other)[w.Raw(other, 0).Off]; x != 1 {
						t.Errorf("the lock is given back, and the word is %d", x)
					}
					if _, err := l.Lock(t.Context(), c); err != nil { // it was given back
						t.Error(err)
					}
					check(t, l.Unlock(c))
					over = true
				})
			})
		}
	}
}

// ended is a context that ends when a variable is set.
type ended struct {
	context.Context
	over *bool
}

func (e ended) Err() error {
	if *e.over {
		return context.Canceled
	}
	return nil
}
