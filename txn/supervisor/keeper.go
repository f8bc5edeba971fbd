package supervisor

import (
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// keepAll is the goroutine that looks after what can wait.
func (s *Supervisor) keepAll() {
	c := s.thread.Plain()
	wait := time.NewTimer(0)
	defer wait.Stop()
	due := time.Now()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.kick:
		case <-wait.C:
		}
		s.lookAtAll(c)
		if !s.degraded.Load() {
			pause := tellPause // or until the kick
			if s.opts.GiveBack > 0 {
				pause = min(pause, max(s.opts.GiveBack/givePart, time.Millisecond))
			}
			if s.space.Shared() && s.fabric.Caps().Remote {
				pause = min(pause, time.Duration(s.lookPause()))
			}
			wait.Reset(pause)
			due = time.Now().Add(pause)
			continue
		}
		from := time.Now()
		waited := max(from.Sub(due), 0)
		turn := max(keepTime, min(waited/2, maxKeepTime))
		busy, err := s.Keep(c, Budget{Steps: keepSteps})
		for busy && err == nil && time.Since(from) < turn {
			busy, err = s.Keep(c, Budget{Steps: keepSteps})
		}
		s.sayFailure(err)
		pause := max(time.Since(from)-waited, 0) // half of a processor at most
		if !busy || err != nil {
			pause = max(pause, 10*time.Millisecond)
		}
		wait.Reset(pause)
		due = time.Now().Add(pause)
	}
}

// sayFailure says what Keep has failed with, if it has.
func (s *Supervisor) sayFailure(err error) {
	if err != nil {
		s.log.Warn("replacing what a lost blade had has failed, and will be tried again", zap.Error(err))
	}
}

// tellPause is how long blades may not know of the latest revision of the catalog.
const tellPause = time.Second

// tell has the blades remember the revision of the catalog.
func (s *Supervisor) tell(c *rdma.Coro) {
	err := s.space.Tell(c)
	if errors.Is(err, rdma.ErrVerb) || errors.Is(err, rdma.ErrBladeDown) { // the next round tells them
		err = s.reconnect(c)
	}
	if err != nil {
		s.log.Warn("the blades cannot be told where the catalog is, which will be tried again", zap.Error(err))
	}
}

// Keep does some steps of what can wait: it takes in blades that are back, and builds
// copies. busy: there is more to be done at once.
func (s *Supervisor) Keep(c *rdma.Coro, x Budget) (busy bool, err error) {
	s.lookForGaps()
	s.lookForRoom(c.Thread().Now())
	if !s.degraded.Load() || !s.keeping.CompareAndSwap(false, true) {
		return false, nil
	}
	defer s.keeping.Store(false)
	if s.space.IsCutOff() {
		s.leaveCopies(c)
		return false, nil
	}
	s.space.Begin(c.Thread())
	if s.copying && !s.space.HasRight(layout.RightCopies) { // others have taken this process for dead
		s.space.ReleaseRight(layout.RightCopies)
		s.copying = false
	}
	looked := false
	var full error // the disk of a blade that could have copies; nothing else is kept up by it
	defer func() {
		stuck := s.copier.Stuck(c.Thread().Now())
		if p := s.failure.Load(); stuck != nil && (p == nil || !errors.Is(*p, memory.ErrStuck)) {
			s.log.Warn("a copy waits for a lock, and goes on waiting", zap.Error(stuck))
		}
		if failure := errors.Join(err, full, stuck); failure != nil {
			s.failure.Store(&failure)
		} else if looked {
			s.failure.Store(nil)
		}
	}()
	defer func() {
		if err == nil || !errors.Is(err, rdma.ErrVerb) && !errors.Is(err, rdma.ErrStaleKey) &&
			!errors.Is(err, rdma.ErrBladeDown) {
			return
		}
		if errors.Is(err, rdma.ErrStaleKey) {
			err = nil // the epoch has moved: once more
		}
		err = errors.Join(err, s.reconnect(c))
	}()
	if now := c.Thread().Now(); now >= s.lookAt {
		s.lookAt, looked = now+lookPauseNs, true
		err := s.copyHere(c)
		epoch := s.space.View().Epoch
		if err == nil && s.copying {
			err = s.takeBack(c)
		}
		if s.copying && s.space.CanBuild() > 0 {
			_, e := s.space.Build()
			if errors.Is(e, rdma.ErrNoMemory) {
				e, full = nil, e
			}
			err = errors.Join(err, e)
		}
		if err == nil && s.copying {
			err = s.move(c)
		}
		if err != nil {
			return false, err
		}
		s.copyElsewhere(now, epoch)
	}
	if err := s.decide(c); err != nil {
		return false, err
	}
	if err := s.giveBack(c); err != nil {
		return false, err
	}
	sweeping := false
	if _, unswept := s.space.Unswept(); (unswept || s.space.Leaked()) && s.Keeps() {
		// Soon, since half-done changes of an index are in the way of others; and in
		// turns with copies, since a sweep of much data takes long, and another loss
		// meanwhile is that of data.
		err := s.host.Control(func(*rdma.Coro) (err error) {
			sweeping, err = s.Maintain(c, s.own().Recovery(), &s.sweeper,
				Budget{sweepPart, c.Thread().Now() + int64(keepTime)})
			return err
		})
		switch {
		case errors.Is(err, rdma.ErrVerb):
			return true, err
		case err != nil: // it is tried again by and by; copies can be built meanwhile
			s.log.Warn("sweeping after the loss of a blade has failed, and will be tried again", zap.Error(err))
		}
	}
	if !s.copying {
		s.noteCopied(c.Thread().Now(), false)
		s.wholeAgain()
		return sweeping, nil
	}
	finished := s.copier.Progress().Finished
	for i := 0; x.goOn(c, i); i++ {
		var idle bool
		err := s.space.Hold(c.Thread(), layout.RightCopies, func() (err error) {
			idle, err = s.copier.Step(c)
			return err
		})
		p := s.copier.Progress()
		s.noteCopied(c.Thread().Now(), !idle)
		s.reportLocked()
		if err != nil {
			return true, err
		}
		if idle || p.Finished > finished { // perhaps the last ones
			s.noteCopied(c.Thread().Now(), s.space.Redundancy().Building > 0)
			s.wholeAgain()
			return sweeping || p.Finished > finished, nil
		}
	}
	return true, nil
}

// copyHere gets this process the right to take in blades and to build copies, or notes that another
// one has it. A process that has no use for it does not get it: blades are down that it hears
// nothing of, and others may hear of them.
func (s *Supervisor) copyHere(c *rdma.Coro) error {
	if s.copying {
		return nil
	}
	if err := s.space.Follow(); err != nil { // what others have copied meanwhile
		return err
	}
	if s.space.Shared() {
		useless := s.space.View().Epoch == s.useless && c.Thread().Now() < s.usefulAt
		if useless || s.space.RightElsewhere(layout.RightCopies) || !s.space.CopiesDue() && !s.answers(c) {
			return nil
		}
	}
	s.copying = s.space.AcquireRight(layout.RightCopies)
	return nil
}

// answers reports whether a blade answers that is down.
func (s *Supervisor) answers(c *rdma.Coro) bool {
	return slices.ContainsFunc(s.space.Redundancy().Down, func(b rdma.BladeID) bool {
		return c.Thread().Reconnect(b) == nil
	})
}

// copyElsewhere gives back the right of copyHere if this process has found nothing to do
// in an epoch, or could not do it: no blade was taken in, no copy is being built. Others
// get it meanwhile. All its verbs have been answered, but those to blades that are down,
// by a key of its own.
func (s *Supervisor) copyElsewhere(now int64, epoch layout.Epoch) {
	switch {
	case !s.copying || !s.space.Shared():
		return
	case s.space.FailoverPending() || s.space.View().Epoch != epoch || s.space.Redundancy().Building > 0:
		s.rest = 0
		return
	}
	s.copying = false
	s.space.ReleaseRight(layout.RightCopies)
	s.rest = min(max(2*s.rest, restLooks*lookPauseNs), maxRestNs)
	s.useless, s.usefulAt = epoch, now+s.rest
}

// reportLocked tells of blocks that were copied though they look locked.
func (s *Supervisor) reportLocked() {
	all := s.copier.Suspects()
	for _, a := range all[s.suspects.Load():] {
		s.log.Error("a block looks locked by nobody who ever was, or is, and was copied all the same; perhaps it is "+
			"damaged: the database, closed, can be checked",
			zap.Stringer("block", a))
	}
	s.suspects.Store(int32(len(all))) // a thousand at most
}

// decide decides the transactions that were under way when a blade was lost, if the session that
// declared it dead has stopped in the middle. The next transaction would do the same, but there
// may be none, and copies have to wait.
func (s *Supervisor) decide(c *rdma.Coro) error {
	if !s.Keeps() && !s.Tended() || !s.space.FailoverPending() {
		return nil // workers see to it themselves, before they can do anything else
	}
	if e, now := s.space.View().Epoch, c.Thread().Now(); e != s.pending {
		s.pending, s.gatedAt = e, now
		return nil
	} else if now-s.gatedAt < gatePatienceNs {
		return nil
	}
	s.pending = 0
	return s.BladeDown(c, nil)
}

// takeBack takes blades in again that answer. One that cannot be does not keep out the others.
func (s *Supervisor) takeBack(c *rdma.Coro) (err error) {
	for _, b := range s.space.Redundancy().Down {
		if c.Thread().Reconnect(b) != nil {
			continue
		}
		if e := s.space.Admit(c, b, s.Ended); e != nil {
			if !errors.Is(e, rdma.ErrBladeDown) {
				err = errors.Join(err, e)
			}
			continue
		}
		if !s.space.View().Up(b) { // the database is being closed
			continue
		}
		s.note(func(x *Outage) {
			if x.Blade == int(b) && x.Back == 0 {
				x.Back = c.Thread().Now()
			}
		})
		s.log.Info("a blade is back and was taken in again", zap.Int("blade", int(b)))
	}
	return err
}

// wholeAgain notes that nothing is being built, and whether anything is missing.
func (s *Supervisor) wholeAgain() {
	r := s.space.Redundancy()
	if r.Missing > 0 {
		return
	}
	p := s.copier.Progress()
	news := false
	now := s.fabric.Now()
	s.note(func(x *Outage) {
		if x.Decided == 0 { // by a recovery of coordinators
			x.Decided = now
		}
		if x.Whole == 0 {
			x.Whole, x.Built, x.Copied = now, p.Finished-x.before.Finished, p.Copied-x.before.Copied
			news = true
		}
	})
	if news {
		s.log.Info("every segment has all of its copies again", zap.Int("segments", r.Segments),
			zap.Int("built", p.Finished))
	}
	if _, unswept := s.space.Unswept(); !unfinished(r) && !unswept && !s.space.Leaked() {
		s.failure.Store(nil) // whatever it was, it is over
		if s.copying {
			s.space.ReleaseRight(layout.RightCopies)
			s.copying = false
		}
		s.degraded.Store(s.giving.found.Load())
		if unfinished(s.space.Redundancy()) { // another one has died meanwhile
			s.degraded.Store(true)
		}
	}
}
