package channeltest

import (
	"context"
	"sync/atomic"

	"txnode/channel"
	"txnode/rdma"
)

// testKV counts under several keys at once, which share buckets and blocks, while other keys
// come and go: no count is lost, each key is inserted once at a time, and values that are read
// are whole and grow.
func testKV(w *World) {
	const members, times, keys = 3, 12, 3
	var inserted, deleted atomic.Int64
	open := func(m *channel.Member, c *rdma.Coro) (*channel.KV[uint64, Wide], error) {
		return channel.OpenKV(context.Background(), c, m.Scope("s"), "kv", channel.Plain[uint64]("number"),
			channel.Plain[Wide]("wide"), channel.KVOptions{Keys: 3, Bucket: 1})
	}
	w.Run(members, func(i int, m *channel.Member, c *rdma.Coro) error {
		ctx := context.Background()
		v, err := open(m, c)
		if err != nil {
			return err
		}
		defer v.Close()
		var b rdma.Batch
		last := [keys]uint64{}
		for n := range times {
			k := uint64((i + n) % keys)
			x, _, err := v.Hold(ctx, c, k)
			if err != nil {
				return err
			}
			b.Reset()
			if err := v.StagePut(&b, WideOf(x[0]+1)); err != nil {
				return err
			}
			if err := m.Do(c, &b); err != nil {
				return err
			}
			if ok, err := v.Insert(ctx, c, keys, WideOf(uint64(i)+1)); err != nil {
				return err
			} else if ok {
				inserted.Add(1)
			}
			for k := range uint64(keys) {
				x, _, err := v.Get(c, k)
				if err != nil {
					return err
				}
				if x.Torn() || x[0] < last[k] {
					w.tb.Errorf("member %d: key %d after %d: %v", i, k, last[k], x)
				}
				last[k] = x[0]
			}
			if ok, err := v.Delete(ctx, c, keys); err != nil {
				return err
			} else if ok {
				deleted.Add(1)
			}
		}
		return nil
	})
	w.Run(1, func(_ int, m *channel.Member, c *rdma.Coro) error {
		v, err := open(m, c)
		if err != nil {
			return err
		}
		for k := range uint64(keys) {
			if x, ok, err := v.Get(c, k); !ok || x != WideOf(members*times/keys) || err != nil {
				w.tb.Errorf("key %d has counted %d, want %d: %v, %v", k, x[0], members*times/keys, ok, err)
			}
		}
		if x, ok, err := v.Get(c, keys); ok || inserted.Load() != deleted.Load() || err != nil {
			w.tb.Errorf("a key was inserted %d times, and deleted %d times, and has %v: %v",
				inserted.Load(), deleted.Load(), x, err)
		}
		return nil
	})
}
