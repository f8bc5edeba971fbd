package exhaustive

import (
	"fmt"
	"testing"

	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestFailOverStops stops the coordinator of every canonical transaction, and whoever looks
// after a blade that was lost then.
func TestFailOverStops(t *testing.T) {
	states, cases := oneIn(1499, 5, 2999), oneIn(3, 1, 3)
	eachCanonical(t, those(configs(), config.promised), (*stops).oneFailOver, func(c config) func(s *stops) error {
		states, cases := states.own(c), cases.own(c)
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

// failOverStops loses a blade while the victim is where it is, stops whoever has declared
// it dead in a sample of his states, and has another one go on.
func (s *stops) failOverStops(at schedule, m mishap, n *sample) error {
	return s.cuts(func() { s.failOverBeside(at, m) }, func(again schedule) error {
		if !n.next() {
			return nil
		}
		if err := s.stopFailOver(m); err != nil {
			return fmt.Errorf("%w\n%s", err, s.replay(at, again.String(), m))
		}
		return nil
	})
}

// failOverBeside stops the victim where it is, loses a blade, and begins to look after it.
func (s *stops) failOverBeside(at schedule, m mishap) {
	s.stopAt(at)
	_ = s.strike(m)
	th := s.bystander()
	s.recorder.run = s.f.Go(func() {
		o := recovery.Options{Space: s.space}
		_, err := recovery.FailOver(th.Plain(), o, s.space.DeclareDead(m.blade))
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

// oneFailOver repeats the case of the flags.
func (s *stops) oneFailOver() error {
	at, again, m, err := theBlade()
	if err != nil {
		return err
	}
	s.failOverBeside(at, m)
	s.f.Follow(again)
	return s.stopFailOver(m)
}
