package memory_test

import (
	"errors"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// leavePlaces has copies leave places of blade 3, which stays, and returns how many.
func leavePlaces(t *testing.T, c *rdma.Coro, s *memory.Space) int {
	t.Helper()
	check(t, s.Drain(3))
	copyAll(t, c, s)
	cs := must(s.Coordinators())(t)
	if len(cs) == 0 {
		cs = append(cs, must(s.NewCoordinator())(t))
	}
	var ids []uint32
	for _, x := range cs {
		ids = append(ids, x.ID)
	}
	check(t, must(s.Claim(memory.ClaimOptions{Steal: true, Change: s.Settle(true)}, ids...))(t).Forget())
	check(t, s.Stay(3))
	n := s.Redundancy().Dirty
	if l := s.Layout(); n == 0 || n != len(l.Dirty(3)) || l.Held(3) > 0 {
		t.Fatalf("%d places are to be cleared, of blade 3 %d, which has %d copies", n, len(l.Dirty(3)), l.Held(3))
	}
	return n
}

// unused fails the test unless all that the catalog calls free on a blade is zero, and returns how
// many places it has cleared.
func (b *bed) unused(l *layout.Layout, blade rdma.BladeID) (clean int) {
	b.tb.Helper()
	check(b.tb, l.Validate())
	free := func(i uint32) {
		if !isZero(b.peek(blade, l.Base(i), testSegment)) {
			b.tb.Errorf("place %d of blade %d is not clean", i, blade)
		}
	}
	for i := range l.Blades[blade].Clean.All() {
		free(i)
		clean++
	}
	for i := l.Blades[blade].Used; i < l.Slots(blade); i++ {
		free(i)
	}
	return clean
}

// TestPlacesOfAllProcesses: what one process has cleared another one uses, after new epochs, and
// after the database was opened again; and what none has cleared any of them finds.
func TestPlacesOfAllProcesses(t *testing.T) {
	b := newBed(t, 4, 20, 1)
	first, c := b.open()
	a := b.allocator(first, c)
	all := storeSome(t, c, first, a, 4)
	n := leavePlaces(t, c, first)
	used := first.Layout().Blades[3].Used
	second, c2 := b.open()
	if got := second.Redundancy().Dirty; got != n {
		t.Fatalf("another process is to clear %d places; want %d", got, n)
	}
	for more, k := true, 0; more; k++ {
		more = must(second.Reclaim(c2))(t)
		if got := second.Redundancy().Dirty; k == 2 && got != n-2 { // one epoch, two places
			t.Errorf("%d of %d places are still to be cleared", got, n)
		}
	}
	check(t, first.AdvanceEpoch(nil))
	l := agree(t, b, first, second)
	if got := b.unused(l, 3); got != n || first.Redundancy().Dirty != 0 {
		t.Errorf("%d of %d places are clean, and %d are to be cleared", got, n, first.Redundancy().Dirty)
	}
	kept(t, c, first, all)
	check(t, first.Close(c))
	check(t, second.Close(c2))
	b.dropThreads()
	s, c := b.open()
	a = b.allocator(s, c)
	for k := layout.Class(10); s.Layout().Blades[3].Clean.Len() > 0; k++ {
		must(a.Alloc(c, k))(t)
	}
	if l := s.Layout(); l.Blades[3].Used != used || l.Held(3) < n {
		t.Errorf("%d segments are on blade 3, which has used %d places, and %d before",
			l.Held(3), l.Blades[3].Used, used)
	}
	check(t, s.Layout().Validate())
}

// TestPlaceInVain: what has become of a WRITE that was to clear a place is not known. It could come
// after a segment is there, so the place is cleared in another epoch.
func TestPlaceInVain(t *testing.T) {
	b := newBed(t, 4, 20, 1)
	s, c := b.open()
	storeSome(t, c, s, b.allocator(s, c), 4)
	n := leavePlaces(t, c, s)
	check(t, s.AdvanceEpoch(nil))
	epoch := s.View().Epoch
	b.fabric.failing = func(w *rdma.WR) bool { return w.Op == rdma.OpWrite && w.Blade == 3 }
	if _, err := s.Reclaim(c); !errors.Is(err, rdma.ErrVerb) {
		t.Fatalf("nothing can be written: %v", err)
	}
	b.fabric.failing = nil
	check(t, c.Thread().Reconnect(3))
	for more := true; more; {
		more = must(s.Reclaim(c))(t)
		if got := b.unused(s.Layout(), 3); got > 0 && s.View().Epoch == epoch {
			t.Fatal("a place is clean in the epoch in which a WRITE of a zero was lost")
		}
	}
	if got := b.unused(s.Layout(), 3); got != n {
		t.Errorf("%d of %d places are clean", got, n)
	}
}

// TestPlaceOfAnotherEpoch: another process has the right to copy while this one clears a place.
// It does not count.
func TestPlaceOfAnotherEpoch(t *testing.T) {
	b := newBed(t, 4, 20, 1)
	first, c := b.open()
	storeSome(t, c, first, b.allocator(first, c), 4)
	n := leavePlaces(t, c, first)
	second, _ := b.open()
	check(t, first.AdvanceEpoch(nil))
	done := false
	b.fabric.before = func(w *rdma.WR) {
		if w.Op == rdma.OpRead && w.Blade == 3 && !done {
			done = true
			check(t, second.AdvanceEpoch(nil))
		}
	}
	if _, err := first.Reclaim(c); !errors.Is(err, rdma.ErrStaleKey) {
		t.Errorf("an epoch of another process: %v", err)
	}
	check(t, first.Follow())
	if l := first.Layout(); len(l.Dirty(3)) != n || b.unused(l, 3) != 0 {
		t.Errorf("%d of %d places are to be cleared", len(l.Dirty(3)), n)
	}
	cleared, moved := false, false // all of a place, and the epoch behind that
	b.fabric.before = func(w *rdma.WR) {
		cleared = cleared || w.Blade == 3 && w.Op == rdma.OpRead &&
			w.Off%testSegment == (layout.HeaderArea+testSegment-64<<10)%testSegment
	}
	check(t, c.Thread().Reconnect(3))
	must(first.Reclaim(c))(t) // the epoch
	b.cat.applying = func() {
		if cleared && !moved {
			moved = true
			check(t, second.AdvanceEpoch(nil))
		}
	}
	_, err := first.Reclaim(c)
	if b.cat.applying = nil; !moved {
		t.Fatal("the epoch has not moved")
	}
	if l := must(layout.LoadLayout(b.cat))(t); err != nil || l.Blades[3].Clean != "" {
		t.Error(err, "a place counts as clean in a later epoch than that in which it was cleared")
	}
}

// TestAdmitEndsKeys: a blade was declared dead, and it serves sessions still that have not heard of
// that. They can write nothing any more when its places are cleared.
func TestAdmitEndsKeys(t *testing.T) {
	b := newBed(t, 3, 20, 1)
	s, c := b.open()
	must(s.NewCoordinator())(t)
	a := b.allocator(s, c)
	all := storeSome(t, c, s, a, 3)
	old := s.View().Key(1)
	check(t, must(declareDead(t, s, 1))(t).Forget())
	if !b.opens(1, old) {
		t.Fatal("a key of before opens nothing: there is nothing to be tested")
	}
	looked := 0
	b.fabric.before = func(w *rdma.WR) {
		if w.Blade == 1 && w.Off >= layout.HeaderArea {
			if looked++; b.opens(1, old) {
				t.Fatal("a key of before opens a blade that is being cleared")
			}
		}
	}
	check(t, s.Admit(c, 1, nil))
	b.fabric.before = nil
	if !s.View().Up(1) || looked == 0 {
		t.Fatalf("up: %v, after %d verbs", s.View().Up(1), looked)
	}
	copyAll(t, c, s)
	kept(t, c, s, all)
}

// TestAdmitOfAnother: while a process is about to take in a blade that it has cleared,
// another one does so, uses it, and declares it dead once more. What the first one has
// cleared is not clean any more.
func TestAdmitOfAnother(t *testing.T) {
	b := newBed(t, 3, 20, 1)
	first, c := b.open()
	must(first.NewCoordinator())(t)
	all := storeSome(t, c, first, b.allocator(first, c), 3)
	check(t, must(declareDead(t, first, 1))(t).Forget())
	second, c2 := b.open()
	a := b.allocator(second, c2)
	busy, looked := false, 0
	b.fabric.granting = func(blade rdma.BladeID) error {
		if blade != 0 || busy || looked > 0 {
			return nil
		}
		busy = true
		defer func() { busy = false }()
		looked++
		check(t, second.Admit(c2, 1, nil))
		must(second.NewCoordinator())(t)
		copyAll(t, c2, second)
		all = append(all, storeSome(t, c2, second, a, 3)...)
		check(t, must(declareDead(t, second, 1))(t).Forget())
		return nil
	}
	for tries := 0; !first.View().Up(1); tries++ {
		if err := first.Admit(c, 1, nil); err != nil && (!errors.Is(err, rdma.ErrStaleKey) || tries > 10) {
			t.Fatal(err)
		}
		for blade := range rdma.BladeID(3) {
			_ = c.Thread().Reconnect(blade)
		}
		if l := must(layout.LoadLayout(b.cat))(t); l.Blades[1].State == layout.BladeUp {
			for i := range l.Slots(1) {
				if !isZero(b.peek(1, l.Base(i), testSegment)) {
					t.Errorf("place %d of a blade that was just taken in has something in it", i)
				}
			}
		}
	}
	if looked == 0 {
		t.Fatal("nothing came in between")
	}
	copyAll(t, c, first)
	kept(t, c, first, all)
}
