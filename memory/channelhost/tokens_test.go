package channelhost_test

import (
	"context"
	"errors"
	"testing"

	"txnode/channel"
	"txnode/memory/layout"
	"txnode/rdma"
)

// TestTokens: a member holds a lock that is lost with its blade, or that another member forgets.
// The next holder of the lock of that name has a greater token, and is told when the state may be
// half changed, until it has unlocked. The first member does nothing more: not to an object on
// another blade either.
func TestTokens(t *testing.T) {
	ctx := t.Context()
	for name, open := range map[string]func(c *rdma.Coro, s channel.Scope) (channel.Lock, error){
		"mutex": func(c *rdma.Coro, s channel.Scope) (channel.Lock, error) {
			return channel.OpenMutex(ctx, c, s, "lock")
		},
		"ticket lock": func(c *rdma.Coro, s channel.Scope) (channel.Lock, error) {
			return channel.OpenTicketLock(ctx, c, s, "lock")
		},
	} {
		for _, lost := range []bool{true, false} {
			how := name + " that is forgotten"
			if lost {
				how = name + " that is lost"
			}
			t.Run(how, func(t *testing.T) {
				b := newBed(t, 3, 1, 2)
				m, c := b.join(0)
				l, err := open(c, m.Scope("s"))
				check(t, err)
				place := l.(placed).Place()
				m2, c2 := b.join(1)
				v2, err := channel.OpenVar[uint64](ctx, c2, m2.Scope("s"), "v") // in a segment of the other process
				check(t, err)
				v, err := channel.OpenVar[uint64](ctx, c, m.Scope("s"), "v")
				check(t, err)
				if v.Place().Blade == place.Blade {
					t.Fatal("the variable is on the blade of the lock")
				}
				for range 10 {
					_, err := l.Lock(ctx, c)
					check(t, errors.Join(err, l.Unlock(c)))
				}
				first, err := l.Lock(ctx, c)
				check(t, err)
				check(t, v.Store(c, 1))

				if lost {
					check(t, b.spaces[1].AdvanceEpoch(func(x *layout.Layout) error {
						x.TakeDown(place.Blade)
						return nil
					}))
					check(t, b.spaces[0].Follow()) // as its maintenance does; the member is not told
				} else {
					check(t, b.enroll(1).Forget(b.coros[1], "s/lock", place.Incarnation))
				}
				if lost {
					m2.Close()
					m2, c2 = b.join(1)
					v2, err = channel.OpenVar[uint64](ctx, c2, m2.Scope("s"), "v")
					check(t, err)
				}
				l2, err := open(c2, m2.Scope("s"))
				check(t, err)
				_, err = channel.LockAll(ctx, c2, l2, refused{})
				if !errors.Is(err, errRefused) {
					t.Fatal(err)
				}
				second, err := l2.Lock(ctx, c2)
				check(t, err)
				if second.Token <= first.Token || second.Abandoned != lost {
					t.Errorf("behind %+v the next holder is told %+v", first, second)
				}
				if err := v.Store(c, 2); !errors.Is(err, channel.ErrFenced) {
					t.Errorf("the first holder goes on: %v", err)
				}
				check(t, l2.Unlock(c2))
				third, err := l2.Lock(ctx, c2)
				check(t, err)
				if third.Token <= second.Token || third.Abandoned {
					t.Errorf("behind %+v the next holder is told %+v", second, third)
				}
				if x, err := v2.Load(c2); x != 1 || err != nil {
					t.Errorf("the variable is %d: %v", x, err)
				}
				check(t, l2.Unlock(c2))
			})
		}
	}
}

var errRefused = errors.New("refused")

// refused is a lock that cannot be had.
type refused struct{ lock }

type lock = channel.Lock

func (refused) Name() string { return "z" }

func (refused) Lock(context.Context, *rdma.Coro) (channel.Held, error) {
	return channel.Held{}, errRefused
}

// TestTokensUnrevoked: a lock that is lost is not made anew while a key of its holder opens a
// blade.
func TestTokensUnrevoked(t *testing.T) {
	ctx := t.Context()
	b := newBed(t, 3, 1, 2)
	m, c := b.join(0)
	l, err := channel.OpenMutex(ctx, c, m.Scope("s"), "lock")
	check(t, err)
	_, err = l.Lock(ctx, c)
	check(t, err)
	h := b.enroll(1)
	spec := channel.Spec{Kind: channel.KindMutex, Bytes: 128}
	b.fabric.refuse = true
	_ = b.spaces[1].AdvanceEpoch(func(x *layout.Layout) error { x.TakeDown(l.Place().Blade); return nil })
	if p, err := h.Declare(b.coros[1], "s/lock", spec); !errors.Is(err, rdma.ErrBladeDown) {
		t.Errorf("the lock is at %+v: %v", p, err)
	}
	b.fabric.refuse = false
	if p, err := h.Declare(b.coros[1], "s/lock", spec); err != nil || !p.Anew || p.Incarnation <= l.Incarnation() {
		t.Errorf("the lock is at %+v: %v", p, err)
	}
}
