package exhaustive

import (
	"errors"
	"fmt"
	"testing"

	"txnode/index"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/steptest"
)

// What happens to a blade.
const (
	bladeStops   = iota // for good
	bladeIsBack         // it restarts at once with its memory: what was not placed is lost
	bladeIsBlank        // it restarts without
	mishaps
)

// When whoever was at work goes on: after all is decided, with late verbs; or at once, until
// a verb fails or nothing is left to be done; or late, and somebody who does not know of the
// blade wants to recover from him before.
const (
	goesOnLate = iota
	goesOnFirst
	goesOnUnaware
	bladeFates = 3 * mishaps
)

// mishap is something that happens to a blade.
type mishap struct {
	blade rdma.BladeID
	what  int // of bladeFates: a mishap and, times mishaps, when it is noticed
}

func (m mishap) String() string { return fmt.Sprintf(" -blade %d -mishap %d", m.blade, m.what) }

func (m mishap) kind() int { return m.what % mishaps }
func (m mishap) when() int { return m.what / mishaps }

// happens lets it happen.
func (w *world) happens(m mishap) {
	if m.kind() == bladeStops {
		w.f.StopBlade(m.blade)
	} else {
		w.f.RestartBlade(m.blade, m.kind() == bladeIsBack)
	}
}

// failOver declares a blade dead, and all coordinators with it, and everything is decided
// on those that are left.
func (w *world) failOver(b rdma.BladeID) error {
	if _, err := recovery.FailOver(w.ctl.Plain(), recovery.Options{Space: w.space},
		w.space.DeclareDead(b)); err != nil {
		return fmt.Errorf("failover: %w", err)
	}
	return nil
}

// sweep brings everything else into order.
func (w *world) sweep() error {
	if _, err := recovery.Sweep(w.ctl.Plain(), recovery.Options{Space: w.space}); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	return nil
}

// bystander is a thread of its own for who is no coordinator, and runs beside others.
func (w *world) bystander() *rdma.Thread {
	th, err := rdma.NewThread(w.f, rdma.ThreadOptions{Index: 98, Arena: arena})
	if err != nil {
		panic(err)
	}
	return th
}

// redundant checks that no copy is missing.
func (w *world) redundant() error {
	if r := w.space.Redundancy(); r.Building+r.Missing > 0 {
		return fmt.Errorf("copies are still missing: %+v", r)
	}
	return nil
}

// strike lets it happen, and what comes before somebody looks after the blade.
func (s *stops) strike(m mishap) error {
	s.happens(m)
	switch m.when() {
	case goesOnFirst:
		s.toTheEnd()
	case goesOnUnaware:
		if !s.space.Registered(s.victim.session.Coordinator()) {
			return nil
		}
		if err := s.decide(s.ctl.Plain(), nil, s.victim); !errors.Is(err, rdma.ErrBladeDown) {
			return fmt.Errorf("recovery on a blade that has gone: %v", err)
		}
	}
	return nil
}

// failOver is that of the world, for a blade of which is known what has become of it.
func (s *stops) failOver(m mishap) error {
	if back := s.space.Restarted(m.blade); back != (m.kind() != bladeStops) {
		return fmt.Errorf("whether the blade has restarted: %v", back)
	}
	return s.world.failOver(m.blade)
}

// sweep is that of the world. busy: somebody else is at it.
func (s *stops) sweep() (busy bool, err error) {
	if err = s.world.sweep(); errors.Is(err, index.ErrBusy) {
		return true, nil
	}
	return false, err
}

// loseBlade loses a blade while the victim is where it is, or restarts it, until it is
// taken in again and every copy is built.
func (s *stops) loseBlade(m mishap) error {
	s.counts.blades++
	if s.others != nil {
		if err := s.others.workOn(); err != nil {
			return fmt.Errorf("others beside: %w", err)
		}
	}
	if err := s.strike(m); err != nil {
		return err
	}
	n := len(s.victim.told)
	if err := s.failOver(m); err != nil {
		return err
	}
	if s.others != nil {
		if err := s.others.decided(); err != nil {
			return err
		}
	}
	if _, err := s.sweep(); err != nil {
		return err
	}
	if err := s.goesOn(n); err != nil {
		return err
	}
	if err := s.refill(m); err != nil || s.others == nil {
		return err
	}
	if err := s.others.goOn(); err != nil {
		return fmt.Errorf("others afterwards: %w", err)
	}
	return nil
}

// loseBladeAgain is loseBlade in the middle of the recovery from the victim, by one who
// goes on.
func (s *stops) loseBladeAgain(m mishap) error {
	s.counts.blades++
	if err := s.strike(m); err != nil {
		return err
	}
	if err := s.failOver(m); err != nil {
		return err
	}
	busy, err := s.sweep()
	s.toTheEnd()
	if _, unswept := s.space.Unswept(); (unswept || busy) && err == nil {
		_, err = s.sweep()
	}
	if err == nil {
		err = s.check(s.victim.told)
	}
	if err != nil {
		return err
	}
	return s.refill(m)
}

// refill takes the blade in again, if it is back, builds the copies that are missing, if
// there are blades for them, and holds them against the others.
func (s *stops) refill(m mishap) error {
	if m.kind() != bladeStops {
		if err := s.space.Admit(s.ctl.Plain(), m.blade, nil); err != nil {
			return fmt.Errorf("taking the blade in again: %w", err)
		}
	}
	if s.space.Redundancy().Building == 0 {
		return nil
	}
	k := s.space.NewCopier()
	for idle := false; !idle; {
		var err error
		if idle, err = k.Step(s.ctl.Plain()); err != nil {
			return fmt.Errorf("building copies: %w", err)
		}
	}
	if err := s.redundant(); err != nil {
		return err
	}
	return s.check(s.victim.told)
}

// everyBlade calls fn for a sample of what may happen to blades.
func (s *sample) everyBlade(fn func(m mishap) error) error {
	for b := range rdma.BladeID(blades) {
		for what := range bladeFates {
			if !s.next() {
				continue
			}
			if err := fn(mishap{b, what}); err != nil {
				return err
			}
		}
	}
	return nil
}

// blades loses blades in every state of the victim, in a sample of the cases.
func (s *stops) blades(n *sample) error {
	return s.cuts(s.begin, func(at schedule) error {
		return n.everyBlade(func(m mishap) error {
			s.goTo(at)
			if err := s.loseBlade(m); err != nil {
				return fmt.Errorf("%w\n%s", err, s.replay(at, "-", m))
			}
			return nil
		})
	})
}

// bladesAgain stops the victim in a sample of its states, and loses blades in every state
// of the recovery from it, in a sample of the cases.
func (s *stops) bladesAgain(states, n *sample) error {
	return s.cuts(s.begin, func(at schedule) error {
		if !states.next() {
			return nil
		}
		return s.cuts(func() { s.recoverBeside(at, ignored) }, func(again schedule) error {
			return n.everyBlade(func(m mishap) error {
				if err := s.again(at, again, m); err != nil {
					return fmt.Errorf("%w\n%s", err, s.replay(at, again.String(), m))
				}
				return nil
			})
		})
	})
}

// again is a case of bladesAgain.
func (s *stops) again(at, again schedule, m mishap) error {
	s.recoverBeside(at, ignored)
	s.f.Follow(again)
	return s.loseBladeAgain(m)
}

// theBlade is what the flags say of a blade that is lost.
func theBlade() (at, again schedule, m mishap, err error) {
	m = mishap{rdma.BladeID(*bladeFlag), *mishapFlag}
	if at, err = steptest.ParseSchedule(*stopAt); err == nil && *stopAgain != "-" {
		again, err = steptest.ParseSchedule(*stopAgain)
	}
	return at, again, m, err
}

// oneBlade repeats the case of the flags.
func (s *stops) oneBlade() error {
	at, again, m, err := theBlade()
	switch {
	case err != nil:
		return err
	case *stopAgain == "-":
		s.goTo(at)
		return s.loseBlade(m)
	}
	return s.again(at, again, m)
}

// TestBladeLost loses and restarts each blade in every state of every canonical
// transaction.
func TestBladeLost(t *testing.T) {
	one, two := oneIn(71, 1, 997), oneIn(2999, 1, 997)
	eachCanonical(t, those(configs(), config.promised), (*stops).oneBlade, func(c config) func(s *stops) error {
		cases := one.own(c)
		if c.backups > 1 {
			cases = two.own(c)
		}
		return func(s *stops) error { return s.blades(cases) }
	})
}

// TestBladeLostInRecovery stops the coordinator of every canonical transaction, and loses
// or restarts each blade in every state of the recovery from it.
func TestBladeLostInRecovery(t *testing.T) {
	states, cases := oneIn(997, 13, 1999), oneIn(11, 23, 11)
	eachCanonical(t, those(configs(), config.promised), (*stops).oneBlade, func(c config) func(s *stops) error {
		states, cases := states.own(c), cases.own(c)
		return func(s *stops) error { return s.bladesAgain(states, cases) }
	})
}
