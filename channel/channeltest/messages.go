package channeltest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"txnode/channel"
	"txnode/rdma"
)

// testRing: two receivers get all messages, a third one, which joins late, all of those behind its
// first; on rings of one slot, and of several.
func testRing(w *World) {
	for _, slots := range []int{1, 3, 16} {
		const messages = 60
		var joined atomic.Int64
		w.Run(4, func(i int, m *channel.Member, c *rdma.Coro) error {
			ctx := context.Background()
			r, err := channel.OpenRing(ctx, c, m.Scope("s"), fmt.Sprint("r", slots), channel.Plain[Wide]("wide"), slots,
				3)
			if err != nil {
				return err
			}
			defer r.Close()
			if i == 0 {
				s, err := r.Sender(ctx, c)
				if err != nil {
					return err
				}
				for joined.Load() < 2 {
					c.Sleep(10_000)
				}
				for k := range uint64(messages) {
					if k == messages/2 {
						for joined.Load() < 3 {
							c.Sleep(10_000)
						}
					}
					if err := s.Send(ctx, c, WideOf(k+1)); err != nil {
						return err
					}
				}
				return s.Leave(c)
			}
			for i == 3 && joined.Load() < 2 {
				c.Sleep(1000)
			}
			v, err := r.Receiver(ctx, c)
			if err != nil {
				return err
			}
			joined.Add(1)
			next := uint64(1)
			for msg, err := range v.All(ctx, c) {
				if err != nil {
					return err
				}
				if i == 3 && next == 1 {
					next = msg[0]
				}
				if msg.Torn() || msg[0] != next {
					return fmt.Errorf("message %d is %v", next, msg)
				}
				if next == messages {
					return v.Leave(c)
				}
				next++
			}
			return nil
		})
	}
}

// testLapped: receivers of a ring whose sender does not wait get messages in order, and are
// told how many they have missed, up to the last message. One that is faster than the
// sender misses none.
func testLapped(w *World) {
	for _, slots := range []int{1, 3, 16} {
		const messages = 80
		var joined, got atomic.Int64
		w.Run(3, func(i int, m *channel.Member, c *rdma.Coro) error {
			ctx := context.Background()
			r, err := channel.OpenRing(ctx, c, m.Scope("s"), fmt.Sprint("l", slots), channel.Plain[Wide]("wide"), slots,
				0)
			if err != nil {
				return err
			}
			defer r.Close()
			if i == 0 {
				s, err := r.Sender(ctx, c)
				if err != nil {
					return err
				}
				for joined.Load() < 2 {
					c.Sleep(10_000)
				}
				for k := range uint64(messages) {
					if err := s.Send(ctx, c, WideOf(k+1)); err != nil {
						return err
					}
					for k < messages/2 && got.Load() <= int64(k) { // the first half is received by member 1
						c.Sleep(1000)
					}
				}
				return s.Leave(c)
			}
			v, err := r.Receiver(ctx, c)
			if err != nil {
				return err
			}
			joined.Add(1)
			next := uint64(1)
			for msg, err := range v.All(ctx, c) {
				var lapped *channel.LappedError
				switch {
				case errors.As(err, &lapped):
					if next += lapped.Missed; lapped.Missed == 0 || i == 1 && next <= messages/2 || next > messages {
						return fmt.Errorf("message %d is the next one: %w", next, err)
					}
					continue
				case err != nil:
					return err
				case msg.Torn() || msg[0] != next:
					return fmt.Errorf("message %d is %v", next, msg)
				case next == messages:
					return v.Leave(c)
				}
				if next++; i == 1 {
					got.Add(1)
				} else if next%8 == 0 {
					c.Sleep(30_000)
				}
			}
			return nil
		})
	}
}

// testQueue: all that was pushed is taken once, and what one member has pushed is taken by another
// one in order; on queues of one slot, and of several.
func testQueue(w *World) {
	for _, slots := range []int{1, 2, 16} {
		const members, each = 4, 15
		var taken atomic.Int64
		var got [members][]uint64
		w.Run(members, func(i int, m *channel.Member, c *rdma.Coro) error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			q, err := channel.OpenQueue(ctx, c, m.Scope("s"), fmt.Sprint("q", slots),
				channel.Plain[Wide]("wide"), slots, members)
			if err != nil {
				return err
			}
			if i < 2 {
				for k := range uint64(each) {
					if err := q.Push(ctx, c, WideOf(uint64(i)<<32|k)); err != nil {
						return err
					}
				}
				return q.Leave(c)
			}
			for taken.Load() < 2*each {
				item, ok, err := q.TryTake(c)
				if err != nil {
					return err
				}
				if !ok {
					c.Sleep(1000)
					continue
				}
				if item.Value.Torn() || item.Again {
					return fmt.Errorf("taken: %v", item)
				}
				taken.Add(1)
				got[i] = append(got[i], item.Value[0])
				if err := q.Done(c, item); err != nil {
					return err
				}
			}
			return q.Leave(c)
		})
		once := map[uint64]bool{}
		for i := range got {
			last := [2]int64{-1, -1}
			for _, x := range got[i] {
				if k := int64(x & (1<<32 - 1)); once[x] || k <= last[x>>32] {
					w.tb.Errorf("%d slots: member %d gets %d of %d after %d, or twice", slots, i, k, x>>32, last[x>>32])
				} else {
					last[x>>32] = k
				}
				once[x] = true
			}
		}
		if len(once) != 2*each {
			w.tb.Errorf("%d slots: %d items were taken, of %d", slots, len(once), 2*each)
		}
	}
}
