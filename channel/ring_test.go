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

func openRing(m *channel.Member, c *rdma.Coro, slots, receivers int) (*channel.Ring[channeltest.Wide], error) {
	return channel.OpenRing(context.Background(), c, m.Scope("s"), "r", channel.Plain[channeltest.Wide]("wide"), slots,
		receivers)
}

// TestRingSenderStop: the sender stops after every half verb. Two receivers get the same messages,
// whole and in order, all that Send has returned for, and the same error. The next sender's follow.
func TestRingSenderStop(t *testing.T) {
	stops(t, func(t *testing.T, caps rdma.Caps) {
		stopEverywhere(t, caps, true, func(*channeltest.World) (body, []body) {
			const messages = 5
			ctx := context.Background()
			joined, sent, missed := 0, uint64(0), 0
			var got [2]uint64
			send := func(m *channel.Member, c *rdma.Coro, upto uint64) error {
				r, err := openRing(m, c, 2, 2)
				if err != nil {
					return err
				}
				s, err := r.Sender(ctx, c)
				if err == nil && s.Sent() < sent {
					return fmt.Errorf("%d were sent, and the next sender goes on behind %d", sent, s.Sent())
				}
				for err == nil && s.Sent() < upto {
					if err = s.Send(ctx, c, channeltest.WideOf(s.Sent()+1)); err == nil {
						sent = s.Sent()
					}
				}
				return err
			}
			victim := func(m *channel.Member, c *rdma.Coro) error {
				for joined < 2 {
					c.Sleep(1000)
					if err := m.Beat(c); err != nil {
						return err
					}
				}
				return send(m, c, messages)
			}
			receiver := func(i int) body {
				return func(m *channel.Member, c *rdma.Coro) error {
					r, err := openRing(m, c, 2, 2)
					if err != nil {
						return err
					}
					v, err := r.Receiver(ctx, c)
					if err != nil {
						return err
					}
					joined++
					for got[i] < 2*messages {
						msg, err := v.Receive(ctx, c)
						if errors.Is(err, channel.ErrMissing) {
							if got[i] < sent {
								return fmt.Errorf("%d were sent, %d received: %w", sent, got[i], err)
							}
							for missed++; missed == 1; c.Sleep(20_000) { // until the other one has come as far
								if err := m.Beat(c); err != nil {
									return err
								}
							}
							if missed == 2 && got[0] != got[1] {
								return fmt.Errorf("receivers have got %v messages", got)
							}
							c.Sleep(50_000)
							if err := m.Beat(c); err != nil {
								return err
							}
							continue
						}
						if err != nil {
							return err
						}
						if got[i]++; msg != channeltest.WideOf(got[i]) {
							return fmt.Errorf("message %d is %v", got[i], msg)
						}
					}
					return nil
				}
			}
			next := func(m *channel.Member, c *rdma.Coro) error {
				for n := 0; missed < 2 && n < 50; { // or the victim was no sender yet
					if victimOver && joined == 2 {
						n++
					}
					c.Sleep(20_000)
					if err := m.Beat(c); err != nil {
						return err
					}
				}
				return send(m, c, 2*messages)
			}
			return victim, []body{receiver(0), receiver(1), next}
		})
	})
}

// TestRingReceiverStop: one of two receivers stops after every half verb. The sender and
// the other one go on.
func TestRingReceiverStop(t *testing.T) {
	stops(t, func(t *testing.T, caps rdma.Caps) {
		stopEverywhere(t, caps, true, func(*channeltest.World) (body, []body) {
			ctx := context.Background()
			done := 0
			receive := func(m *channel.Member, c *rdma.Coro) error {
				r, err := openRing(m, c, 2, 2)
				if err != nil {
					return err
				}
				v, err := r.Receiver(ctx, c)
				if err != nil {
					return err
				}
				next := uint64(0)
				for n := range 6 {
					msg, err := v.Receive(ctx, c)
					if err != nil {
						return err
					}
					if n > 0 && msg[0] != next || msg.Torn() {
						return fmt.Errorf("message %d is %v", next, msg)
					}
					next = msg[0] + 1
				}
				done++
				return v.Leave(c)
			}
			send := func(m *channel.Member, c *rdma.Coro) error {
				r, err := openRing(m, c, 2, 2)
				if err != nil {
					return err
				}
				s, err := r.Sender(ctx, c)
				if err != nil {
					return err
				}
				for k := uint64(1); done < 2 && !(victimOver && done == 1); k++ {
					if err := s.Send(ctx, c, channeltest.WideOf(k)); err != nil {
						return err
					}
				}
				return s.Leave(c)
			}
			return receive, []body{send, receive}
		})
	})
}

// TestRingLost: each verb of the sender, then of a receiver, is lost in turn.
func TestRingLost(t *testing.T) {
	for who := range 2 {
		for _, kind := range lost {
			faults(t, kind, 32, func(*channeltest.World) []body {
				ctx := context.Background()
				joined := 0
				send := func(m *channel.Member, c *rdma.Coro) error {
					r, err := openRing(m, c, 3, 2)
					if err != nil {
						return err
					}
					s, err := r.Sender(ctx, c)
					if err != nil {
						return err
					}
					for joined < 1 {
						c.Sleep(1000)
						if err := m.Beat(c); err != nil {
							return err
						}
					}
					for k := range uint64(8) {
						if err := s.Send(ctx, c, channeltest.WideOf(k+1)); err != nil {
							return err
						}
					}
					return s.Leave(c)
				}
				receive := func(m *channel.Member, c *rdma.Coro) error {
					r, err := openRing(m, c, 3, 2)
					if err != nil {
						return err
					}
					v, err := r.Receiver(ctx, c)
					if err != nil {
						return err
					}
					joined++
					for k := range uint64(8) {
						if msg, err := v.Receive(ctx, c); err != nil || msg != channeltest.WideOf(k+1) {
							return fmt.Errorf("message %d is %v: %w", k+1, msg, err)
						}
					}
					return v.Leave(c)
				}
				if who == 0 {
					return []body{send, receive}
				}
				return []body{receive, send}
			})
		}
	}
}

// TestRingFull: a ring whose receiver is alive and slow is full, and room comes back.
func TestRingFull(t *testing.T) {
	w := channeltest.NewWorld(t, disorderly(1))
	w.Run(1, func(_ int, m *channel.Member, c *rdma.Coro) error {
		ctx := context.Background()
		r, err := openRing(m, c, 2, 1)
		if err != nil {
			return err
		}
		s, err := r.Sender(ctx, c)
		if err != nil {
			return err
		}
		v, err := r.Receiver(ctx, c)
		if err != nil {
			return err
		}
		var b rdma.Batch
		if err := s.Room(c); err != nil {
			return err
		}
		for k := range uint64(3) {
			if err := s.StageSend(&b, channeltest.WideOf(k)); (k == 2) != errors.Is(err, channel.ErrFull) {
				t.Errorf("message %d of two: %v", k, err)
			}
		}
		if err := m.Do(c, &b); err != nil {
			return err
		}
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		if err := s.Send(canceled, c, channeltest.WideOf(2)); !errors.Is(err, context.Canceled) {
			t.Errorf("a full ring: %v", err)
		}
		if _, err := v.Receive(ctx, c); err != nil {
			return err
		}
		if err := s.Send(ctx, c, channeltest.WideOf(2)); err != nil {
			return err
		}
		for k := range uint64(2) {
			if msg, err := v.Receive(ctx, c); err != nil || msg != channeltest.WideOf(k+1) {
				t.Errorf("%v, %v", msg, err)
			}
		}
		return nil
	})
}
