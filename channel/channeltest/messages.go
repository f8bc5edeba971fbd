package channeltest

import (
	"context"
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
			r, err := channel.OpenRing(ctx, c, m.Scope("s"), fmt.Sprint("r", slots), channel.Plain[Wide]("wide"), slots, 3)
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
