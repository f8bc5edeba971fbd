package channel_test

import (
	"context"
	"fmt"
	"testing"

	"txnode/channel"
	"txnode/channel/channeltest"
	"txnode/rdma"
	"txnode/rdma/steptest"
)

// duel is a stage of two members that go on one at a time, move by move.
func duel(t *testing.T) *stage {
	f := steptest.New(steptest.Options{Blades: 2, Size: 1 << 16, Grain: steptest.Verbs, Caps: rdma.Caps{Placed: true, MaskedCAS: true, OrderedLine: true}})
	s := &stage{f: f, w: channeltest.NewWorld(t, f)}
	s.w.Identity, s.w.Options.Arena = tiny, 1<<16
	return s
}

// advance lets one member go on for n moves, or until over, or until it waits for more than its own verbs,
// and returns how many there were.
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

// TestRingJoining: a receiver joins beside a sender, which goes on in the middle of that, and then as far
// as it may. The receiver gets messages without a gap.
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
			receiver := s.client(fmt.Sprintf("receiver, after %d moves and %d of the sender", k, j), func(m *channel.Member, c *rdma.Coro) error {
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
