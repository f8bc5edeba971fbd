package memory_test

import (
	"errors"
	"testing"

	"txnode/memory"
	"txnode/rdma"
)

// refuse is the answer of a blade that is away for a moment.
func refuse(blade rdma.BladeID) func(rdma.BladeID) error {
	return func(b rdma.BladeID) error {
		if b == blade {
			return rdma.ErrBladeDown
		}
		return nil
	}
}

// TestKeysOfTheLate: a process is taken for dead, and a blade does not end its keys. What it has
// there is given to no other process before that is repeated: by the process that has made the
// epoch, or by one that follows.
func TestKeysOfTheLate(t *testing.T) {
	const blade = 1
	for _, maker := range []bool{true, false} {
		b := newSharedBed(t, 2, 12, 1)
		s, c := b.join(0)
		s2, c2 := b.join(0)
		late, c3 := b.join(10)
		x := must(late.AllocExtent(c3, 1000))(t)
		check(t, s.Follow())
		check(t, s2.Follow())
		if !late.AcquireRight(7) {
			t.Fatal("the right to recover an index is not free")
		}
		old := late.View().Key(blade)
		b.fabric.revoking = refuse(blade)
		if n, err := s.TakeOver(11); n != 1 || !errors.Is(err, rdma.ErrBladeDown) {
			t.Fatalf("it ended %d registrations: %v", n, err)
		}
		if err := s2.Follow(); !errors.Is(err, rdma.ErrBladeDown) {
			t.Errorf("the epoch that was not begun on a blade is followed: %v", err)
		}
		if !maker {
			s, s2, c, c2 = s2, s, c2, c
		}
		epoch := s.View().Epoch
		for range 3 {
			if !b.opens(blade, old) {
				t.Fatal("the key has ended without being told")
			}
			if !s.Deserted(11) || !s2.Deserted(11) {
				t.Error("nothing is left to be taken over, and the key of a process that is gone opens a blade")
			}
			must(s.AllocExtent(c, 20_000))(t)
			if s.Owns(x) {
				t.Fatal("a segment is adopted, and the key of its owner before opens a blade")
			}
			if s.AcquireRight(7) {
				t.Fatal("a right of a process is taken, and its key opens a blade")
			}
			if err := s.BeginAlone(); !errors.Is(err, rdma.ErrBladeDown) {
				t.Errorf("it begins to be alone: %v", err)
			}
			if n, err := s.TakeOver(11); n != 0 || !errors.Is(err, rdma.ErrBladeDown) {
				t.Errorf("it ended %d registrations: %v", n, err)
			}
		}
		b.fabric.revoking = nil
		if n, err := s.TakeOver(11); n != 0 || err != nil {
			t.Errorf("it ended %d registrations: %v", n, err)
		}
		if b.opens(blade, old) {
			t.Error("the key of a process that is gone opens a blade")
		}
		if s.View().Epoch != epoch || s.Deserted(11) {
			t.Errorf("epoch %d, and %d before; to be taken over: %v", s.View().Epoch, epoch, s.Deserted(11))
		}
		for range 40 {
			must(s.AllocExtent(c, 20_000))(t)
		}
		if !s.Owns(x) || !s.AcquireRight(7) {
			t.Error("what the process had is not given away")
		}
		s.ReleaseRight(7)
		must(s2.TakeOver(11))(t)
		if s2.Deserted(11) {
			t.Error("the other process finds something to be taken over")
		}
		must(s2.AllocExtent(c2, 1000))(t)
		agree(t, b, s, s2)
	}
}

// TestBladeWithoutKey: a blade grants no key for an epoch, and those before open it. Another epoch
// is begun as soon as it does, by any process, and none while it does not.
func TestBladeWithoutKey(t *testing.T) {
	const blade = 1
	b := newSharedBed(t, 2, 12, 1)
	s, _ := b.join(0)
	s2, _ := b.join(0)
	check(t, s.Follow())
	old := s.View()
	b.fabric.granting = refuse(blade)
	if err := s.AdvanceEpoch(nil); !errors.Is(err, rdma.ErrBladeDown) {
		t.Fatal(err)
	}
	check(t, s2.Follow())
	for range 3 {
		if _, err := s2.TakeOver(0); !errors.Is(err, rdma.ErrBladeDown) || !s2.Deserted(0) {
			t.Errorf("to be taken over: %v; %v", s2.Deserted(0), err)
		}
	}
	if e := s2.View().Epoch; e != old.Epoch+1 || !b.opens(blade, old.Key(blade)) {
		t.Errorf("epoch %d after %d", e, old.Epoch)
	}
	b.fabric.granting = nil
	must(s2.TakeOver(0))(t)
	if e := s2.View().Epoch; e != old.Epoch+2 || b.opens(blade, old.Key(blade)) ||
		!b.opens(blade, s2.View().Key(blade)) || s2.Deserted(0) {
		t.Errorf("epoch %d after %d; the key of the first one opens the blade: %v",
			e, old.Epoch, b.opens(blade, old.Key(blade)))
	}
	must(s.TakeOver(0))(t)
	agree(t, b, s, s2)
}

// TestCopiesBesideOldKeys: copies begin to be built, or are dropped, in an epoch that a blade does
// not begin. Nothing is copied from what sessions of before may still write to, and no place is
// cleared that they may write to, before the blade has ended their keys.
func TestCopiesBesideOldKeys(t *testing.T) {
	b := newBed(t, 4, 20, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	all := storeSome(t, c, s, a, 4)
	for _, x := range []struct {
		change func() error
		step   func(k *memory.Copier) error
	}{
		{func() error { return s.Drain(3) }, func(k *memory.Copier) error { _, err := k.Step(c); return err }},
		{func() error { return s.AdvanceEpoch(nil) }, func(*memory.Copier) error {
			_, err := s.Reclaim(c)
			return err
		}},
	} {
		old := s.View().Key(0)
		b.fabric.revoking = refuse(0)
		if err := x.change(); !errors.Is(err, rdma.ErrBladeDown) {
			t.Fatal(err)
		}
		k := s.NewCopier()
		for range 3 {
			if err := x.step(k); !errors.Is(err, rdma.ErrBladeDown) {
				t.Errorf("keys of before open a blade: %v", err)
			}
		}
		b.fabric.revoking = nil
		check(t, x.step(k))
		if b.opens(0, old) {
			t.Error("a key of before opens a blade")
		}
		must(movers(c, s))(t)
		if !s.View().Up(3) {
			check(t, s.Stay(3))
			check(t, s.Admit(c, 3, nil))
		}
	}
	kept(t, c, s, all)
}

// TestRefusal: a blade that executes verbs does not end keys. After a while it counts as one
// that does not answer, and what waits for it goes on without it, unless it has the last
// copy of a segment.
func TestRefusal(t *testing.T) {
	const blade, second = 1, int64(1e9)
	for _, last := range []bool{false, true} {
		b := newSharedBed(t, 3, 12, 1)
		s, c := b.join(0)
		_, _ = b.join(10)
		check(t, s.Follow())
		must(s.AllocExtent(c, 1000))(t)
		for range 3 {
			must(s.AllocExtent(c, s.MaxExtent()))(t)
		}
		if last {
			check(t, s.AdvanceEpoch(s.DeclareDead(2)))
		}
		b.fabric.revoking = refuse(blade)
		refused := func() error { return s.Refusal(blade, *b.fabric.clock) }
		for *b.fabric.clock = 11; *b.fabric.clock < second; *b.fabric.clock += second / 8 {
			if _, err := s.TakeOver(*b.fabric.clock); !errors.Is(err, rdma.ErrBladeDown) || refused() != nil {
				t.Fatalf("after %d ns: %v, %v", *b.fabric.clock, err, refused())
			}
		}
		*b.fabric.clock = 2 * second
		if err := s.Refusal(0, 2*second); err != nil {
			t.Errorf("another blade: %v", err)
		}
		if err := refused(); last != (err == nil) || err != nil && !errors.Is(err, rdma.ErrBladeDown) {
			t.Errorf("the last copy is there: %v; %v", last, err)
		}
		if last {
			b.fabric.revoking = nil // it has come to itself
		} else {
			check(t, s.AdvanceEpoch(s.DeclareDead(blade)))
		}
		if n, err := s.TakeOver(2 * second); n != 0 || err != nil || s.Deserted(2*second) ||
			len(s.Layout().Processes) != 1 {
			t.Errorf("%d were ended: %v; registered are %+v", n, err, s.Layout().Processes)
		}
		if refused() != nil {
			t.Errorf("it is over: %v", refused())
		}
	}
}

// TestUnfenced: a blade has ended keys, and a client that one of them has let in is in the middle
// of a verb. What has to come after late verbs waits for it, for as long as it takes, and the blade
// does not count as one that does not answer.
func TestUnfenced(t *testing.T) {
	const second = int64(1e9)
	b := newSharedBed(t, 3, 12, 1)
	s, _ := b.join(0)
	_, _ = b.join(10)
	check(t, s.Follow())
	b.fabric.revoking = func(blade rdma.BladeID) error {
		if blade == 1 {
			return rdma.ErrUnfenced
		}
		return nil
	}
	for *b.fabric.clock = 11; *b.fabric.clock < 100*second; *b.fabric.clock += second {
		if _, err := s.TakeOver(*b.fabric.clock); !errors.Is(err, memory.ErrUnrevoked) ||
			!errors.Is(err, rdma.ErrUnfenced) {
			t.Fatalf("after %d ns: %v", *b.fabric.clock, err)
		}
		if err := s.Refusal(1, *b.fabric.clock); err != nil {
			t.Fatalf("after %d ns: %v", *b.fabric.clock, err)
		}
	}
	b.fabric.revoking = nil
	if n, err := s.TakeOver(100 * second); n != 0 || err != nil || s.Unrevoked() || len(s.Layout().Processes) != 1 {
		t.Errorf("%d were ended: %v; registered are %+v", n, err, s.Layout().Processes)
	}
}

// TestEpochsInVain: a blade knows no key that it has granted. Two processes try to begin an epoch
// again and again, and make few.
func TestEpochsInVain(t *testing.T) {
	b := newSharedBed(t, 2, 12, 1)
	s, _ := b.join(0)
	s2, _ := b.join(0)
	forgets := func(blade rdma.BladeID) error {
		if blade == 1 {
			return rdma.ErrStaleKey
		}
		return nil
	}
	for _, keyless := range []bool{false, true} {
		b.fabric.revoking = forgets
		if keyless {
			grants := 0
			b.fabric.granting = func(blade rdma.BladeID) error { // each second time
				if blade == 1 {
					if grants++; grants%2 == 0 {
						return rdma.ErrBladeDown
					}
				}
				return nil
			}
		}
		_ = s.AdvanceEpoch(nil)
		from := s.View().Epoch
		for range 1000 {
			*b.fabric.clock += 1_000_000
			if err := s.EndKeys(); err == nil {
				t.Fatal("the keys have ended")
			}
			_ = s2.Follow()
			if err := s2.EndKeys(); err == nil {
				t.Fatal("the keys have ended")
			}
		}
		if n := s.View().Epoch - from; n > 100 {
			t.Errorf("%d epochs have begun in a second, without a key: %v", n, keyless)
		}
		b.fabric.revoking, b.fabric.granting = nil, nil
		*b.fabric.clock += 100e9
		check(t, s.EndKeys())
		check(t, s2.Follow())
		check(t, s2.EndKeys())
	}
	agree(t, b, s, s2)
}
