package supervisor

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// MaxFailovers is how often in a row failover is tried.
const MaxFailovers = 100

// Bounds on how patient failover is.
const (
	probes         = 3
	probePauseNs   = int64(20_000)
	refusalPauseNs = int64(20_000_000) // at most, while a blade refuses to change its keys
	askPauseNs     = int64(200_000)    // between two looks whether other members have answered, at first
	maxAskPauseNs  = int64(10_000_000) // and at most
	awaitPauseNs   = int64(10_000)
	gatePauseNs    = int64(500_000)    // between two looks whether another process has decided transactions
	lookPauseNs    = int64(50_000_000) // between two looks whether a blade is back
	// at least, for which a process leaves copies to others that has no use for the
	// right to build them
	restLooks = 4
	maxRestNs = int64(3_200_000_000) // at most
	// with the recovery that decides transactions after the loss of a blade, in one epoch
	gatePatienceNs = int64(200_000_000)
	lookParts      = 4 // of a lease term, in which an idle process looks once whether blades answer
	keepSteps      = 8 // of a copier in a row
	// of the goroutine in a row, or half of the time that it waited for its turn: some 10 ms where
	// all processors are at work
	keepTime    = 2 * time.Millisecond
	maxKeepTime = 5 * time.Millisecond
)

// BladeDown is called on a thread that has met a blade which does not answer. When it
// returns nil, it is worth while to connect again: the blade answers after all, or
// is declared dead and everything is decided.
func (s *Supervisor) BladeDown(c *rdma.Coro, _ error) error {
	noticed := c.Thread().Now()
	if !s.deciding.CompareAndSwap(false, true) {
		for s.deciding.Load() {
			c.Sleep(awaitPauseNs)
		}
		return nil
	}
	defer s.deciding.Store(false)
	defer s.lookForGaps() // the session that declared a blade dead may have died then
	pause := probePauseNs
	for range MaxFailovers {
		dead, err := s.probe(c)
		var cut *cutOff
		if err == nil {
			dead, cut, err = s.doomed(c, dead)
		}
		if err != nil {
			return err
		}
		if len(cut.why) > 0 && (len(dead) == 0 || cut.heard) { // what is dead, others declare dead that reach the rest
			return s.goOnWithout(c, cut)
		}
		s.space.CutOff(cut.why)
		if len(dead) == 0 && !s.space.FailoverPending() {
			return nil
		}
		for _, x := range dead {
			x.Noticed = noticed
			err = errors.Join(err, s.declareDead(c, x))
		}
		if len(dead) == 0 { // a session has stopped in the middle, or another blade did not change its keys
			var rep recovery.Report
			if rep, err = recovery.FailOver(c, s.failOptions(), nil); err == nil {
				s.decided(c.Thread().Now(), &rep)
			}
		}
		if err != nil {
			if !Again(err) {
				return err
			}
			c.Sleep(pause)
			if s.space.Unrevoked() {
				pause = min(2*pause, refusalPauseNs)
			}
		}
		if errors.Is(err, memory.ErrClaimed) {
			if err := s.decidedByOthers(c); err != nil {
				return err
			}
		}
	}
	return errors.Join(rdma.ErrBladeDown, errors.New("txn: blades come and go"))
}

// decidedByOthers waits while another process decides transactions, for as long as its claim is
// good.
func (s *Supervisor) decidedByOthers(c *rdma.Coro) error {
	for s.space.Shared() && s.space.FailoverPending() && len(s.space.Expired(c.Thread().Now())) == 0 && !s.Ended() {
		c.Sleep(gatePauseNs)
		if err := s.space.Follow(); err != nil && !errors.Is(err, rdma.ErrBladeDown) {
			return err
		}
		_ = s.space.Acknowledge()
	}
	return nil
}

// Settle returns when no other process reads by an epoch from before, which it may from a blade
// that was declared dead because nothing is heard of it here: see memory.Claim.Outlasts.
func (s *Supervisor) Settle(c *rdma.Coro, claim *memory.Claim, renew func() error) error {
	term := int64(s.opts.LeaseTerm)
	for renewAt := int64(0); ; {
		now := c.Thread().Now()
		// renew says how long it may be away
		if ok, err := claim.Outlasts(); ok || err != nil && !errors.Is(err, memory.ErrAway) {
			return err
		}
		if err := renew(); err != nil {
			return err
		}
		// nothing else renews the registration of this process meanwhile
		if !s.fabric.Caps().RealTime && now >= renewAt {
			renewAt = now + term/3
			if err := s.space.Renew(now + term); err != nil {
				return err
			}
		}
		if s.Ended() {
			return ErrClosed
		}
		c.Sleep(gatePauseNs)
	}
}

// lookForGaps sees to it that missing copies and blades are replaced, also of a blade
// that another process declared dead.
func (s *Supervisor) lookForGaps() {
	e := uint32(s.space.View().Epoch)
	if s.looked.Swap(e) == e {
		return
	}
	s.outagesOfOthers()
	if s.degraded.Load() {
		return
	}
	if unfinished(s.space.Redundancy()) {
		s.Awaken()
	}
}

// unfinished reports whether blades are missing, or copies, or some are to be moved, or places
// are to be cleared.
func unfinished(r layout.Redundancy) bool {
	return r.Dirty > 0 || len(r.Down) > 0 || r.Missing > 0 || r.Building > 0 || len(r.Leaving) > 0 || r.Moving > 0
}

// Awaken has what can wait be done.
func (s *Supervisor) Awaken() {
	s.degraded.Store(true)
	s.nudge()
}

// nudge has the goroutine look around at once.
func (s *Supervisor) nudge() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Again reports whether a failover that has failed is to be tried again: another blade
// has died, or a coordinator was recovered or registered meanwhile.
func Again(err error) bool {
	for _, e := range []error{
		rdma.ErrVerb, rdma.ErrBladeDown, memory.ErrNoCoordinator, memory.ErrClaimed,
		layout.ErrLayout, layout.ErrDown, memory.ErrUnrevoked,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (s *Supervisor) failOptions() recovery.Options {
	o := s.own().Recovery()
	o.Steal = true
	return o
}

// declareDead declares a blade dead and has all transactions decided. Of the outage it is known
// which blade it is, since when, and why.
func (s *Supervisor) declareDead(c *rdma.Coro, x Outage) error {
	b := rdma.BladeID(x.Blade)
	l := s.space.Layout()
	for i := range l.Segments {
		if p := &l.Segments[i].Placement; p.N > 0 && l.Segments[i].Kind != layout.KindLog && p.Replicas[0].Blade == b {
			x.Primary++
		}
	}
	defer s.Expecting(b)()
	o := s.failOptions()
	if x.restarted && l.Irreplaceable(b) {
		as, err := s.space.Unharmed(c, b)
		switch {
		case err != nil: // it is not lost as long as that is so
			return fmt.Errorf("%w: %w", errSpared, err)
		case as != 0:
			x.declareDead = s.space.Return(b, as, x.declareDead)
		}
	}
	if !x.silent && !x.spare { // it is gone, for all processes
		o.Settle = nil
	}
	condemned := s.space.Condemned(b)
	rep, err := recovery.FailOver(c, o, func(l *layout.Layout) error {
		lost := l.Redundancy().Lost
		if x.silent && l.Blades[b].State == layout.BladeUp {
			if err := condemned(l); err != nil {
				return err
			}
		}
		err := x.declareDead(l)
		spare := x.spare || x.silent && l.Epoch != x.found // another process may have taken it in
		if err == nil && spare && l.Redundancy().Lost > lost {
			err = errSpared
		}
		if err == nil {
			x.Promoted = c.Thread().Now()
		}
		return err
	})
	if errors.Is(err, layout.ErrDown) { // another process was first
		x.Promoted = c.Thread().Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.noteOutage(x)
		return nil
	}
	if err != nil && rep.Attempts == 0 && s.space.View().Up(b) {
		return err // it has not come to that, or the catalog has not made the change
	}
	now := c.Thread().Now()
	if p := s.progress.Load(); p != nil {
		x.before = p.CopyProgress
	}
	s.mu.Lock()
	if s.space.View().Up(b) { // it was taken in again since, when there was no outage to note it at
		x.Back = now
	}
	s.noteOutage(x)
	s.mu.Unlock()
	if err == nil {
		s.decided(now, &rep)
	}
	s.Awaken()
	r := s.space.Redundancy()
	text := "a blade does not answer and was declared dead; its backups have taken over"
	if x.Back != 0 {
		text = "a blade has restarted, and is used on as it is"
	}
	s.log.Error(text, zap.Int("blade", x.Blade), zap.String("cause", x.Cause),
		zap.Duration("after", time.Duration(now-x.Noticed)), zap.Int("promoted", x.Primary),
		zap.Int("copies missing", r.Missing),
		zap.Int("being built", r.Building), zap.Int("segments lost", r.Lost), zap.Int("finished", rep.Finished),
		zap.Int("undone", len(rep.Aborted)), zap.Error(err))
	return err
}

// EvictBlade declares a blade dead by an operator's word: see txn.DB.EvictBlade.
func (s *Supervisor) EvictBlade(b rdma.BladeID) error {
	if err := s.space.Follow(); err != nil {
		return err
	}
	x := Outage{
		Blade: int(b), Noticed: s.fabric.Now(), Cause: "an operator's word", spare: true,
		declareDead: s.space.DeclareDead(b),
	}
	l := s.space.Layout()
	refused := &layout.BladeError{
		Blade: b, Name: fmt.Sprintf("blade %d", b), Err: layout.ErrLayout,
		What: fmt.Sprintf("declaring it dead: %d of %d segments have no other copy",
			l.Last(b), l.Redundancy().Segments),
	}
	switch {
	case l.Blades[b].State == layout.BladeDown:
		return &layout.BladeError{Blade: b, Name: refused.Name, Err: layout.ErrDown, What: "declaring it dead"}
	case l.Last(b) > 0:
		return refused
	}
	err := s.Do(func(c *rdma.Coro) error { return s.declareDead(c, x) })
	if errors.Is(err, errSpared) {
		return refused
	}
	return err
}

// reconnect takes the queue pairs of a thread out of the error state, and sees to
// blades that do not answer.
func (s *Supervisor) reconnect(c *rdma.Coro) error {
	err := recovery.Reconnect(c, s.space)
	if err == nil {
		s.Reached()
	}
	if errors.Is(err, rdma.ErrBladeDown) {
		err = s.BladeDown(c, err)
	}
	return err
}

// WithBlades runs fn, which posts verbs on c alone, and again after one, or a call to a blade, has
// failed in it: the blade is declared dead, or answers again, or the epoch has moved.
func (s *Supervisor) WithBlades(c *rdma.Coro, fn func(c *rdma.Coro) error) error {
	for tries := 0; ; tries++ {
		s.space.Begin(c.Thread())
		if err := s.rebar(c); err != nil {
			return err
		}
		err := fn(c)
		if cut := s.Refused(err); cut != nil {
			return fmt.Errorf("%w: %w", cut, err)
		}
		if err == nil || tries >= MaxFailovers || !errors.Is(err, rdma.ErrVerb) && !errors.Is(err, rdma.ErrBladeDown) {
			return err
		}
		if errors.Is(err, rdma.ErrBladeDown) {
			if e := s.BladeDown(c, err); e != nil {
				return errors.Join(err, e)
			}
		}
		if e := s.reconnect(c); e != nil {
			return errors.Join(err, e)
		}
	}
}

// Do is WithBlades on the coroutine of the control path, which is free.
func (s *Supervisor) Do(fn func(c *rdma.Coro) error) error {
	return s.host.Control(func(c *rdma.Coro) error { return s.WithBlades(c, fn) })
}
