package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"txnode/memory/layout"
	"txnode/rdma"
)

// A process that is cut off blades which others hear, or which have last copies and are waited for,
// goes on without these: see memory.Space.CutOff. It looks by itself whether it reaches them again.

// cutOff is what a process finds about blades that it hears nothing of and that are not declared
// dead.
type cutOff struct {
	why   map[rdma.BladeID]string
	heard bool // by another member, one of them at least
}

func (x *cutOff) bits() (blades uint64) {
	for b := range x.why {
		blades |= rdma.BladeBit(b)
	}
	return blades
}

// err is an ErrCutOff that names the blades.
func (x *cutOff) err() error {
	var names []string
	for b, why := range x.why {
		names = append(names, fmt.Sprintf("blade %d: %s", b, why))
	}
	slices.Sort(names)
	return fmt.Errorf("txn: this process is cut off %s: %w", strings.Join(names, "; "), ErrCutOff)
}

// lookAgainNs is how often a process looks whether it reaches blades again that it does without.
const lookAgainNs = int64(200_000_000)

// goOnWithout has the process go on without blades. ErrCutOff: what is left cannot take what
// transactions write, or transactions of before the loss of another blade are not decided, which
// other processes have to do.
func (s *Supervisor) goOnWithout(c *rdma.Coro, x *cutOff) error {
	if !s.space.Shared() || !s.space.Suffices(x.bits()) {
		s.space.CutOff(nil)
		return x.err()
	}
	if s.space.Without() != x.bits() {
		s.log.Warn("this process is cut off blades, and goes on without them", zap.Error(x.err()))
	}
	s.space.CutOff(x.why)
	s.nudge() // from now on it is looked more often
	for until := c.Thread().Now() + s.Term(); s.space.FailoverPending(); {
		if c.Thread().Now() > until || s.Ended() {
			return x.err()
		}
		c.Sleep(gatePauseNs)
		if err := s.space.Follow(); err != nil && !errors.Is(err, rdma.ErrBladeDown) {
			return err
		}
		_ = s.space.Acknowledge()
	}
	return nil
}

// regain looks whether blades answer that the process does without, and whether others do not.
// changed: that is so of one, or it is time to ask the other members again.
func (s *Supervisor) regain(c *rdma.Coro) (changed bool) {
	silent, v := uint64(0), s.space.Current()
	for b := range rdma.BladeID(v.Blades()) {
		if !v.Up(b) {
			continue
		}
		if why, err := s.silence(c, b); err == nil && why != nil {
			silent |= rdma.BladeBit(b)
		}
	}
	switch now := c.Thread().Now(); {
	case silent == 0 && s.space.Without() != 0:
		s.log.Info("this process reaches all blades again")
		s.space.CutOff(nil)
		s.Hurry()
	case silent != 0 && (silent != s.space.Without() || now >= s.judgeAt):
		s.judgeAt = now + s.Term()
		return true
	}
	s.Reached()
	return false
}

// lookPause is how often it is looked whether blades answer, in nanoseconds.
func (s *Supervisor) lookPause() int64 {
	if s.space.IsCutOff() {
		return min(s.Term()/lookParts, lookAgainNs)
	}
	return s.Term() / lookParts
}

// rebar has a thread that is no session's follow which blades the process does without.
func (s *Supervisor) rebar(c *rdma.Coro) error {
	if c.Thread().Barred() == s.space.Without() {
		return nil
	}
	return s.reconnect(c)
}

// Refused returns the ErrCutOff that an error comes to if requests were not posted because of a
// blade that the process does without; else nil.
func (s *Supervisor) Refused(err error) error {
	var v *rdma.VerbError
	if !errors.Is(err, rdma.ErrBarred) || !errors.As(err, &v) {
		return nil
	}
	return s.space.CutOffError(rdma.BladeBit(v.Blade))
}

// leaveCopies gives back the right to build copies, for which this process would have to reach all
// blades. Requests of it with an unknown effect may be under way to copies: then no other process
// may build any, before the registration of this one has ended.
func (s *Supervisor) leaveCopies(c *rdma.Coro) {
	if s.copying && !c.Thread().Uncertain() {
		s.copying = false
		s.space.ReleaseRight(layout.RightCopies)
	}
}

// LookAgain is what a session does where no goroutine looks whether blades are reached again that
// the process does without.
func (s *Supervisor) LookAgain(c *rdma.Coro) (err error) {
	if now := c.Thread().Now(); !s.space.IsCutOff() || s.Keeps() || s.Tended() || now < s.lookedAt+s.lookPause() {
		return nil
	}
	if s.regain(c) {
		err = s.BladeDown(c, nil)
	}
	s.lookedAt = c.Thread().Now()
	return err
}

// Regained waits until it has been looked, where no goroutine does, whether blades are reached
// again that the process does without, and reports whether all are.
func (s *Supervisor) Regained(c *rdma.Coro) bool {
	c.Sleep(2 * s.lookPause()) // a tender looks once meanwhile
	return s.LookAgain(c) == nil && !s.space.IsCutOff()
}
