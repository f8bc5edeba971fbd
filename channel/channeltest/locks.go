package channeltest

import (
	"context"
	"errors"
	"sync/atomic"

	"txnode/channel"
	"txnode/rdma"
)

// Raw is the address of a word of blade b that belongs to no object, i from 0 to 255, with the key
// that opens it now.
func (w *World) Raw(b rdma.BladeID, i int) rdma.RemoteAddr {
	return rdma.RemoteAddr{Blade: b, Key: w.Fabric.Blades()[b].Key, Off: 1024 + 8*uint64(i)}
}

// Get reads the word of Raw.
func (w *World) Get(m *channel.Member, c *rdma.Coro, b rdma.BladeID, i int) (uint64, error) {
	local, err := m.Thread().Alloc(64)
	if err != nil {
		return 0, err
	}
	defer m.Thread().Free(local, 64)
	var batch rdma.Batch
	batch.Read(w.Raw(b, i), local, 8)
	err = m.Do(c, &batch)
	return m.Thread().Word(local), err
}

// Put writes the word of Raw, and waits for the completion, not until it is placed.
func (w *World) Put(m *channel.Member, c *rdma.Coro, b rdma.BladeID, i int, x uint64) error {
	local, err := m.Thread().Alloc(64)
	if err != nil {
		return err
	}
	defer m.Thread().Free(local, 64)
	m.Thread().PutWord(local, x)
	var batch rdma.Batch
	batch.Write(w.Raw(b, i), local, 8)
	return m.Do(c, &batch)
}

// testBarrier: no member leaves a round before all have come, and what was written before on any
// blade is seen after it.
func testBarrier(w *World) {
	const parties, rounds = 3, 12
	var came atomic.Int64
	w.Run(parties, func(i int, m *channel.Member, c *rdma.Coro) error {
		ctx := context.Background()
		b, err := channel.OpenBarrier(ctx, c, m.Scope("s"), "b", parties)
		if err != nil {
			return err
		}
		for round := range uint64(rounds) {
			for blade := range rdma.BladeID(2) {
				if err := w.Put(m, c, blade, i, round+1); err != nil {
					return err
				}
			}
			came.Add(1)
			if err := b.Wait(ctx, c); err != nil {
				return err
			}
			if n := came.Load(); n < int64(round+1)*parties {
				w.tb.Errorf("member %d leaves round %d when %d have come", i, round+1, n)
			}
			for j := range 2 * parties {
				x, err := w.Get(m, c, rdma.BladeID(j/parties), j%parties)
				if err != nil || x < round+1 {
					w.tb.Errorf("after round %d member %d sees %d of member %d on blade %d: %v",
						round+1, i, x, j%parties, j/parties, err)
				}
			}
		}
		return nil
	})
}

// testLock counts in a word of another blade, with READ and WRITE under the lock, and in one
// of the lock's own blade, whose WRITE is in one doorbell with the unlocking. No count is
// lost; tokens grow.
func testLock(w *World, open func(c *rdma.Coro, s channel.Scope, name string) (channel.Lock, channel.Place, error)) {
	const members, times = 3, 10
	var inside, token atomic.Int64
	enter := func(i int, h channel.Held) {
		if n := inside.Add(1); n != 1 {
			w.tb.Errorf("member %d is %d. in the lock", i, n)
		}
		if last := token.Swap(int64(h.Token)); last >= int64(h.Token) || h.Abandoned {
			w.tb.Errorf("member %d gets %+v after token %d", i, h, last)
		}
	}
	w.Run(members, func(i int, m *channel.Member, c *rdma.Coro) error {
		ctx := context.Background()
		l, place, err := open(c, m.Scope("s"), "l")
		if err != nil {
			return err
		}
		local, err := m.Thread().Alloc(64)
		if err != nil {
			return err
		}
		var b rdma.Batch
		for n := range times {
			h, err := l.Lock(ctx, c)
			if err != nil {
				return err
			}
			enter(i, h)
			if _, err := l.Lock(ctx, c); !errors.Is(err, channel.ErrOwned) {
				w.tb.Errorf("locked twice: %v", err)
			}
			blade := place.Blade
			if n%2 == 1 {
				blade = 1 - blade
			}
			x, err := w.Get(m, c, blade, 0)
			if err != nil {
				return err
			}
			if n%2 == 1 {
				if err := w.Put(m, c, blade, 0, x+1); err != nil {
					return err
				}
				inside.Add(-1)
				if err := l.Unlock(c); err != nil {
					return err
				}
				if err := l.Unlock(c); !errors.Is(err, channel.ErrNotOwner) {
					w.tb.Errorf("unlocked twice: %v", err)
				}
				continue
			}
			m.Thread().PutWord(local, x+1)
			b.Reset()
			b.Write(w.Raw(blade, 0), local, 8)
			if err := l.StageUnlock(&b); err != nil {
				return err
			}
			inside.Add(-1)
			if err := m.Do(c, &b); err != nil {
				return err
			}
		}
		return nil
	})
	w.Run(1, func(_ int, m *channel.Member, c *rdma.Coro) error {
		for blade := range rdma.BladeID(2) {
			if x, err := w.Get(m, c, blade, 0); err != nil || x != members*times/2 {
				w.tb.Errorf("%d were counted on blade %d, want %d: %v", x, blade, members*times/2, err)
			}
		}
		return nil
	})
}

func testMutex(w *World) {
	testLock(w, func(c *rdma.Coro, s channel.Scope, name string) (channel.Lock, channel.Place, error) {
		l, err := channel.OpenMutex(context.Background(), c, s, name)
		if err != nil {
			return nil, channel.Place{}, err
		}
		return l, l.Place(), nil
	})
}

func testTicketLock(w *World) {
	testLock(w, func(c *rdma.Coro, s channel.Scope, name string) (channel.Lock, channel.Place, error) {
		l, err := channel.OpenTicketLock(context.Background(), c, s, name)
		if err != nil {
			return nil, channel.Place{}, err
		}
		return l, l.Place(), nil
	})
}
