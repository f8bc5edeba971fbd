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

func openQueue(m *channel.Member, c *rdma.Coro, slots int) (*channel.Queue[channeltest.Wide], error) {
	return channel.OpenQueue(context.Background(), c, m.Scope("s"), "q", channel.Plain[channeltest.Wide]("wide"), slots,
		3)
}

// TestQueueStop: a member that pushes and takes stops after every half verb, beside one that pushes
// and one that takes. Each item whose Push has returned is taken, in order for each pusher; twice
// only if it is marked.
func TestQueueStop(t *testing.T) {
	stops(t, func(t *testing.T, caps rdma.Caps) {
		stopEverywhere(t, caps, true, func(*channeltest.World) (body, []body) {
			const each = 3
			ctx := context.Background()
			pushed, taken, last := map[uint64]bool{}, map[uint64]int{}, [2]uint64{}
			push := func(m *channel.Member, c *rdma.Coro, i uint64) (*channel.Queue[channeltest.Wide], error) {
				q, err := openQueue(m, c, 2)
				for k := uint64(1); err == nil && k <= each; k++ {
					if err = q.Push(ctx, c, channeltest.WideOf(i<<32|k)); err == nil {
						pushed[i<<32|k] = true
					}
				}
				return q, err
			}
			note := func(item channel.Item[channeltest.Wide]) error {
				x := item.Value[0]
				if taken[x]++; item.Value.Torn() || taken[x] > 1 && !item.Again {
					return fmt.Errorf("taken %d times: %v", taken[x], item)
				}
				if !item.Again {
					if k := x & 15; k <= last[x>>32] {
						return fmt.Errorf("item %d of %d after item %d", k, x>>32, last[x>>32])
					}
					last[x>>32] = x & 15
				}
				return nil
			}
			victim := func(m *channel.Member, c *rdma.Coro) error {
				q, err := push(m, c, 0)
				if err != nil {
					return err
				}
				for range 4 {
					item, ok, err := q.TryTake(c)
					if err != nil {
						return err
					}
					if !ok {
						continue
					}
					if err := errors.Join(note(item), q.Done(c, item)); err != nil {
						return err
					}
				}
				return q.Leave(c)
			}
			pusher := func(m *channel.Member, c *rdma.Coro) error {
				q, err := push(m, c, 1)
				if err != nil {
					return err
				}
				return q.Leave(c)
			}
			taker := func(m *channel.Member, c *rdma.Coro) error {
				q, err := openQueue(m, c, 2)
				if err != nil {
					return err
				}
				over, cancel := context.WithCancel(ctx)
				cancel()
				for {
					n := 0
					for x := range pushed {
						if taken[x] > 0 {
							n++
						}
					}
					if victimOver && n == len(pushed) && pushed[1<<32|each] {
						return nil
					}
					item, err := q.Take(over, c)
					if errors.Is(err, context.Canceled) {
						c.Sleep(5_000)
						if err := m.Beat(c); err != nil {
							return err
						}
						continue
					}
					if err != nil {
						return err
					}
					if err := errors.Join(note(item), q.Done(c, item)); err != nil {
						return err
					}
				}
			}
			return victim, []body{pusher, taker}
		})
	})
}

// TestQueueLost: each verb of a pusher, then of a taker, is lost in turn. All that was pushed is
// taken in order; twice only if a Push did not know what it had done.
func TestQueueLost(t *testing.T) {
	for who := range 2 {
		for _, kind := range lost {
			faults(t, kind, 30, func(*channeltest.World) []body {
				const each = 5
				ctx := context.Background()
				push := func(m *channel.Member, c *rdma.Coro) error {
					q, err := openQueue(m, c, 2)
					if err != nil {
						return err
					}
					for k := range uint64(each) {
						err := q.Push(ctx, c, channeltest.WideOf(k))
						if errors.Is(err, channel.ErrUncertain) {
							err = q.Push(ctx, c, channeltest.WideOf(k))
						}
						if err != nil {
							return err
						}
					}
					return q.Leave(c)
				}
				take := func(m *channel.Member, c *rdma.Coro) error {
					q, err := openQueue(m, c, 2)
					if err != nil {
						return err
					}
					next := uint64(0)
					for next < each {
						item, err := q.Take(ctx, c)
						if err != nil {
							return err
						}
						if item.Value == channeltest.WideOf(next) {
							next++
						} else if next == 0 || item.Value != channeltest.WideOf(next-1) {
							return fmt.Errorf("item %d is %v", next, item)
						}
						if err := q.Done(c, item); err != nil {
							return err
						}
					}
					return q.Leave(c)
				}
				if who == 0 {
					return []body{push, take}
				}
				return []body{take, push}
			})
		}
	}
}

// TestQueueFull: Push into a full queue ends with its context, and appends nothing. Done frees a
// slot, and works once.
func TestQueueFull(t *testing.T) {
	w := channeltest.NewWorld(t, disorderly(1))
	w.Run(1, func(_ int, m *channel.Member, c *rdma.Coro) error {
		ctx := context.Background()
		q, err := openQueue(m, c, 2)
		if err != nil {
			return err
		}
		for k := range uint64(2) {
			if err := q.Push(ctx, c, channeltest.WideOf(k)); err != nil {
				return err
			}
		}
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		if err := q.Push(canceled, c, channeltest.WideOf(9)); !errors.Is(err, context.Canceled) {
			t.Errorf("a full queue: %v", err)
		}
		for k := range uint64(2) {
			item, err := q.Take(ctx, c)
			if err != nil || item.Value != channeltest.WideOf(k) {
				t.Errorf("item %d: %v, %v", k, item, err)
			}
			if err := q.Done(c, item); err != nil {
				t.Error(err)
			}
			if err := q.Done(c, item); !errors.Is(err, channel.ErrNotOwner) {
				t.Errorf("done twice: %v", err)
			}
		}
		return nil
	})
}
