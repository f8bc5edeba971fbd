package channel_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"txnode/channel"
	"txnode/channel/channeltest"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/rdma/sim"
)

// errDies: a member stops in the middle of what it does, and joins again.
var errDies = errors.New("the member dies")

// churn is what members of a churn have done, all together.
type churn struct {
	w       *channeltest.World
	counted uint64          // under the lock, to the end
	deaths  uint64          // in the middle of counting
	stored  uint64          // the greatest value whose Store has returned
	pushed  map[uint64]bool // whose Push has returned
	taken   map[uint64]int
	next    uint64
}

// churner is a member of a churn, with its handles.
type churner struct {
	*churn
	r     *rand.Rand
	calm  bool // no more deaths
	m     *channel.Member
	c     *rdma.Coro
	locks [2]channel.Lock
	queue *channel.Queue[channeltest.Wide]
	owned *channel.Owned[channeltest.Wide]
}

func (x *churner) open() error {
	ctx, s := context.Background(), x.m.Scope("churn")
	mutex, err := channel.OpenMutex(ctx, x.c, s, "mutex")
	if err != nil {
		return err
	}
	ticket, err := channel.OpenTicketLock(ctx, x.c, s, "ticket")
	if err != nil {
		return err
	}
	x.locks = [2]channel.Lock{mutex, ticket}
	if x.owned, err = channel.OpenOwned(ctx, x.c, s, "owned", channel.Plain[channeltest.Wide]("wide")); err != nil {
		return err
	}
	x.queue, err = channel.OpenQueue(ctx, x.c, s, "queue", channel.Plain[channeltest.Wide]("wide"), 8, 12)
	return err
}

// perhaps is errDies now and then, or sleeps until others may have declared the member dead.
func (x *churner) perhaps() error {
	n := x.r.IntN(24)
	switch {
	case x.calm:
	case n == 0:
		return errDies
	case n == 1:
		x.c.Sleep(2 * x.w.Identity.Term)
	}
	return nil
}

// count adds one to two words on another blade than a lock's, under a lock. A holder after a dead
// one makes them equal again.
func (x *churner) count(i int) (err error) {
	l := x.locks[i]
	h, err := l.Lock(context.Background(), x.c)
	if err != nil {
		return err
	}
	begun := false
	defer func() {
		if err != nil && begun {
			x.deaths++
		}
	}()
	a, err := x.w.Get(x.m, x.c, 1, 2*i)
	if err != nil {
		return err
	}
	b, err := x.w.Get(x.m, x.c, 1, 2*i+1)
	if err != nil {
		return err
	}
	if a != b && !h.Abandoned {
		return fmt.Errorf("%s: the words are %d and %d, and no holder has died: %+v", l.Name(), a, b, h)
	}
	begun = true
	a = max(a, b) + 1
	// With the key of now, which a fence ends.
	one, two := x.w.Raw(1, 2*i), x.w.Raw(1, 2*i+1)
	if err := x.put(one, a); err != nil {
		return err
	}
	if err := x.perhaps(); err != nil {
		return err
	}
	if err := x.put(two, a); err != nil {
		return err
	}
	if err := l.Unlock(x.c); err != nil {
		return err
	}
	x.counted++
	return nil
}

func (x *churner) put(to rdma.RemoteAddr, v uint64) error {
	t := x.m.Thread()
	local, err := t.Alloc(64)
	if err != nil {
		return err
	}
	defer t.Free(local, 64)
	t.PutWord(local, v)
	var b rdma.Batch
	b.Write(to, local, 8)
	return x.m.Do(x.c, &b)
}

func (x *churner) push() error {
	x.next++
	n := x.next
	if err := x.perhaps(); err != nil {
		return err
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	err := x.queue.Push(over, x.c, channeltest.WideOf(n))
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, channel.ErrUncertain):
		return nil // full, or pushed perhaps
	case err == nil:
		x.pushed[n] = true
	}
	return err
}

// take takes an item, and reports what must not be. wait: among those that dead members have.
func (x *churner) take(wait bool) error {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	var item channel.Item[channeltest.Wide]
	var err error
	ok := wait
	if wait {
		item, err = x.queue.Take(over, x.c)
	} else {
		item, ok, err = x.queue.TryTake(x.c)
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	if !ok || err != nil {
		return err
	}
	n := item.Value[0]
	if x.taken[n]++; item.Value.Torn() || n == 0 || n > x.next || x.taken[n] > 1 && !item.Again {
		return fmt.Errorf("item %v was taken %d times", item, x.taken[n])
	}
	if err := x.perhaps(); err != nil {
		return err
	}
	return x.queue.Done(x.c, item)
}

func (x *churner) store() error {
	if err := x.owned.Own(context.Background(), x.c); err != nil {
		return err
	}
	least := x.stored
	v, version, err := x.owned.Load(x.c)
	if err != nil {
		return err
	}
	if v.Torn() || v[0] != version || version < least {
		return fmt.Errorf("version %d is %v, after %d was stored", version, v, least)
	}
	if err := x.perhaps(); err != nil {
		return err
	}
	if err := x.owned.Store(x.c, channeltest.WideOf(version+1)); err != nil {
		return err
	}
	x.stored = max(x.stored, version+1)
	return x.owned.Disown(x.c)
}

func (x *churner) step() error {
	if err := x.m.Beat(x.c); err != nil {
		return err
	}
	switch x.r.IntN(6) {
	case 0, 1:
		return x.count(x.r.IntN(2))
	case 2:
		return x.push()
	case 3:
		return x.take(false)
	case 4:
		return x.take(true)
	}
	return x.store()
}

// again joins under another number. What the member had stays behind.
func (x *churner) again() (err error) {
	x.m, err = channel.Join(context.Background(), x.c, x.w.Catalog.Host(), x.w.Identity)
	if err == nil {
		err = x.open()
	}
	return err
}

// TestChurn: members use several objects, stop in the middle or sleep through their terms, and join
// again, as seeds have it. Nothing is lost, and the objects work when it is over.
func TestChurn(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		for i, caps := range weak() {
			t.Run(fmt.Sprintf("seed=%d/disorderly-%d", seed, i), func(t *testing.T) {
				testChurn(t, seed,
					rdmatest.New(rdmatest.Options{
						Blades: 2, Size: 1 << 20, Caps: caps, Seed: seed + 1, SpreadNs: 3000,
					}))
			})
		}
		for _, freedom := range []sim.Freedom{sim.FreedomMild, sim.FreedomHostile} {
			t.Run(fmt.Sprintf("seed=%d/sim-%v", seed, freedom), func(t *testing.T) {
				f, err := sim.New(sim.Options{
					Blades: bladesOf(2, sim.BladeOptions{Size: 1 << 20, Key: 1}),
					Seed:   seed + 1, Freedom: freedom, Profile: sim.Ideal(),
				})
				if err != nil {
					t.Fatal(err)
				}
				testChurn(t, seed, f)
			})
		}
	}
}

func testChurn(t *testing.T, seed uint64, f rdma.Fabric) {
	const members, steps = 3, 40
	w := channeltest.NewWorld(t, f)
	w.Identity, w.Options.Arena = channel.Identity{Name: "churn", Term: 500_000, Slots: 32}, 1<<20
	s := &churn{w: w, pushed: map[uint64]bool{}, taken: map[uint64]int{}}
	run := func(i int, fn func(x *churner) error) {
		x := &churner{churn: s, r: rand.New(rand.NewPCG(seed, uint64(i)))}
		if x.m, x.c = w.Join(i); x.m == nil {
			return
		}
		defer x.m.Thread().Close()
		err := x.open()
		if err == nil {
			err = fn(x)
		}
		if err != nil {
			t.Errorf("member %d: %v", i, err)
		}
	}
	w.Fabric.Run(members, func(i int) {
		run(i, func(x *churner) error {
			for n := 0; n < steps; {
				err := x.step()
				for errors.Is(err, errDies) || errors.Is(err, channel.ErrFenced) ||
					errors.Is(err, channel.ErrNotOwner) && x.m.Beat(x.c) != nil {
					err = x.again()
				}
				if err != nil {
					return fmt.Errorf("step %d: %w", n, err)
				}
				n++
			}
			return nil
		})
	})
	if t.Failed() {
		return
	}
	w.Fabric.Run(1, func(int) {
		run(members, func(x *churner) error {
			x.calm = true
			for range 3 {
				for i := range x.locks {
					if err := x.count(i); err != nil {
						return err
					}
				}
				if err := x.store(); err != nil {
					return err
				}
			}
			total := uint64(0)
			for i := range x.locks {
				a, err := x.w.Get(x.m, x.c, 1, 2*i)
				if err != nil {
					return err
				}
				total += a
			}
			if total < x.counted || total > x.counted+x.deaths {
				t.Errorf("counted to %d, in %d times to the end, and %d times to a death", total, x.counted, x.deaths)
			}
			for began := x.m.Thread().Now(); ; {
				missing := 0
				for n := range x.pushed {
					if x.taken[n] == 0 {
						missing++
					}
				}
				if missing == 0 {
					return nil
				}
				if x.m.Thread().Now()-began > 40*x.w.Identity.Term {
					return fmt.Errorf("%d of %d items are missing", missing, len(x.pushed))
				}
				if err := errors.Join(x.take(true), x.m.Beat(x.c)); err != nil {
					return err
				}
				x.c.Sleep(10_000)
			}
		})
	})
}
