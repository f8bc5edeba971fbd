package channel_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"txnode/channel"
	"txnode/channel/channeltest"
	"txnode/channel/local"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/rdma/sim"
	"txnode/rdma/steptest"
)

// lapOp is a Send of message sent, or a Receive behind message pos that has returned the next one,
// or how many were missed.
type lapOp struct{ sent, pos, missed uint64 }

// lapModel is a ring of so many slots without rows. Its state is how many messages were begun
// to be written. A message that was received may have been written over since: it was read
// before, with others.
func lapModel(slots uint64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return uint64(0) },
		Step: func(state, input, _ any) (bool, any) {
			n, in := state.(uint64), input.(lapOp)
			switch {
			case in.sent > 0:
				return n+1 == in.sent, in.sent
			case in.missed > 0: // the oldest one left is that behind those
				return n+1 == in.pos+in.missed+1+slots, n
			}
			return n > in.pos, n
		},
	}
}

// lapHistory is what the sender and each receiver of a ring have done.
type lapHistory struct {
	mu   sync.Mutex
	now  int64
	sent []porcupine.Operation
	got  [2][]porcupine.Operation
}

func (h *lapHistory) begin() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	return h.now
}

// receive receives up to a last message.
func (h *lapHistory) receive(i int, v *channel.Receiver[channeltest.Wide], c *rdma.Coro, last uint64,
	between func()) error {
	for pos := uint64(0); pos < last; {
		call := h.begin()
		msg, err := v.Receive(context.Background(), c)
		in := lapOp{pos: pos}
		var lapped *channel.LappedError
		switch {
		case errors.As(err, &lapped):
			in.missed = lapped.Missed
			pos += lapped.Missed
			if lapped.Missed == 0 {
				return err
			}
		case err != nil:
			return err
		default:
			if pos++; msg != channeltest.WideOf(pos) {
				return fmt.Errorf("message %d is %v", pos, msg)
			}
		}
		h.got[i] = append(h.got[i], porcupine.Operation{ClientId: 1, Input: in, Call: call, Return: h.begin()})
		between()
	}
	return nil
}

// send sends messages up to a last one, so many with one doorbell.
func (h *lapHistory) send(m *channel.Member, s *channel.Sender[channeltest.Wide], c *rdma.Coro, last uint64,
	burst func() int) error {
	for k := uint64(1); k <= last; {
		var b rdma.Batch
		first := len(h.sent)
		for n := burst(); n > 0 && k <= last; n-- {
			err := s.StageSend(&b, channeltest.WideOf(k))
			if errors.Is(err, channel.ErrFull) {
				break
			}
			if err != nil {
				return err
			}
			h.sent = append(h.sent, porcupine.Operation{Input: lapOp{sent: k}, Call: h.begin(), Return: math.MaxInt64})
			k++
		}
		if err := m.Do(c, &b); err != nil {
			return err
		}
		for i := range h.sent[first:] {
			h.sent[first+i].Return = h.begin()
		}
		if err := s.Room(c); err != nil {
			return err
		}
	}
	return nil
}

// check holds what each receiver has seen against the model, and returns how many
// messages were missed.
func (h *lapHistory) check(slots int) (missed uint64, err error) {
	for i := range h.got {
		if len(h.got[i]) == 0 {
			continue
		}
		for _, o := range h.got[i] {
			missed += o.Input.(lapOp).missed
		}
		all := append(append([]porcupine.Operation(nil), h.sent...), h.got[i]...)
		if porcupine.CheckOperationsTimeout(lapModel(uint64(slots)), all, time.Minute) != porcupine.Ok {
			return missed, fmt.Errorf("receiver %d of a ring of %d slots: %+v", i, slots, all)
		}
	}
	return missed, nil
}

// TestLappedOrders: a sender and a receiver of a ring without rows, in every order in which they
// interrupt each other so many times, with WRITEs and READs torn in halves.
func TestLappedOrders(t *testing.T) {
	for _, slots := range []int{1, 2, 3} {
		for _, placed := range []bool{true, false} {
			t.Run(fmt.Sprintf("slots=%d/placed=%v", slots, placed), func(t *testing.T) {
				testLappedOrders(t, slots, rdma.Caps{Placed: placed, OrderedLine: placed, MaskedCAS: placed})
			})
		}
	}
}

func testLappedOrders(t *testing.T, slots int, caps rdma.Caps) {
	const last = 5
	f := steptest.New(steptest.Options{Blades: 1, Size: 1 << 16, Grain: steptest.Words, Caps: caps})
	var h *lapHistory
	var errs [2]error
	start := func() {
		f.Restore()
		h, errs = new(lapHistory), [2]error{}
		cat := local.NewCatalog(f, 4096)
		var rings [2]*channel.Ring[channeltest.Wide]
		var coros [2]*rdma.Coro
		var members [2]*channel.Member
		for i := range rings {
			th, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 1 << 14, Index: i})
			if err != nil {
				t.Fatal(err)
			}
			coros[i] = th.Plain()
			members[i], err = channel.Join(context.Background(), coros[i], cat.Host(),
				channel.Identity{Term: 1 << 40, Slots: 2})
			if err == nil {
				rings[i], err = openRing(members[i], coros[i], slots, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		s, err := rings[0].Sender(context.Background(), coros[0])
		if err != nil {
			t.Fatal(err)
		}
		v, err := rings[1].Receiver(context.Background(), coros[1])
		if err != nil {
			t.Fatal(err)
		}
		f.Go(func() { errs[0] = h.send(members[0], s, coros[0], last, func() int { return 1 }) })
		f.Go(func() { errs[1] = h.receive(0, v, coros[1], last, func() {}) })
	}
	bound, missed := 4, uint64(0)
	if testing.Short() {
		bound = 3
	}
	n, all, err := f.Bounded(bound, 200_000, start, func(s steptest.Schedule) error {
		k, err := h.check(slots)
		missed += k
		if err = errors.Join(err, errs[0], errs[1]); err != nil {
			err = fmt.Errorf("schedule %v: %w", s, err)
		}
		return err
	})
	if err != nil || !all || missed == 0 {
		t.Errorf("%d schedules, all: %v, %d messages were missed: %v", n, all, missed, err)
	}
	t.Logf("%d schedules, %d messages were missed", n, missed)
}

// TestLappedStop: the sender of a ring without rows stops after every half verb. Receivers get what
// is left of its messages, all that Send has returned for and that were not overwritten, and then
// the messages of the next sender.
func TestLappedStop(t *testing.T) {
	stops(t, func(t *testing.T, caps rdma.Caps) {
		stopEverywhere(t, caps, true, func(*channeltest.World) (body, []body) {
			const slots, first, last = 2, 5, 9
			ctx := context.Background()
			sent, joined := uint64(0), 0
			send := func(m *channel.Member, c *rdma.Coro, upto uint64) error {
				r, err := openRing(m, c, slots, 0)
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
				if err == nil {
					err = s.Leave(c)
				}
				return err
			}
			wait := func(m *channel.Member, c *rdma.Coro, until func() bool) error {
				for !until() {
					c.Sleep(1000)
					if err := m.Beat(c); err != nil {
						return err
					}
				}
				return nil
			}
			victim := func(m *channel.Member, c *rdma.Coro) error {
				return errors.Join(wait(m, c, func() bool { return joined == 1 }), send(m, c, first))
			}
			receive := func(m *channel.Member, c *rdma.Coro) error {
				r, err := openRing(m, c, slots, 0)
				if err != nil {
					return err
				}
				v, err := r.Receiver(ctx, c)
				if err != nil {
					return err
				}
				joined++
				for pos := uint64(0); pos < last; {
					msg, err := v.Receive(ctx, c)
					var lapped *channel.LappedError
					switch {
					case errors.As(err, &lapped):
						if pos += lapped.Missed; pos+slots > sent+1 { // one may be under way
							return fmt.Errorf("%d messages were missed, up to %d, when %d were sent",
								lapped.Missed, pos, sent)
						}
					case errors.Is(err, channel.ErrMissing):
						if pos < sent {
							return fmt.Errorf("%d were sent, %d received: %w", sent, pos, err)
						}
						c.Sleep(10_000)
						if err := m.Beat(c); err != nil {
							return err
						}
					case err != nil:
						return err
					default:
						if pos++; msg != channeltest.WideOf(pos) {
							return fmt.Errorf("message %d is %v", pos, msg)
						}
					}
				}
				return nil
			}
			next := func(m *channel.Member, c *rdma.Coro) error {
				return errors.Join(wait(m, c, func() bool { return joined == 1 && victimOver }), send(m, c, last))
			}
			return victim, []body{receive, next}
		})
	})
}

// TestLappedLinear: a fast sender and two receivers, which sleep now and then, on the disorderly
// fabric and the simulator. Porcupine checks what each receiver has got and missed.
func TestLappedLinear(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 8
	}
	missed := uint64(0)
	run := func(seed uint64, f rdma.Fabric) {
		const last = 40
		slots := 1 + int(seed%4)
		w := channeltest.NewWorld(t, f)
		h, joined := new(lapHistory), 0
		w.Run(3, func(i int, m *channel.Member, c *rdma.Coro) error {
			ctx := context.Background()
			r, err := openRing(m, c, slots, 0)
			if err != nil {
				return err
			}
			defer r.Close()
			sleep := func() {
				if x := c.Thread().Rand() % 8; x < 3 {
					c.Sleep(int64(x) * 3000)
				}
			}
			if i == 0 {
				s, err := r.Sender(ctx, c)
				if err != nil {
					return err
				}
				for joined < 2 {
					c.Sleep(1000)
				}
				return errors.Join(h.send(m, s, c, last, func() int {
					sleep()
					return 1 + int(c.Thread().Rand()%3)
				}), s.Leave(c))
			}
			v, err := r.Receiver(ctx, c)
			if err != nil {
				return err
			}
			joined++
			return h.receive(i-1, v, c, last, sleep)
		})
		k, err := h.check(slots)
		if missed += k; err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	for seed := range seeds {
		for _, caps := range weak() {
			run(seed,
				rdmatest.New(rdmatest.Options{Blades: 1, Size: 1 << 18, Caps: caps, Seed: seed + 1, SpreadNs: 3000}))
		}
		for _, freedom := range []sim.Freedom{sim.FreedomMild, sim.FreedomHostile} {
			f, err := sim.New(sim.Options{
				Blades: bladesOf(1, sim.BladeOptions{Size: 1 << 18, Key: 1}), Seed: seed + 1,
				Freedom: freedom, Profile: sim.Ideal(),
			})
			if err != nil {
				t.Fatal(err)
			}
			run(seed, f)
		}
	}
	if missed == 0 {
		t.Error("no message was missed")
	}
}
