package exhaustive

import (
	"errors"
	"fmt"
	"testing"

	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/verify"
)

// loseBlade loses a blade while the victim is where it is: the blade is declared dead, and
// all coordinators with it; everything is decided on those that are left; and then the
// victim goes on, which does not know yet.
func (s *stops) loseBlade(b rdma.BladeID) error {
	s.counts.blades++
	n := len(s.victim.told)
	s.f.StopBlade(b)
	o := recovery.Options{Space: s.space}
	if _, err := recovery.FailOver(s.ctl.Plain(), o, s.space.Demise(b)); err != nil {
		return err
	}
	if _, err := recovery.Sweep(s.ctl.Plain(), o); err != nil {
		return err
	}
	if err := s.check(s.victim.told); err != nil {
		return err
	}
	was := s.state()
	for m := s.f.Moves(); len(m) > 0; m = s.f.Moves() {
		s.f.Do(m[0])
	}
	if s.state() != was {
		return errors.New("a late verb has changed something")
	}
	if told := s.victim.told; len(told) > n && told[len(told)-1] == nil {
		if v := s.judge(s.keys); v.content != s.states[len(told)] {
			return fmt.Errorf("told that attempt %d has committed, but there is %s", len(told), v.content)
		}
	}
	return s.refill()
}

// refill builds the copies that are missing, if there are blades for them, and holds
// them against the others.
func (s *stops) refill() error {
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

// everyBlade visits the states of the victim, and loses each blade there, in a sample of
// these cases.
func (s *stops) everyBlade(n *sample) error {
	s.expect()
	return s.cuts(s.begin, func(at schedule) error {
		for b := range rdma.BladeID(blades) {
			if !n.next() {
				continue
			}
			s.goTo(at)
			if err := s.loseBlade(b); err != nil {
				return fmt.Errorf("blade %d was lost: %w\n%s", b, err, s.replay(at, "-")+fmt.Sprintf(" -blade %d", b))
			}
		}
		return nil
	})
}

// TestBladeLost loses each blade in every state of every canonical transaction.
func TestBladeLost(t *testing.T) {
	var total counts
	for _, c := range configs() {
		if c.caps != strong {
			continue
		}
		n := &sample{stride: 1}
		switch {
		case testing.Short():
			n.stride = 397
		case c.backups > 1 && !*full:
			n.stride = 97
		}
		t.Run(c.String(), func(t *testing.T) {
			w := newWorld(t, c, loadStops)
			// A tombstone that was being reclaimed stays as a block.
			w.pardon = func(f verify.Finding) bool { return f.Kind == verify.KindOrphan }
			w.restart()
			w.contents = w.content(w.client(), stopKeys)
			for _, x := range canonical {
				t.Run(x.name, func(t *testing.T) {
					w.t = t
					defer w.f.End()
					s := &stops{world: w, keys: stopKeys, ops: x.ops, grain: stopGrain()}
					run := func() error { return s.everyBlade(n) }
					if *stopAt != "-" {
						run = func() error {
							s.expect()
							at, err := parseSchedule(*stopAt)
							if err != nil {
								return err
							}
							s.goTo(at)
							return s.loseBlade(rdma.BladeID(*bladeFlag))
						}
					}
					if _, _, err := guarded(func() (int, bool, error) { return 0, false, run() }); err != nil {
						t.Fatal(err)
					}
					total.add(s.counts)
				})
			}
		})
	}
	t.Logf("%d losses of a blade", total.blades)
}
