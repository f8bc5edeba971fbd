package memory_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/members"
	"txnode/rdma"
)

// TestSights: what processes say of a blade is in the catalog. One that hears it keeps it from
// being declared dead, also if it says so while that is under way; when none does, it is declared
// dead, and what was said of it is over.
func TestSights(t *testing.T) {
	const blade = 1
	b := newSharedBed(t, 3, 12, 1)
	first, _ := b.join(0)
	second, _ := b.join(0)
	says := func(s *memory.Space, what layout.Says, again bool) {
		t.Helper()
		check(t, s.See(map[rdma.BladeID]layout.Says{blade: what}, again))
		check(t, first.Follow())
		check(t, second.Follow())
	}
	judged := func(want members.State) {
		t.Helper()
		for _, s := range []*memory.Space{first, second} {
			if j := s.Judge(blade); j.State != want {
				t.Errorf("the blade is %v: want %v", j.State, want)
			}
		}
	}
	asked := func(s *memory.Space, want ...rdma.BladeID) {
		t.Helper()
		if got := s.Questions(); !slices.Equal(got, want) {
			t.Errorf("it is asked about blades %v: want %v", got, want)
		}
	}
	judged(members.Unasked)
	says(first, layout.Hears, false)
	if l := must(layout.LoadLayout(b.cat))(t); len(l.Sights) > 0 || first.Said() {
		t.Errorf("nobody has asked: %+v", l.Sights)
	}
	says(first, layout.Silent, false)
	judged(members.Asked)
	asked(first)
	asked(second, blade)
	says(second, layout.Hears, false)
	judged(members.Heard)
	asked(second)
	dead := func() error {
		condemned, declareDead := first.Condemned(blade), first.DeclareDead(blade)
		return first.AdvanceEpoch(func(l *layout.Layout) error {
			if err := condemned(l); err != nil {
				return err
			}
			return declareDead(l)
		})
	}
	if err := dead(); !errors.Is(err, layout.ErrLayout) || !first.View().Up(blade) {
		t.Errorf("a blade that another process hears is declared dead: %v", err)
	}
	says(first, layout.Silent, true)
	asked(second, blade)
	says(second, layout.Troubled, false)
	judged(members.Gone)
	condemned, declareDead := first.Condemned(blade), first.DeclareDead(blade)
	// the first one has not heard of that
	check(t, second.See(map[rdma.BladeID]layout.Says{blade: layout.Hears}, false))
	if err := first.AdvanceEpoch(func(l *layout.Layout) error {
		return errors.Join(condemned(l),
			declareDead(l))
	}); !errors.Is(err, layout.ErrLayout) {
		t.Errorf("another process has heard the blade meanwhile: %v", err)
	}
	says(second, layout.Silent, false)
	judged(members.Gone)
	check(t, dead())
	check(t, second.Follow())
	judged(members.Unasked)
	if l := must(layout.LoadLayout(b.cat))(t); len(l.Sights) > 0 || l.Blades[blade].State != layout.BladeDown {
		t.Errorf("%+v is said of a blade that is down", l.Sights)
	}
}

// TestSightEntries: entries of what members say are what was encoded, in order, and bytes that
// are none are refused.
func TestSightEntries(t *testing.T) {
	b := newSharedBed(t, 3, 12, 1)
	first, _ := b.join(0)
	second, _ := b.join(0)
	for i, s := range []*memory.Space{second, first} {
		check(t, s.See(map[rdma.BladeID]layout.Says{0: layout.Silent, 2: layout.Says(i + 1)}, false))
	}
	entries, rev, err := b.cat.Load()
	check(t, err)
	rev = must(b.cat.Apply(rev, []layout.Entry{layout.EntryOfSights(layout.Witness, nil)}))(t)
	l := must(layout.LoadLayout(b.cat))(t)
	if !l.Witnessed || len(l.Sights) != 3 || len(layout.Difference(entries, l.Entries())) != 1 {
		t.Errorf("witnessed %v, %+v", l.Witnessed, l.Sights)
	}
	for i, bad := range [][]layout.Sight{
		{}, {{Blade: 1, Says: 4, Round: 1}}, {{Blade: 1, Says: 1}},
		{{Blade: 1, Round: 1}}, {{Blade: 2, Says: 1, Round: 1}, {Blade: 1, Says: 1, Round: 1}},
	} {
		was := must(b.cat.Apply(rev, []layout.Entry{layout.EntryOfSights(first.Process(), bad)}))(t)
		if _, err := layout.LoadLayout(b.cat); !errors.Is(err, layout.ErrDamaged) {
			t.Errorf("%d: %v is accepted: %v", i, bad, err)
		}
		rev = was
	}
}

// unreached is an error of a connection, with what it says of the server.
type unreached struct{ evidence rdma.Evidence }

func (e unreached) Error() string           { return fmt.Sprintf("a connection: %v", e.evidence) }
func (e unreached) Is(target error) bool    { return target == rdma.ErrBladeDown }
func (e unreached) Evidence() rdma.Evidence { return e.evidence }

// TestUnreachedIsNoRefusal: a process that does not reach a blade to have its keys ended learns
// nothing about the blade from that, however long it takes. A blade that is reached and does not
// end them counts as one that does not answer.
func TestUnreachedIsNoRefusal(t *testing.T) {
	const blade = 1
	for _, e := range []rdma.Evidence{rdma.NoEvidence, rdma.Own, rdma.Silent, rdma.Refused, rdma.Alive} {
		b := newSharedBed(t, 3, 12, 1)
		s, _ := b.join(0)
		b.fabric.revoking = func(at rdma.BladeID) error {
			if at == blade {
				return unreached{e}
			}
			return nil
		}
		for range 20 {
			if err := s.AdvanceEpoch(nil); err == nil {
				t.Fatalf("%v: keys of blade %d have ended", e, blade)
			}
			*b.fabric.clock += 500_000_000
		}
		if err := s.Refusal(blade, *b.fabric.clock); (err != nil) != (e == rdma.NoEvidence) {
			t.Errorf("%v: %v", e, err)
		}
	}
}

// TestClaimOutlasts: what a blade had that was declared dead for its silence is not decided
// before each other process knows the epoch, or is gone. One that has called the blade silent,
// and hears it again, may read from it until then. That it is alive, or that it hears the
// blade, says nothing.
func TestClaimOutlasts(t *testing.T) {
	const blade, hour = 1, int64(time.Hour)
	b := newSharedBed(t, 3, 12, 1)
	one, _ := b.join(hour)
	two, _ := b.join(hour)
	three, _ := b.join(hour)
	must(two.NewCoordinator())(t)
	for _, s := range []*memory.Space{one, two, three} {
		check(t, s.See(map[rdma.BladeID]layout.Says{blade: layout.Silent}, false))
	}
	check(t, one.Listen())
	condemned, declareDead := one.Condemned(blade), one.DeclareDead(blade)
	claim := must(one.Claim(memory.ClaimOptions{By: one.Process(), Now: *b.fabric.clock, Until: hour, Steal: true,
		Change: func(l *layout.Layout) error {
			if err := condemned(l); err != nil {
				return err
			}
			return declareDead(l)
		}}, slices.Collect(ids(one))...))(t)
	decided := func(what string, want bool) {
		t.Helper()
		if got, err := claim.Outlasts(); got != want || err != nil {
			t.Errorf("%s: what the blade had is decided: %v, %v", what, got, err)
		}
	}
	decided("nobody else knows the epoch", false)
	check(t, two.Renew(hour))
	check(t, three.Renew(hour))
	decided("both are alive", false)
	if !two.View().Up(blade) {
		t.Fatal("it knows the epoch already")
	}
	check(t, two.Follow())
	decided("one knows the epoch, and has not said so", false)
	check(t, two.Acknowledge())
	decided("one has said that it knows the epoch, and another one has not", false)
	*b.fabric.clock += hour + 1
	check(t, one.Renew(*b.fabric.clock+hour))
	decided("the lease of the other one has ended", true)
	decided("it stays decided", true)
}
