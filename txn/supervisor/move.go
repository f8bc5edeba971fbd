package supervisor

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// Blades that leave, and copies that move. The catalog says what is to be done (memory/move.go).
// The process with the right to copy does it, step by step, beside what is missing: see Keep.

// move does the next step of moving copies, once nothing is being built: it drops those that are
// not needed, has blades retire that are empty, and clears the places that copies have left. All
// copies to be moved are built before, so that transactions are interrupted as seldom as possible.
func (s *Supervisor) move(c *rdma.Coro) error {
	r := s.space.Redundancy()
	if r.Building > 0 || s.space.FailoverPending() {
		return nil
	}
	if n, primaries := s.space.Unsettled(); n > 0 {
		return s.host.BesideBackups(func() error {
			if !primaries {
				return settled(s.space.AdvanceEpoch(s.space.Settle(false)))
			}
			if err := s.interrupt(c, s.space.Settle(true)); err != nil {
				return err
			}
			s.log.Info("copies have moved to other blades", zap.Int("dropped", n))
			return nil
		})
	}
	for _, b := range s.space.Emptied() {
		// decided before: log records are on it
		if err := s.host.BesideBackups(func() error { return s.interrupt(c, nil, s.space.Retire(b)) }); err != nil {
			return err
		}
		if !s.space.View().Up(b) {
			s.log.Info("a blade was drained and takes part no more", zap.Int("blade", int(b)))
		}
	}
	if r.Dirty == 0 {
		return nil
	}
	return s.host.BesideBackups(func() error {
		for more := true; more && !s.Ended(); {
			var err error
			if more, err = s.space.Reclaim(c); err != nil {
				return err
			}
			if c.Thread().Now() >= s.lookAt { // transactions wait for the worker where there is no goroutine
				break
			}
		}
		return nil
	})
}

// interrupt has all transactions decided, and makes a change of the catalog with that; nil:
// none. Then the next.
func (s *Supervisor) interrupt(c *rdma.Coro, changes ...func(*layout.Layout) error) error {
	if !s.deciding.CompareAndSwap(false, true) {
		return nil // a blade does not answer; later
	}
	defer s.deciding.Store(false)
	for _, change := range changes {
		if _, err := s.decideBy(c, change); err != nil {
			return err
		}
	}
	return nil
}

// DecideAll has all transactions decided, and makes a change of the catalog with that. While a
// blade does not answer it waits, until ctx ends.
func (s *Supervisor) DecideAll(ctx context.Context, c *rdma.Coro, change func(*layout.Layout) error) (recovery.Report,
	error) {
	for !s.deciding.CompareAndSwap(false, true) {
		if err := ctx.Err(); err != nil {
			return recovery.Report{}, err
		}
		c.Sleep(awaitPauseNs)
	}
	defer s.deciding.Store(false)
	return s.decideBy(c, change)
}

// decideBy is DecideAll while deciding is set.
func (s *Supervisor) decideBy(c *rdma.Coro, change func(*layout.Layout) error) (recovery.Report, error) {
	rep, err := recovery.FailOver(c, s.failOptions(), change)
	return rep, settled(err)
}

// settled is nil for the error of a change that another process has made.
func settled(err error) error {
	if errors.Is(err, memory.ErrSettled) {
		return nil
	}
	return err
}
