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

// strike lets it happen, and what comes before somebody looks after the blade.
func (s *stops) strike(m mishap) error {
	if m.kind() == bladeStops {
		s.f.StopBlade(m.blade)
	} else {
		s.f.RestartBlade(m.blade, m.kind() == bladeIsBack)
	}
	switch m.when() {
	case goesOnFirst:
		s.toTheEnd()
	case goesOnUnaware:
		id := s.victim.session.Coordinator()
		if !s.space.Registered(id) {
			return nil
		}
		if _, err := recovery.Recover(s.ctl.Plain(), recovery.Options{Space: s.space, Steal: true}, id); !errors.Is(err, rdma.ErrBladeDown) {
			return fmt.Errorf("recovery on a blade that has gone: %v", err)
		}
	}
	return nil
}

// failOver declares the blade dead, and all coordinators with it, and everything is
// decided on those that are left.
func (s *stops) failOver(m mishap) error {
	if back := s.space.Restarted(m.blade); back != (m.kind() != bladeStops) {
		return fmt.Errorf("whether the blade has restarted: %v", back)
	}
	_, err := recovery.FailOver(s.ctl.Plain(), recovery.Options{Space: s.space}, s.space.Demise(m.blade))
	return err
}

// sweep brings everything else into order. busy: somebody is at it.
func (s *stops) sweep() (busy bool, err error) {
	_, err = recovery.Sweep(s.ctl.Plain(), recovery.Options{Space: s.space})
	if errors.Is(err, index.ErrBusy) {
		return true, nil
	}
	return false, err
}

// loseBlade loses a blade while the victim is where it is, or restarts it, until it is
// taken in again and every copy is built.
func (s *stops) loseBlade(m mishap) error {
	s.counts.blades++
	if err := s.strike(m); err != nil {
		return err
	}
	n := len(s.victim.told)
	if err := s.failOver(m); err != nil {
		return err
	}
	if _, err := s.sweep(); err != nil {
		return err
	}
	if err := s.check(s.victim.told); err != nil {
		return err
	}
	was := s.state()
	s.toTheEnd()
	if s.state() != was {
		return errLate
	}
	if told := s.victim.told; len(told) > n && told[len(told)-1] == nil {
		if v := s.judge(s.keys); v.content != s.states[len(told)] {
			return fmt.Errorf("told that attempt %d has committed, but there is %s", len(told), v.content)
		}
	}
	return s.refill(m)
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

// failOverStops loses a blade while the victim is where it is, stops whoever has declared
// it dead in a sample of his states, and has another one go on.
func (s *stops) failOverStops(at schedule, m mishap, n *sample) error {
	return s.cuts(func() { s.failOverBeside(at, m) }, func(again schedule) error {
		if !n.next() {
			return nil
		}
		if err := s.stopFailOver(m); err != nil {
			return fmt.Errorf("%w\n%s%v", err, s.replay(at, again.String()), m)
		}
		return nil
	})
}

// failOverBeside stops the victim where it is, loses a blade, and begins to look after it.
func (s *stops) failOverBeside(at schedule, m mishap) {
	s.goTo(at)
	s.victim.run.Stop()
	s.f.SetGrain(steptest.Verbs, true)
	_ = s.strike(m)
	th, err := rdma.NewThread(s.f, rdma.ThreadOptions{Index: 98, Arena: arena})
	if err != nil {
		panic(err)
	}
	s.recorder.run = s.f.Go(func() {
		o := recovery.Options{Space: s.space}
		_, err := recovery.FailOver(th.Plain(), o, s.space.Demise(m.blade))
		if err == nil {
			_, err = recovery.Sweep(th.Plain(), o)
		}
		if err != nil {
			panic(err)
		}
	})
}

// stopFailOver stops who looks after the blade where he is, and has another one go on.
func (s *stops) stopFailOver(m mishap) error {
	s.counts.again++
	s.recorder.run.Stop()
	_, err := recovery.FailOver(s.ctl.Plain(), recovery.Options{Space: s.space}, nil)
	if err == nil {
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

// TestFailOverStops stops the coordinator of every canonical transaction, and whoever looks
// after a blade that was lost then.
func TestFailOverStops(t *testing.T) {
	states, cases := &sample{stride: 401}, &sample{stride: 3}
	switch {
	case *full:
		states.stride, cases.stride = 5, 1
	case testing.Short():
		states.stride, cases.stride = 2999, 3
	}
	eachCanonical(t, (*stops).oneFailOver, func(config) func(s *stops) error {
		states, cases := states.own(), cases.own()
		return func(s *stops) error {
			return s.cuts(s.begin, func(at schedule) error {
				for b := range rdma.BladeID(blades) {
					if !states.next() {
						continue
					}
					if err := s.failOverStops(at, mishap{b, states.tried % mishaps}, cases); err != nil {
						return err
					}
				}
				return nil
			})
		}
	})
}

// refill takes the blade in again, if it is back, builds the copies that are missing, if
// there are blades for them, and holds them against the others.
func (s *stops) refill(m mishap) error {
	if m.kind() != bladeStops {
		if err := s.space.Admit(s.ctl.Plain(), m.blade); err != nil {
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
	if r := s.space.Redundancy(); r.Building+r.Missing > 0 {
		return fmt.Errorf("copies are still missing: %+v", r)
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
				return fmt.Errorf("%w\n%s%v", err, s.replay(at, "-"), m)
			}
			return nil
		})
	})
}

// recoverBeside stops the victim where it is, and begins a recovery from it that goes as
// far as it can.
func (s *stops) recoverBeside(at schedule) {
	s.goTo(at)
	s.victim.run.Stop()
	s.f.SetGrain(steptest.Verbs, true)
	s.recorder.run = s.f.Go(func() { _ = s.recover(s.recorder, s.victim.session.Coordinator()) })
}

// bladesAgain stops the victim in a sample of its states, and loses blades in every state
// of the recovery from it, in a sample of the cases.
func (s *stops) bladesAgain(states, n *sample) error {
	return s.cuts(s.begin, func(at schedule) error {
		if !states.next() {
			return nil
		}
		return s.cuts(func() { s.recoverBeside(at) }, func(again schedule) error {
			return n.everyBlade(func(m mishap) error {
				if err := s.again(at, again, m); err != nil {
					return fmt.Errorf("%w\n%s%v", err, s.replay(at, again.String()), m)
				}
				return nil
			})
		})
	})
}

// again is a case of bladesAgain.
func (s *stops) again(at, again schedule, m mishap) error {
	s.recoverBeside(at)
	for _, i := range again {
		s.f.Do(s.f.Moves()[i])
	}
	s.f.Moves()
	return s.loseBladeAgain(m)
}

// theBlade is what the flags say of a blade that is lost.
func theBlade() (at, again schedule, m mishap, err error) {
	m = mishap{rdma.BladeID(*bladeFlag), *mishapFlag}
	if at, err = parseSchedule(*stopAt); err == nil && *stopAgain != "-" {
		again, err = parseSchedule(*stopAgain)
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

// oneFailOver repeats the case of the flags.
func (s *stops) oneFailOver() error {
	at, again, m, err := theBlade()
	if err != nil {
		return err
	}
	s.failOverBeside(at, m)
	for _, i := range again {
		s.f.Do(s.f.Moves()[i])
	}
	s.f.Moves()
	return s.stopFailOver(m)
}

// eachCanonical runs what begin returns for every canonical transaction, with both policies
// and every number of backups; begin is called for each of these kinds of database. one
// repeats the case of the flags.
func eachCanonical(t *testing.T, one func(s *stops) error, begin func(c config) func(s *stops) error) {
	each(t, stopConfigs(), func(t *testing.T, c config) {
		w := newWorld(t, c, loadStops)
		w.restart()
		w.contents = w.content(w.client(), stopKeys)
		fn := begin(c)
		for _, x := range canonical {
			t.Run(x.name, func(t *testing.T) {
				s := &stops{world: w, keys: stopKeys, ops: x.ops, grain: stopGrain()}
				s.expect()
				run := func() error { return fn(s) }
				if *stopAt != "-" {
					run = func() error { return one(s) }
				}
				s.try(t, run)
			})
		}
	})
}

// TestBladeLost loses and restarts each blade in every state of every canonical
// transaction.
func TestBladeLost(t *testing.T) {
	one, two := &sample{stride: 31}, &sample{stride: 1499}
	switch {
	case *full:
		one.stride, two.stride = 1, 1
	case testing.Short():
		one.stride, two.stride = 997, 997
	}
	eachCanonical(t, (*stops).oneBlade, func(c config) func(s *stops) error {
		cases := one.own()
		if c.backups > 1 {
			cases = two.own()
		}
		return func(s *stops) error { return s.blades(cases) }
	})
}

// TestBladeLostInRecovery stops the coordinator of every canonical transaction, and loses
// or restarts each blade in every state of the recovery from it.
func TestBladeLostInRecovery(t *testing.T) {
	states, cases := &sample{stride: 211}, &sample{stride: 11}
	switch {
	case *full:
		states.stride, cases.stride = 1, 23
	case testing.Short():
		states.stride, cases.stride = 1999, 11
	}
	eachCanonical(t, (*stops).oneBlade, func(config) func(s *stops) error {
		states, cases := states.own(), cases.own()
		return func(s *stops) error { return s.bladesAgain(states, cases) }
	})
}
