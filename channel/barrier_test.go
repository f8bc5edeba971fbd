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

// TestBarrierStop: one of three parties stops after every half verb, from joining on. The other two
// pass the same rounds, and end with the same error. If the party had no row yet, another member
// takes it, and all rounds are passed. After Reform all go on.
func TestBarrierStop(t *testing.T) {
	stops(t, func(t *testing.T, caps rdma.Caps) {
		stopEverywhere(t, caps, true, func(w *channeltest.World) (body, []body) {
			const rounds = 3
			ctx := context.Background()
			var ends []string
			stopped := uint64(0) // rounds that the victim has passed
			use := func(m *channel.Member, c *rdma.Coro, opened *int) (*channel.Barrier, uint64, error) {
				b, err := channel.OpenBarrier(ctx, c, m.Scope("s"), "b", 3)
				if err != nil {
					return nil, 0, err
				}
				*opened++
				for n := range uint64(rounds) {
					if err := b.Wait(ctx, c); err != nil {
						return b, n, err
					}
				}
				return b, rounds, nil
			}
			opened, survivors := false, 0
			victim := func(m *channel.Member, c *rdma.Coro) error {
				b, err := channel.OpenBarrier(ctx, c, m.Scope("s"), "b", 3)
				if err != nil {
					return err
				}
				for opened = true; stopped < rounds; stopped++ {
					if err := b.Wait(ctx, c); err != nil {
						return err
					}
				}
				return nil
			}
			reformed := func(b *channel.Barrier, c *rdma.Coro) error {
				for range 2 {
					if err := b.Wait(ctx, c); err != nil {
						return err
					}
				}
				return nil
			}
			survivor := func(m *channel.Member, c *rdma.Coro) error {
				b, n, err := use(m, c, &survivors)
				var e *channel.MissingError
				switch {
				case err == nil && n == rounds:
				case errors.As(err, &e) && e.Round == n+1 && n >= stopped:
				default:
					return fmt.Errorf("passed %d rounds, the other one %d: %w", n, stopped, err)
				}
				if ends = append(ends, fmt.Sprint(n, err)); ends[0] != ends[len(ends)-1] {
					return fmt.Errorf("survivors do not end alike: %q", ends)
				}
				if err == nil {
					return nil
				}
				if again := b.Wait(ctx, c); !errors.Is(again, channel.ErrMissing) &&
					!errors.Is(again, channel.ErrIncarnation) {
					return fmt.Errorf("the next round: %w", again)
				}
				if err := b.Reform(ctx, c); err != nil {
					return err
				}
				return reformed(b, c)
			}
			replacement := func(m *channel.Member, c *rdma.Coro) error {
				for survivors < 2 || !opened && !victimOver {
					c.Sleep(1000)
				}
				b, n, err := use(m, c, new(int))
				if err == nil && n == rounds {
					return nil
				}
				if err == nil || !errors.Is(err, channel.ErrFull) {
					return fmt.Errorf("passed %d rounds: %w", n, err)
				}
				for len(ends) < 2 { // not before all have seen the error
					c.Sleep(10_000)
					if err := m.Beat(c); err != nil {
						return err
					}
				}
				for b == nil {
					if b, err = channel.OpenBarrier(ctx, c, m.Scope("s"), "b", 3); err != nil &&
						!errors.Is(err, channel.ErrFull) {
						return err
					}
					if len(ends) == 2 && err != nil && ends[0] == "3 <nil>" {
						return nil // the victim has stopped behind its last round
					}
					c.Sleep(10_000)
				}
				return reformed(b, c)
			}
			return victim, []body{survivor, survivor, replacement}
		})
	})
}

// TestBarrierLost: each verb of a party is lost in turn. All pass all rounds.
func TestBarrierLost(t *testing.T) {
	for _, kind := range lost {
		faults(t, kind, 28, func(*channeltest.World) []body {
			came := 0
			use := func(m *channel.Member, c *rdma.Coro) error {
				b, err := channel.OpenBarrier(context.Background(), c, m.Scope("s"), "b", 2)
				if err != nil {
					return err
				}
				for round := range 4 {
					came++
					if err := b.Wait(context.Background(), c); err != nil {
						return err
					}
					if came < 2*(round+1) {
						return fmt.Errorf("round %d is over when %d have come", round+1, came)
					}
				}
				return nil
			}
			return []body{use, use}
		})
	}
}

// TestBarrierCancel: a wait that ends with its context is resumed; one member more than parties.
func TestBarrierCancel(t *testing.T) {
	w := channeltest.NewWorld(t, disorderly(1))
	canceled := false
	w.Run(3, func(i int, m *channel.Member, c *rdma.Coro) error {
		if i == 2 {
			c.Sleep(200_000)
		}
		b, err := channel.OpenBarrier(context.Background(), c, m.Scope("s"), "b", 2)
		if i == 2 {
			if !errors.Is(err, channel.ErrFull) {
				t.Errorf("the third of two parties: %v", err)
			}
			return nil
		}
		if err != nil {
			return err
		}
		if i == 1 {
			for !canceled {
				c.Sleep(1000)
			}
			return b.Wait(context.Background(), c)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := b.Wait(ctx, c); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		canceled = true
		return b.Resume(context.Background(), c)
	})
}

// lateHost does what a verb of the member that is fenced does which arrives just before the keys
// change.
type lateHost struct {
	channel.Host
	arrive func()
}

func (h *lateHost) Fence(c *rdma.Coro, id channel.MemberID) error {
	if id != 0 && h.arrive != nil {
		h.arrive()
		h.arrive = nil
	}
	return h.Host.Fence(c, id)
}

// TestLookAgain: the last verbs of a member arrive after another one has looked at its words for
// the last time, and before it is fenced. The other one looks again, and finds that the party has
// arrived, and the lock was given back.
func TestLookAgain(t *testing.T) {
	f := disorderly(1)
	w := channeltest.NewWorld(t, f)
	w.Identity = channel.Identity{Name: "late", Term: 200_000, Slots: 4}
	for _, object := range []string{"barrier", "ticket lock", "ring"} {
		ready := false
		f.Run(2, func(i int) {
			ctx := context.Background()
			th, err := rdma.NewThread(f, rdma.ThreadOptions{Index: i, Arena: 1 << 16})
			if err != nil {
				t.Error(err)
				return
			}
			defer th.Close()
			c, host := th.Plain(), &lateHost{Host: w.Catalog.Host()}
			m, err := channel.Join(ctx, c, host, w.Identity)
			if err != nil {
				t.Error(err)
				return
			}
			var b *channel.Barrier
			var l *channel.TicketLock
			var r *channel.Ring[channeltest.Wide]
			if object == "ring" {
				r, err = openRing(m, c, 2, 1)
			} else if object == "barrier" {
				b, err = channel.OpenBarrier(ctx, c, m.Scope("s"), "b", 2)
			} else {
				l, err = channel.OpenTicketLock(ctx, c, m.Scope("s"), "l")
			}
			if err != nil {
				t.Error(err)
				return
			}
			if i == 0 {
				if l != nil {
					if _, err := l.Lock(ctx, c); err != nil {
						t.Error(err)
					}
				}
				if r != nil {
					if _, err := r.Sender(ctx, c); err != nil {
						t.Error(err)
					}
				}
				ready = true
				return // and is silent
			}
			for !ready {
				c.Sleep(1000)
			}
			if b != nil {
				words := f.Memory(0)[b.Place().Off+128:] // two owners, two counts
				host.arrive = func() {
					for row := range 2 {
						if owner := words[8*row]; channel.MemberID(owner) != m.ID() {
							words[16+8*row], words[16+8*row+5] = 1, owner
						}
					}
				}
				if err := b.Wait(ctx, c); err != nil {
					t.Errorf("a round that all have reached: %v", err)
				}
				var e *channel.MissingError
				if err := b.Wait(ctx, c); !errors.As(err, &e) || e.Round != 2 {
					t.Errorf("the round after it: %v", err)
				}
				return
			}
			if r != nil {
				v, err := r.Receiver(ctx, c)
				if err != nil {
					t.Error(err)
					return
				}
				image := f.Memory(0)[r.Place().Off+192:]
				host.arrive = func() { copy(image, wideImage(1, 1, channeltest.WideOf(7))) }
				if msg, err := v.Receive(ctx, c); err != nil || msg != channeltest.WideOf(7) {
					t.Errorf("a message that was sent: %v, %v", msg, err)
				}
				if _, err := v.Receive(ctx, c); !errors.Is(err, channel.ErrMissing) {
					t.Errorf("after the last message: %v", err)
				}
				return
			}
			slot := f.Memory(0)[l.Place().Off+128:]
			host.arrive = func() { clear(slot[:8]); slot[3] = 1 } // turn 1, no member
			if h, err := l.Lock(ctx, c); err != nil || h.Abandoned {
				t.Errorf("a lock that was given back: %+v, %v", h, err)
			}
		})
	}
}

func wideImage(version uint64, owner channel.MemberID, v channeltest.Wide) []byte {
	codec := channel.Plain[channeltest.Wide]("wide")
	payload := make([]byte, codec.Size)
	codec.Put(payload, v)
	return channel.Image(version, owner, payload)
}

// TestBarrierLast: a member that is always the last one to arrive does not wait, and passes rounds
// for several terms. The other one, which does wait, does not take it for dead.
func TestBarrierLast(t *testing.T) {
	w := channeltest.NewWorld(t, disorderly(1))
	w.Identity = channel.Identity{Name: "test", Term: 400_000, Slots: 4}
	w.Run(2, func(i int, m *channel.Member, c *rdma.Coro) error {
		b, err := channel.OpenBarrier(context.Background(), c, m.Scope("s"), "b", 2)
		for n := 0; n < 60 && err == nil; n++ {
			if i == 0 {
				c.Sleep(40_000)
			}
			err = b.Wait(context.Background(), c)
		}
		return err
	})
}
