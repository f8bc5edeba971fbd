package supervisor

import (
	"errors"
	"sync/atomic"

	"go.uber.org/zap"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// Segments of which nothing is in use go back: see memory/giveback.go.

// givePart is how often it is looked for them in Options.GiveBack.
const givePart = 4

// giving is what a database knows of segments that go back.
type giving struct {
	lookAt atomic.Int64 // when to look next
	found  atomic.Bool  // there are some

	leaving []layout.SegmentID   // that go back when all rest
	rested  func() (bool, error) // whether everything has ended that had begun before they left; nil: none leave
	process uint32               // of which they were the segments
}

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
	if s.opts.GiveBack < 0 || s.space.ReadOnly() ||
		!g.lookAt.CompareAndSwap(due, max(due, o.Now+int64(s.opts.GiveBack)/givePart)) {
		return
	}
	o.Patience = int64(s.opts.GiveBack)
	if s.space.Withdraw(o) {
		g.found.Store(true)
		s.degraded.Store(true)
	}
}

// giveBack does the next step of what has segments go back that were found. What cannot be done
// now is found again.
func (s *Supervisor) giveBack(c *rdma.Coro) error {
	g := &s.giving
	if !g.found.Load() {
		return nil
	}
	if g.rested != nil && g.process == s.space.Process() {
		return s.host.BesideBackups(func() error { return s.giveBackRested(c) })
	}
	g.rested = nil
	return s.host.BesideBackups(func() (err error) {
		if g.leaving, err = s.space.Depart(); err != nil || len(g.leaving) == 0 {
			g.found.Store(false)
			return err
		}
		g.process = s.space.Process()
		if g.rested, err = s.host.Ask(); err != nil {
			g.rested = nil
		}
		return err
	})
}

// giveBackRested has the segments go back that leave, when all rest.
func (s *Supervisor) giveBackRested(c *rdma.Coro) error {
	g := &s.giving
	if ok, err := g.rested(); !ok {
		if errors.Is(err, memory.ErrAway) {
			err = nil // others may go on meanwhile: it is asked again
		}
		return err
	}
	if o := s.own().Recovery(); !s.space.Ripe(g.leaving...) && o.Checkpoint != nil {
		return o.Checkpoint(c, nil)
	}
	n, err := s.space.GiveBack(c, g.leaving...)
	if n > 0 {
		g.rested = nil // of those that are left it is asked anew
		s.own().Plenty()
		s.log.Info("segments of which nothing was in use have gone back", zap.Int("segments", n))
	}
	return err
}
