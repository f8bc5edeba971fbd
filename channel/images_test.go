package channel_test

import (
	"context"
	"testing"

	"txnode/channel"
	"txnode/channel/channeltest"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// TestOwnedFresh: a Load finds what was stored before it began, although its READ copies lines in
// any order, over a time in which several Stores pass.
func TestOwnedFresh(t *testing.T) {
	of := func(x uint64) [4]uint64 { return [4]uint64{x, x, x, x} }
	seeds := uint64(12)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		f := rdmatest.New(rdmatest.Options{
			Blades: 1, Size: 1 << 20, Seed: seed, LatencyNs: 300, SpreadNs: 4000,
			Caps: rdma.Caps{Placed: true, MaskedCAS: true},
		})
		w := channeltest.NewWorld(t, f)
		stored, ended := uint64(0), false
		w.Run(3, func(i int, m *channel.Member, c *rdma.Coro) error {
			o, err := channel.OpenOwned(context.Background(), c, m.Scope("s"), "o", channel.Plain[[4]uint64]("four"))
			if err != nil {
				return err
			}
			if i == 0 {
				defer func() { ended = true }()
				if err := o.Own(context.Background(), c); err != nil {
					return err
				}
				for range 400 {
					if err := o.Store(c, of(stored+1)); err != nil {
						return err
					}
					stored++
					c.Sleep(int64(m.Thread().Rand() % 500))
				}
				return nil
			}
			for !ended && !t.Failed() {
				least := stored
				v, version, err := o.Load(c)
				if err != nil {
					return err
				}
				if version < least || v != of(version) {
					t.Errorf("seed %d: %d were stored before Load, which finds version %d: %v", seed, least, version, v)
				}
			}
			return nil
		})
	}
}
