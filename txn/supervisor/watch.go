package supervisor

import (
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"txnode/memory"
	"txnode/rdma"
)

// renewing renews the registration of the process, and the leases of its sessions, until it is
// stopped, whatever else waits: opening the database may take longer than a term, and so may a
// recovery by another process. The leases of sessions need no catalog, and are renewed while the
// catalog is told that the process is alive, and does not answer.
func (s *Supervisor) renewing() (stop func()) {
	if !s.space.Shared() || !s.fabric.Caps().RealTime {
		return func() {}
	}
	ended, tell := make(chan struct{}), make(chan struct{}, 1)
	var done sync.WaitGroup
	done.Go(func() {
		for told := error(nil); ; {
			select {
			case <-ended:
				return
			case <-tell:
			}
			now, own := s.fabric.Now(), s.sessions.Load()
			var err error
			if own != nil {
				err = (*own).RenewAll(now)
			} else {
				err = s.space.Renew(now + int64(s.opts.LeaseTerm))
			}
			if err != nil && told == nil && !errors.Is(err, memory.ErrClosed) {
				s.log.Warn("the catalog has not heard that this process is alive, and is told again", zap.Error(err))
			}
			told = err
		}
	})
	done.Go(func() {
		t := time.NewTicker(max(s.opts.LeaseTerm/3, minMaintenance))
		defer t.Stop()
		for {
			select {
			case <-ended:
				return
			case <-t.C:
				now := s.fabric.Now()
				if own := s.sessions.Load(); own != nil {
					(*own).Prolong(now)
				} else {
					s.space.Prolong(now + int64(s.opts.LeaseTerm))
				}
				select {
				case tell <- struct{}{}:
				default: // it is being told
				}
			}
		}
	})
	return func() { close(ended); done.Wait() }
}

// watchPause is after the catalog has failed, and restPause between two looks whether
// transactions have ended.
const (
	watchPause = 100 * time.Millisecond
	restPause  = time.Millisecond
)

// watch takes over what other processes change in the catalog: a new epoch is known in
// milliseconds, and not when a verb has met a key that has ended. Where time is virtual, workers
// look at the catalog between their transactions.
func (s *Supervisor) watch() {
	for failed := false; ; {
		err := s.space.Await(s.ctx)
		if s.ctx.Err() != nil || errors.Is(err, memory.ErrClosed) {
			return
		}
		if err == nil {
			failed = false
			s.heed()
			if s.space.GivenUp() {
				s.Hurry()
			}
			if len(s.space.Questions()) > 0 {
				s.nudge()
			}
			if s.space.OwesSweep() { // the process that sweeps for all has come to the end
				s.Hurry()
			}
			continue
		}
		if !failed {
			s.log.Warn("the catalog cannot be followed, which will be tried again", zap.Error(err))
		}
		failed = true
		s.pause(watchPause)
	}
}

// heed does what is to be done at once when the catalog has changed.
func (s *Supervisor) heed() {
	_ = s.space.Acknowledge()
	s.RestSoon()
	s.lookForGaps()
}

// pause returns after a while, or when the goroutines are to end, and reports whether they go on.
func (s *Supervisor) pause(d time.Duration) bool {
	select {
	case <-s.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// RestSoon has Host.LookForRest be called soon.
func (s *Supervisor) RestSoon() {
	if s.resting == nil { // there is no goroutine
		s.host.LookForRest()
		return
	}
	select {
	case s.resting <- struct{}{}:
	default: // it will
	}
}

// restAll calls Host.LookForRest for RestSoon.
func (s *Supervisor) restAll() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.resting:
		}
		for s.host.LookForRest() {
			if !s.pause(restPause) {
				return
			}
		}
	}
}

// Follow takes over what others have changed in the catalog, and answers their questions, unless a
// goroutine or a tender does.
func (s *Supervisor) Follow(c *rdma.Coro) error {
	if s.watches || s.Tended() {
		return nil
	}
	if err := s.space.Follow(); err != nil {
		return err
	}
	_ = s.space.Acknowledge()
	s.RestSoon()
	if err := s.heedQuestions(c); err != nil {
		return err
	}
	return s.LookAgain(c)
}
