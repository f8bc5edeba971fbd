package channel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"txnode/channel"
	"txnode/channel/channeltest"
	"txnode/rdma"
)

type opener func(c *rdma.Coro, s channel.Scope, name string) (channel.Lock, error)

// kinds of locks.
var kinds = map[string]opener{
	"mutex": func(c *rdma.Coro, s channel.Scope, name string) (channel.Lock, error) {
		return channel.OpenMutex(context.Background(), c, s, name)
	},
	"ticket lock": func(c *rdma.Coro, s channel.Scope, name string) (channel.Lock, error) {
		return channel.OpenTicketLock(context.Background(), c, s, name)
	},
}

// critical is what holders of a lock have done to two words of another blade, while one member
// stops.
type critical struct {
	w           *channeltest.World
	token       uint64 // of the last holder
	inside, had int    // holders, and those of them that the member which stops has been
}

// enter locks, changes the words, and unlocks.
func (k *critical) enter(m *channel.Member, c *rdma.Coro, l channel.Lock, victim bool) error {
	h, err := l.Lock(context.Background(), c)
	if err != nil {
		return err
	}
	if k.inside++; k.inside != 1 {
		if k.inside--; victim || k.inside != k.had || !h.Abandoned {
			return fmt.Errorf("%d are in the lock: %+v", k.inside, h)
		}
		k.inside, k.had = 1, 0
	}
	if victim {
		k.had = 1
	}
	if h.Token <= k.token {
		return fmt.Errorf("token %d after %d", h.Token, k.token)
	}
	k.token = h.Token
	x, err := k.w.Get(m, c, 1, 0)
	if err != nil {
		return err
	}
	y, err := k.w.Get(m, c, 1, 1)
	if err != nil {
		return err
	}
	if x != y && !h.Abandoned {
		return fmt.Errorf("the words are %d and %d, and %+v", x, y, h)
	}
	if err := errors.Join(k.w.Put(m, c, 1, 0, x+1), k.w.Put(m, c, 1, 1, x+1)); err != nil {
		return err
	}
	if victim {
		k.had = 0
	}
	k.inside--
	return l.Unlock(c)
}

// TestLockStop: a member stops after every half verb of locking, changing two words of another
// blade, and unlocking. Others get the lock, one at a time, with growing tokens. If they find the
// two words different, or the member had the lock, the lock says that it was abandoned.
func TestLockStop(t *testing.T) {
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			stopsBeside(t, func(t *testing.T, caps rdma.Caps, beside bool) {
				stopEverywhere(t, caps, beside, func(w *channeltest.World) (body, []body) {
					k := &critical{w: w}
					use := func(victim bool) body {
						return func(m *channel.Member, c *rdma.Coro) error {
							l, err := open(c, m.Scope("s"), "l")
							if err != nil {
								return err
							}
							if err := k.enter(m, c, l, victim); err != nil {
								return err
							}
							return k.enter(m, c, l, victim)
						}
					}
					return use(true), []body{use(false), use(false)}
				})
			})
		})
	}
}

// TestLockLost: each verb of a member that locks is lost in turn, beside one that locks
// too. No count is lost.
func TestLockLost(t *testing.T) {
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			for _, kind := range lost {
				faults(t, kind, 36, func(w *channeltest.World) []body {
					counted := uint64(0)
					use := func(m *channel.Member, c *rdma.Coro) error {
						l, err := open(c, m.Scope("s"), "l")
						if err != nil {
							return err
						}
						for range 3 {
							if _, err := l.Lock(context.Background(), c); err != nil {
								return err
							}
							x, err := w.Get(m, c, 1, 0)
							if err != nil {
								return err
							}
							if x != counted {
								return fmt.Errorf("%d were counted, and the word is %d", counted, x)
							}
							counted++
							if err := w.Put(m, c, 1, 0, x+1); err != nil {
								return err
							}
							if err := l.Unlock(c); err != nil {
								return err
							}
							c.Sleep(2000)
						}
						return nil
					}
					return []body{use, use}
				})
			}
		})
	}
}

// TestLockPaused: a holder sleeps through its term. Another member takes the lock over; what the
// sleeper writes then fails, and so does its Unlock.
func TestLockPaused(t *testing.T) {
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			w := channeltest.NewWorld(t, disorderly(2))
			w.Identity = channel.Identity{Name: "sleeper", Term: 300_000, Slots: 4}
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
					c.Sleep(100_000)
				}
				h, err := l.Lock(context.Background(), c)
				if err != nil || h.Abandoned != (i == 1) {
					t.Errorf("member %d: %+v, %v", i, h, err)
				}
				key := w.Raw(1, 0)
				if i == 1 {
					if err := errors.Join(w.Put(m, c, 1, 0, 2), l.Unlock(c)); err != nil {
						t.Error(err)
					}
					if h, err := l.Lock(context.Background(), c); err != nil || h.Abandoned {
						t.Errorf("locked after repair: %+v, %v", h, err)
					}
					if err := errors.Join(l.Unlock(c), m.Leave(c)); err != nil {
						t.Error(err)
					}
					return
				}
				c.Sleep(5_000_000)
				m.Thread().PutWord(0, 1)
				var b rdma.Batch
				b.Write(key, 0, 8)
				if err := m.Do(c, &b); !errors.Is(err, channel.ErrFenced) {
					t.Errorf("a WRITE under the lost lock: %v", err)
				}
				if err := l.Unlock(c); !errors.Is(err, channel.ErrFenced) {
					t.Errorf("Unlock of the lost lock: %v", err)
				}
				again, err := channel.Join(context.Background(), c, w.Catalog.Host(), w.Identity)
				if err != nil {
					t.Error(err)
					return
				}
				if x, err := w.Get(again, c, 1, 0); x != 2 || err != nil {
					t.Errorf("the word is %d: %v", x, err)
				}
			})
		})
	}
}

// TestLockCancel: a wait ends with its context, and the number of a ticket lock is given up.
func TestLockCancel(t *testing.T) {
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			w := channeltest.NewWorld(t, disorderly(2))
			held, tried := false, false
			w.Run(2, func(i int, m *channel.Member, c *rdma.Coro) error {
				l, err := open(c, m.Scope("s"), "l")
				if err != nil {
					return err
				}
				if i == 0 {
					if _, err := l.Lock(context.Background(), c); err != nil {
						return err
					}
					held = true
					for !tried {
						c.Sleep(1000)
					}
					if err := l.Unlock(c); err != nil {
						return err
					}
					if _, err := l.Lock(context.Background(), c); err != nil {
						return err
					}
					return l.Unlock(c)
				}
				for !held {
					c.Sleep(1000)
				}
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				if _, err := l.Lock(ctx, c); !errors.Is(err, context.Canceled) {
					t.Errorf("canceled: %v", err)
				}
				tried = true
				_, err = l.Lock(context.Background(), c)
				if err != nil {
					return err
				}
				return l.Unlock(c)
			})
		})
	}
}

// TestLockAll: members lock the same locks in other orders and do not wait in a circle. A lock that
// is given back because another one could not be had keeps its mark.
func TestLockAll(t *testing.T) {
	w := channeltest.NewWorld(t, disorderly(2))
	w.Run(3, func(i int, m *channel.Member, c *rdma.Coro) error {
		var locks []channel.Lock
		for j := range 3 {
			open := kinds["mutex"]
			if j == 1 {
				open = kinds["ticket lock"]
			}
			l, err := open(c, m.Scope("s"), fmt.Sprint("l", j))
			if err != nil {
				return err
			}
			locks = append(locks, l)
		}
		for n := range 6 {
			two := []channel.Lock{locks[(i+n)%3], locks[(i+n+1)%3]}
			held, err := channel.LockAll(context.Background(), c, two...)
			if err != nil || len(held) != 2 {
				return fmt.Errorf("%v: %w", held, err)
			}
			if err := errors.Join(two[0].Unlock(c), two[1].Unlock(c)); err != nil {
				return err
			}
		}
		return nil
	})
	w = channeltest.NewWorld(t, disorderly(2))
	w.Identity = channel.Identity{Name: "dead", Term: 200_000, Slots: 4}
	w.Fabric.Run(2, func(i int) {
		m, c := w.Join(i)
		if m == nil {
			return
		}
		defer m.Thread().Close()
		for _, name := range []string{"mutex", "ticket lock"} {
			a, err := kinds[name](c, m.Scope(""+"s"), name[:3]+"-a")
			if err != nil {
				t.Error(err)
				return
			}
			b, err := kinds[name](c, m.Scope("s"), name[:3]+"-b")
			if err != nil {
				t.Error(err)
				return
			}
			if i == 0 {
				if _, err := a.Lock(context.Background(), c); err != nil {
					t.Error(err)
				}
				continue // and stops
			}
			for c.Sleep(100_000); ; {
				if _, err := b.Lock(context.Background(), c); err != nil {
					t.Error(err)
				}
				held, err := channel.LockAll(context.Background(), c, b, a) // a, then b: this handle holds it
				if !errors.Is(err, channel.ErrOwned) {
					t.Errorf("%s: %v, %v", name, held, err)
				}
				if err := b.Unlock(c); err != nil {
					t.Error(err)
				}
				held, err = channel.LockAll(context.Background(), c, b, a)
				if err != nil || held[0].Abandoned || !held[1].Abandoned {
					t.Errorf("%s: %+v, %v", name, held, err)
				}
				if err := errors.Join(a.Unlock(c), b.Unlock(c)); err != nil {
					t.Error(err)
				}
				break
			}
		}
	})
}

// TestTokensUsedUp: a mutex gives no token that is not greater than all before: when its count
// is used up it is locked by no member, and stays free. Forgotten, and opened again, it goes on
// with greater tokens.
func TestTokensUsedUp(t *testing.T) {
	f := disorderly(1)
	w := channeltest.NewWorld(t, f)
	f.Run(1, func(int) {
		ctx := context.Background()
		m, c := w.Join(0)
		l, err := channel.OpenMutex(ctx, c, m.Scope("s"), "l")
		if err == nil {
			err = l.SetCount(c, channel.MaxCount-1)
		}
		last, lerr := l.Lock(ctx, c)
		if err := errors.Join(err, lerr, l.Unlock(c)); err != nil {
			t.Error(err)
			return
		}
		for range 2 {
			if h, err := l.Lock(ctx, c); !errors.Is(err, channel.ErrTooLarge) {
				t.Errorf("locked behind the last token: %+v, %v", h, err)
			}
		}
		h := w.Catalog.Host()
		_, err = h.Enroll(c, "other")
		if err := errors.Join(err, h.Forget(c, l.Name(), l.Incarnation())); err != nil {
			t.Error(err)
		}
		l.Close()
		if l, err = channel.OpenMutex(ctx, c, m.Scope("s"), "l"); err != nil {
			t.Error(err)
			return
		}
		if next, err := l.Lock(ctx, c); err != nil || next.Token <= last.Token || next.Abandoned {
			t.Errorf("%+v behind %+v: %v", next, last, err)
		}
		if err := errors.Join(l.Unlock(c), m.Thread().Close()); err != nil {
			t.Error(err)
		}
	})
}
