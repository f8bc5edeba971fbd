package supervisor

import (
	"errors"
	"sync/atomic"

	"go.uber.org/zap"

	"txnode/memory"
	"txnode/rdma"
)

// Segments of which nothing is in use go back: see memory/giveback.go.

const (
	// givePart is how often it is looked for them in Options.GiveBack.
	givePart = 4
	// maxGives bounds how long nothing must be in use of a segment, and how seldom transactions are interrupted, when that was done for others
	// lately: 1<<maxGives times Options.GiveBack. So one that takes long is not interrupted again and again, and the numbers of
	// coordinators last: each that is at work takes another one.
	maxGives = 6
	// pressing is how often transactions are interrupted for them in a row since the blades are full. Then once in Options.GiveBack.
	pressing = 8
)

// giving is what a database knows of segments that go back.
type giving struct {
	lookAt  atomic.Int64 // when to look next
	found   atomic.Bool  // there are some
	full    atomic.Bool  // the blades are full, so they are not to wait
	pressed atomic.Int64 // until when those interruptions would last that were made because of that, at one in Options.GiveBack
	gives   atomic.Int32 // how often transactions were interrupted lately: each doubles the patience, until it was not done for so long
	since   atomic.Int64 // when gives was changed
	rested  atomic.Int64 // when transactions may be interrupted again
}

// patience is for how long nothing must be in use of a segment.
func (s *Supervisor) patience() int64 { return int64(s.opts.GiveBack) << s.giving.gives.Load() }

// lookForRoom looks now and then for segments to go back, and has that be done.
func (s *Supervisor) lookForRoom(now int64) {
	due := s.giving.lookAt.Load()
	if now >= due {
		s.lookFor(memory.Search{Now: now}, due)
	}
}

// SearchRoom looks for segments to go back that a session has missed.
func (s *Supervisor) SearchRoom(o memory.Search) { s.lookFor(o, s.giving.lookAt.Load()) }

// lookFor looks for segments to go back, unless that was done meanwhile: it was due at a time.
func (s *Supervisor) lookFor(o memory.Search, due int64) {
	g := &s.giving
	if s.opts.GiveBack < 0 || s.space.ReadOnly() || !g.lookAt.CompareAndSwap(due, max(due, o.Now+int64(s.opts.GiveBack)/givePart)) {
		return
	}
	if n := g.gives.Load(); n > 0 && o.Now-g.since.Load() > 2*s.patience() {
		g.gives.Store(n - 1)
		g.since.Store(o.Now)
	}
	o.Patience = s.patience()
	some, err := s.space.Withdraw(o)
	if err != nil {
		s.log.Warn("it is not known which transactions may use segments that are to go back; they stay for now", zap.Error(err))
	}
	if some {
		if o.Full {
			g.full.Store(true)
		}
		g.found.Store(true)
		s.degraded.Store(true)
	}
}

// giveBack has segments go back that were found. What cannot be done now is found again.
func (s *Supervisor) giveBack(c *rdma.Coro) error {
	g := &s.giving
	if !g.found.Swap(false) {
		return nil
	}
	full := g.full.Swap(false)
	return s.host.BesideBackups(func() error {
		some, ripe := s.space.Withdrawn()
		if some && !ripe && g.mayInterrupt(c.Thread().Now(), int64(s.opts.GiveBack), full) {
			if err := s.interrupt(c, nil); err != nil && !errors.Is(err, memory.ErrClaimed) { // another process is at it
				return err
			}
			now := c.Thread().Now()
			g.gives.Store(min(g.gives.Load()+1, maxGives))
			g.since.Store(now)
			g.rested.Store(now + s.patience())
			some, ripe = s.space.Withdrawn()
		}
		if !some || !ripe {
			return nil
		}
		n, err := s.space.GiveBack()
		if n > 0 && err == nil {
			s.own().Plenty()
			s.log.Info("segments of which nothing was in use have gone back", zap.Int("segments", n))
		}
		return err
	})
}

// mayInterrupt reports whether transactions may be interrupted, at a time, for segments to go back, and counts it.
func (g *giving) mayInterrupt(now, each int64, full bool) bool {
	if !full {
		return now >= g.rested.Load()
	}
	until := max(g.pressed.Load(), now)
	if until-now > (pressing-1)*each {
		return false
	}
	g.pressed.Store(until + each)
	return true
}
