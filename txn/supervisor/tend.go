package supervisor

import (
	"go.uber.org/zap"

	"txnode/occ/recovery"
	"txnode/rdma"
)

// tendPauseNs is between two rounds of a tender that may have more to do.
const tendPauseNs = int64(20_000)

// Tenders returns bodies that do, on a fabric with virtual time, what the goroutines do where time
// is real: see txn.DB.Tenders.
func (s *Supervisor) Tenders(over func() bool) []func() error {
	var sweeper *recovery.Sweeper
	var renewAt int64
	return []func() error{
		func() error {
			return s.tend(0, over, func(c *rdma.Coro) int64 { return s.listenOnce(c, &renewAt) })
		},
		func() error {
			return s.tend(1, over, func(c *rdma.Coro) int64 {
				s.maintaining.Add(1)
				defer s.maintaining.Add(-1) // also when the thread is stopped
				return s.maintainOnceOn(c, &sweeper)
			})
		},
		func() error { return s.tend(2, over, s.lookAfter) },
	}
}

// Maintaining reports whether a tender is in the middle of maintenance, which nothing else waits
// for: it has no session, and does not hold what Host.Control does.
func (s *Supervisor) Maintaining() bool { return s.maintaining.Load() > 0 }

// tend runs rounds of tender i until over. A round returns how long to pause.
func (s *Supervisor) tend(i int, over func() bool, round func(c *rdma.Coro) int64) error {
	t, err := s.newThread(i)
	if err != nil {
		return err
	}
	s.tending.Add(1)
	defer s.tending.Add(-1) // also when the thread is stopped
	for c := t.Plain(); !over(); {
		c.Sleep(round(c))
	}
	return t.Close()
}

// listenOnce renews the leases of the process, when it is time, and takes over what other
// processes have changed.
func (s *Supervisor) listenOnce(c *rdma.Coro, renewAt *int64) int64 {
	if now := c.Thread().Now(); now >= *renewAt {
		if err := s.own().RenewAll(now); err != nil {
			s.log.Warn("renewing leases has failed, and will be tried again", zap.Error(err))
			return tendPauseNs
		}
		*renewAt = now + s.Term()/3
	}
	if err := s.space.Follow(); err != nil {
		s.log.Warn("the catalog cannot be followed, which will be tried again", zap.Error(err))
		return tendPauseNs
	}
	s.heed()
	return tendPauseNs
}

// maintainOnceOn is maintainOnce on a thread.
func (s *Supervisor) maintainOnceOn(c *rdma.Coro, sweeper **recovery.Sweeper) int64 {
	more, err := s.maintenanceDue()
	if more && err == nil {
		more, err = s.Maintain(c, s.own().Recovery(), sweeper, Budget{Steps: sweepPart})
	}
	switch {
	case err != nil:
		s.log.Warn("maintenance has failed, and will be tried again", zap.Error(err))
	case more:
		return tendPauseNs
	}
	return s.Term() / 3
}

// lookAfter is a round of what looks after blades and copies.
func (s *Supervisor) lookAfter(c *rdma.Coro) int64 {
	s.lookAtAll(c)
	if !s.degraded.Load() {
		return s.Term() / lookParts
	}
	busy, err := s.Keep(c, Budget{Steps: keepSteps})
	s.sayFailure(err)
	if busy && err == nil {
		return tendPauseNs
	}
	return min(s.Term()/lookParts, lookPauseNs)
}

// lookAtAll is what looks after blades even if no copy is missing.
func (s *Supervisor) lookAtAll(c *rdma.Coro) {
	if err := s.lookAround(c); err != nil {
		s.log.Warn("asking blades about which other processes have asked has failed, and will be tried again",
			zap.Error(err))
	}
	s.lookForRoom(c.Thread().Now())
	if err := s.rebar(c); err != nil {
		return // which is tried again
	}
	s.tell(c)
	s.lookForGaps() // the catalog may have told of an epoch before it had begun here
}
