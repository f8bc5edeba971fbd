package channeltest

import (
	"context"
	"errors"
	"sync/atomic"

	"txnode/channel"
	"txnode/rdma"
)

// testHandOver counts in a word of each blade under a lock that coroutines of two members want all
// the time, by handles that the coroutines of a member share. No count is lost; tokens grow; the
// last one gives the lock back.
func testHandOver(w *World, open func(c *rdma.Coro, s channel.Scope) (channel.Lock, channel.Place, error)) {
	const members, coroutines, times = 2, 3, 6
	var inside, token, wrong atomic.Int64
	use := func(m *channel.Member, c *rdma.Coro, l channel.Lock, blade rdma.BladeID) error {
		local, err := m.Thread().Alloc(64)
		if err != nil {
			return err
		}
		defer m.Thread().Free(local, 64)
		var b rdma.Batch
		for n := range times {
			h, err := l.Lock(context.Background(), c)
			if err != nil {
				return err
			}
			if last := token.Swap(int64(h.Token)); inside.Add(1) != 1 || last >= int64(h.Token) || h.Abandoned {
				wrong.Add(1)
			}
			if _, err := l.Lock(context.Background(), c); !errors.Is(err, channel.ErrOwned) {
				return errors.Join(err, errors.New("locked twice by a coroutine"))
			}
			staged := n%3 == 2
			for i := range rdma.BladeID(2) {
				at := i
				if staged { // the lock's own last
					at = (blade + 1 + i) % 2
				}
				x, err := w.Get(m, c, at, 0)
				if err != nil {
					return err
				}
				if !staged || at != blade {
					if err := w.Put(m, c, at, 0, x+1); err != nil {
						return err
					}
					continue
				}
				// What is on the other blade is visible when a READ behind it is done.
				if _, err := w.Get(m, c, 1-at, 0); err != nil {
					return err
				}
				m.Thread().PutWord(local, x+1)
				b.Reset()
				b.Write(w.Raw(at, 0), local, 8)
				if err := l.StageUnlock(&b); err != nil {
					return err
				}
				inside.Add(-1)
				if err := m.Do(c, &b); err != nil {
					return err
				}
			}
			if staged {
				continue
			}
			inside.Add(-1)
			if err := l.Unlock(c); err != nil {
				return err
			}
			if err := l.Unlock(c); !errors.Is(err, channel.ErrNotOwner) {
				return errors.Join(err, errors.New("unlocked twice by a coroutine"))
			}
		}
		return nil
	}
	w.Run(members, func(_ int, m *channel.Member, c *rdma.Coro) error {
		l, place, err := open(c, m.Scope("s"))
		if err != nil {
			return err
		}
		errs := make([]error, coroutines)
		m.Thread().Run(coroutines, func(c *rdma.Coro) { errs[c.ID()] = use(m, c, l, place.Blade) })
		return errors.Join(errs...)
	})
	if n := wrong.Load(); n > 0 {
		w.tb.Errorf("%d times a coroutine was not alone in the lock, or its token did not grow", n)
	}
	w.Run(1, func(_ int, m *channel.Member, c *rdma.Coro) error {
		l, _, err := open(c, m.Scope("s"))
		if err != nil {
			return err
		}
		if _, err := l.Lock(context.Background(), c); err != nil {
			w.tb.Errorf("the lock was not given back: %v", err)
		}
		for blade := range rdma.BladeID(2) {
			if x, err := w.Get(m, c, blade, 0); err != nil || x != members*coroutines*times {
				w.tb.Errorf("%d were counted on blade %d, want %d: %v", x, blade, members*coroutines*times, err)
			}
		}
		return l.Unlock(c)
	})
}

func testMutexHandOver(w *World) {
	testHandOver(w, func(c *rdma.Coro, s channel.Scope) (channel.Lock, channel.Place, error) {
		l, err := channel.OpenMutex(context.Background(), c, s, "l")
		if err != nil {
			return nil, channel.Place{}, err
		}
		return l, l.Place(), nil
	})
}

func testTicketHandOver(w *World) {
	testHandOver(w, func(c *rdma.Coro, s channel.Scope) (channel.Lock, channel.Place, error) {
		l, err := channel.OpenTicketLock(context.Background(), c, s, "l")
		if err != nil {
			return nil, channel.Place{}, err
		}
		return l, l.Place(), nil
	})
}
