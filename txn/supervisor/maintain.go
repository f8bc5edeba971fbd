package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"txnode/memory"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// damagedSweep is a sweep that has found an index damaged. Another one finds the same.
type damagedSweep struct {
	generation uint64 // of the coordinators that had died before
	until      int64  // when it is looked whether it is still damaged
}

// Bounds on what the goroutine does at once.
const (
	minMaintenance = 10 * time.Millisecond
	sweepPart      = 64 // steps
	sweepPause     = 2 * time.Millisecond
	damagePauseNs  = int64(30_000_000_000) // between sweeps beside a damaged index
)

// maintainAll is the goroutine that recovers what is left by those that are gone. On a fabric with
// virtual time workers do that between their transactions.
func (s *Supervisor) maintainAll() {
	every := max(s.opts.LeaseTerm/3, minMaintenance)
	t := time.NewTimer(every)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.hurry:
		case <-t.C:
		}
		more, err := s.maintainOnce()
		if err != nil {
			s.log.Warn("maintenance has failed, and will be tried again", zap.Error(err))
		}
		wait := every
		if more && err == nil {
			wait = min(sweepPause, every)
		}
		t.Reset(wait)
	}
}

// Hurry has maintenance look at once for what has expired.
func (s *Supervisor) Hurry() {
	select {
	case s.hurry <- struct{}{}:
	default: // it will, or workers do
	}
}

// maintainOnce is one round of maintenance. more: there is something left to sweep.
func (s *Supervisor) maintainOnce() (more bool, err error) {
	if !s.space.Shared() { // else see renewing
		if err := s.own().RenewAll(s.fabric.Now()); err != nil {
			return false, err
		}
	}
	if due, err := s.maintenanceDue(); !due || err != nil {
		return false, err
	}
	err = s.host.Control(func(c *rdma.Coro) error {
		more, err = s.Maintain(c, s.own().Recovery(), &s.sweeper, Budget{Steps: sweepPart})
		return err
	})
	return more, err
}

// maintenanceDue reports whether there is anything to be maintained. A process that is cut off a
// blade leaves it to others.
func (s *Supervisor) maintenanceDue() (due bool, err error) {
	if err := s.own().CompleteVerdicts(); err != nil || s.space.IsCutOff() {
		return false, err
	}
	now := s.fabric.Now()
	_, unswept := s.space.Unswept()
	return unswept || len(s.space.Expired(now)) > 0 || s.space.Deserted(now) || s.space.Leaked() ||
		s.space.ExtentsDue(now), nil
}

// Tended reports whether maintenance is not left to workers: see Tenders.
func (s *Supervisor) Tended() bool { return s.Maintains() || s.tending.Load() > 0 }

// Budget is how much is done at once of what takes many steps: so many of them, and, but for
// the first, none after a time of the fabric's clock. Until 0: whenever.
type Budget struct {
	Steps int
	Until int64
}

// goOn reports whether step i is to be done.
func (x Budget) goOn(c *rdma.Coro, i int) bool {
	return i < x.Steps && (i == 0 || x.Until == 0 || c.Thread().Now() < x.Until)
}

// Maintain takes over what processes have left that are gone, recovers coordinators whose leases
// have expired, and does some steps of a sweep if there is something to be swept.
func (s *Supervisor) Maintain(c *rdma.Coro, o recovery.Options, sweeper **recovery.Sweeper,
	x Budget) (more bool, err error) {
	defer func() {
		if errors.Is(err, rdma.ErrVerb) || errors.Is(err, rdma.ErrStaleKey) || errors.Is(err, rdma.ErrBladeDown) ||
			errors.Is(err, memory.ErrUnrevoked) {
			*sweeper = nil
			err = errors.Join(err, s.reconnect(c))
		}
	}()
	s.space.Begin(c.Thread())
	if err := s.rebar(c); err != nil {
		return false, err
	}
	if w := *sweeper; w != nil && w.Ended() {
		*sweeper = nil
	}
	if s.space.Deserted(c.Thread().Now()) {
		n, err := s.space.TakeOver(c.Thread().Now())
		if err != nil {
			return false, err
		}
		if n > 0 {
			s.log.Info("processes have closed the database, or have died, and what they had has no owner",
				zap.Int("processes", n))
		}
	}
	if err := s.RecoverExpired(c, o); err != nil {
		return false, err
	}
	generation, ok := s.space.Unswept()
	if !ok {
		*sweeper = nil
		_, err := recovery.FreeDeadExtents(c, o)
		return false, err
	}
	if *sweeper == nil {
		if x := s.damaged.Load(); x != nil && x.generation == generation && c.Thread().Now() < x.until {
			return false, nil
		}
		if *sweeper = recovery.DueSweep(c, o); *sweeper == nil {
			return false, nil
		}
	}
	for i := 0; x.goOn(c, i); i++ {
		w := *sweeper
		done, err := w.Step(c)
		if done {
			*sweeper = nil
			err = errors.Join(err, s.sparedBy(w, c.Thread().Now()))
		}
		if done || err != nil {
			return false, err
		}
	}
	return true, nil
}

// sparedBy returns what a sweep that has come to its end has left, since it is damaged, and
// has the next one wait, unless there is something else left.
func (s *Supervisor) sparedBy(w *recovery.Sweeper, now int64) error {
	if w.Report.Damage == nil {
		return nil
	}
	if !w.Left() {
		s.damaged.Store(&damagedSweep{w.Generation(), now + damagePauseNs})
	}
	return fmt.Errorf("txn: an index is damaged, and what the dead have left in its table stays; the rest is swept: %w",
		w.Report.Damage)
}

// RecoverExpired recovers the coordinators whose leases have expired.
func (s *Supervisor) RecoverExpired(c *rdma.Coro, o recovery.Options) error {
	dead := slices.DeleteFunc(s.space.Expired(c.Thread().Now()), func(id uint32) bool { return id == o.By })
	if len(dead) == 0 {
		return nil
	}
	rep, err := recovery.Recover(c, o, dead...)
	if errors.Is(err, memory.ErrClaimed) {
		return nil
	}
	if err == nil && len(rep.Coordinators) > 0 {
		s.log.Warn("coordinators were declared dead and recovered", zap.Uint32s("coordinators", rep.Coordinators),
			zap.Int("finished", rep.Finished), zap.Int("undone", len(rep.Aborted)))
	}
	return err
}
