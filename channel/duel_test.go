package channel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"txnode/channel"
	"txnode/channel/channeltest"
	"txnode/rdma"
	"txnode/rdma/steptest"
)

// duel is a stage of two members that go on one at a time, move by move.
func duel(t *testing.T) *stage {
	f := steptest.New(steptest.Options{
		Blades: 2, Size: 1 << 16, Grain: steptest.Verbs,
		Caps: rdma.Caps{Placed: true, MaskedCAS: true, OrderedLine: true},
	})
	s := &stage{f: f, w: channeltest.NewWorld(t, f)}
	s.w.Identity, s.w.Options.Arena = tiny, 1<<16
	return s
}

// advance lets one member go on for n moves, or until over, or until it waits for more than its own
// verbs, and returns how many there were.
func (s *stage) advance(c *steptest.Client, n int, over func() bool) (did int) {
	for ; did < n && !over(); did++ {
		moved := false
		for _, m := range s.f.Moves() {
			if moved = s.f.Of(m) == c; moved {
				s.f.Do(m)
				break
			}
		}
		if !moved {
			return did
		}
	}
	return did
}

func never() bool { return false }

// TestRingJoining: a receiver joins beside a sender, which goes on in the middle of that, and then
// as far as it may. The receiver gets messages without a gap.
func TestRingJoining(t *testing.T) {
	const slots, few = 3, 14
	joinedAt := -1
	for k := 0; joinedAt < 0 || k < joinedAt; k++ {
		for j := range few {
			s, ctx := duel(t), context.Background()
			joined, ready, over := false, false, false
			sender := s.client("sender", func(m *channel.Member, c *rdma.Coro) error {
				r, err := openRing(m, c, slots, 1)
				if err != nil {
					return err
				}
				out, err := r.Sender(ctx, c)
				for err == nil && !over {
					err = out.Send(ctx, c, channeltest.WideOf(out.Sent()+1))
				}
				return err
			})
			s.advance(sender, 40, never)
			receiver := s.client(fmt.Sprintf("receiver, after %d moves and %d of the sender",
				k, j), func(m *channel.Member, c *rdma.Coro) error {
				defer func() { over = true }()
				r, err := openRing(m, c, slots, 1)
				if err != nil {
					return err
				}
				v, err := r.Receiver(ctx, c)
				if err != nil {
					return err
				}
				for joined = true; !ready; c.Sleep(1000) {
					if err := m.Beat(c); err != nil {
						return err
					}
				}
				next := uint64(0)
				for n := range 2 * slots {
					msg, err := v.Receive(ctx, c)
					if err != nil || msg.Torn() || n > 0 && msg[0] != next {
						return fmt.Errorf("message %d is %v: %w", next, msg, err)
					}
					next = msg[0] + 1
				}
				return v.Leave(c)
			})
			has := func() bool { return joined }
			if s.advance(receiver, k, has); joined {
				joinedAt = k
			}
			s.advance(sender, j, never)
			s.advance(receiver, 100, has)
			s.advance(sender, 40, never)
			ready = true
			s.finish(t)
			if t.Failed() {
				return
			}
		}
	}
	if joinedAt < 8 {
		t.Errorf("the receiver has joined after %d moves", joinedAt)
	}
}

// TestQueueAdopted: a member leaves with an item. Two others find it, one of them while the other
// one waits in front of each of its verbs in turn. One of them gets it.
func TestQueueAdopted(t *testing.T) {
	ended := false
	for at := 0; !ended; at++ {
		s, ctx := duel(t), context.Background()
		over, cancel := context.WithCancel(ctx)
		cancel()
		var left bool
		got := 0
		var open, done [2]bool
		adopt := func(i int) body {
			return func(m *channel.Member, c *rdma.Coro) error {
				defer func() { done[i] = true }()
				q, err := openQueue(m, c, 2)
				if err != nil {
					return err
				}
				open[i] = true
				item, err := q.Take(over, c)
				if errors.Is(err, context.Canceled) {
					return nil
				}
				if got++; err != nil || !item.Again || item.Value != channeltest.WideOf(7) {
					return fmt.Errorf("taken: %v, %w", item, err)
				}
				return q.Done(c, item)
			}
		}
		one := s.client(fmt.Sprintf("one, after %d moves", at), adopt(0))
		s.advance(one, 400, func() bool { return open[0] })
		two := s.client(fmt.Sprintf("two, after %d moves of one", at), adopt(1))
		s.advance(two, 400, func() bool { return open[1] })
		holder := s.client("holder", func(m *channel.Member, c *rdma.Coro) error {
			q, err := openQueue(m, c, 2)
			if err != nil {
				return err
			}
			if err := q.Push(ctx, c, channeltest.WideOf(7)); err != nil {
				return err
			}
			if _, err = q.Take(ctx, c); err != nil {
				return err
			}
			err = q.Leave(c)
			left = true
			return err
		})
		s.advance(holder, 400, func() bool { return left }) // behind them, so that its row is not theirs
		s.advance(one, at, func() bool { return done[0] })
		ended = done[0]
		s.advance(two, 400, func() bool { return done[1] })
		s.finish(t)
		if got != 1 {
			t.Errorf("after %d moves of one member, the item was taken %d times", at, got)
		}
		if t.Failed() {
			return
		}
	}
}

// TestQueueSkipped: a member has drawn the number of an entry, and fills it in front of each verb
// in turn of another one that waits for it and skips it at last. The item is taken, once.
func TestQueueSkipped(t *testing.T) {
	const least, most = 700, 1000 // moves of the one that waits, among which it skips
	first, skipped := -1, 0
	for at := least; at < most; at++ {
		s, ctx := duel(t), context.Background()
		var open [2]bool
		var drawn, pushed bool
		got := 0
		taker := s.client(fmt.Sprintf("taker, %d moves", at), func(m *channel.Member, c *rdma.Coro) error {
			q, err := openQueue(m, c, 2)
			if err != nil {
				return err
			}
			open[0] = true
			for n := 0; got == 0; n++ { // with no pause: time passes by moves
				item, ok, err := q.TryTake(c)
				if err != nil {
					return err
				}
				if ok {
					got++
					return q.Done(c, item)
				}
				if n > 4000 {
					return errors.New("the item is lost")
				}
			}
			return nil
		})
		s.advance(taker, 400, func() bool { return open[0] })
		pusher := s.client(fmt.Sprintf("pusher, after %d moves", at), func(m *channel.Member, c *rdma.Coro) error {
			q, err := openQueue(m, c, 2)
			if err != nil {
				return err
			}
			open[1] = true
			if err := q.Push(ctx, c, channeltest.WideOf(7)); err != nil {
				return err
			}
			pushed = true
			return nil
		})
		s.advance(pusher, 400, func() bool { return open[1] })
		s.advance(pusher, 1, never) // the number is drawn
		drawn = !pushed
		s.advance(taker, at, func() bool { return got > 0 })
		moves := s.advance(pusher, 40, func() bool { return pushed })
		if first < 0 {
			first = moves
		}
		if moves > first {
			skipped++
		}
		s.finish(t)
		if !drawn || !pushed || got != 1 {
			t.Errorf("after %d moves: drawn %v, pushed %v, taken %d times", at, drawn, pushed, got)
		}
		if t.Failed() {
			return
		}
	}
	if skipped == 0 || skipped == most-least {
		t.Errorf("the entry was skipped %d times, of %d", skipped, most-least)
	}
}
