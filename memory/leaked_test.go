package memory_test

import (
	"errors"
	"slices"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// TestLateExtents: an extent, of which a verb of a thread without a coordinator has failed that
// may still arrive, is used again in a later epoch, and not before. It waits for one, and begins
// one if none comes.
func TestLateExtents(t *testing.T) {
	for _, free := range []bool{false, true} {
		for _, waits := range []bool{false, true} {
			b := newBed(t, 2, 6, 1)
			b.fabric.clock = new(int64)
			s, c := b.open()
			th := b.thread()
			for range 2 { // a segment for each blade
				must(s.AllocExtent(c, 1000))(t)
			}
			var late layout.Addr
			before := s.Extents()
			if free {
				late = must(s.AllocExtent(c, 1000))(t)
				check(t, s.FreeAt(late, 1000))
			}
			b.fabric.stop = &stop{status: rdma.StatusTimeout}
			if free {
				if err := s.SettleExtents(th.Plain()); err == nil {
					t.Fatal("settled without verbs")
				}
			} else if _, err := s.AllocExtent(th.Plain(), 1000); err == nil {
				t.Fatal("allocated without verbs")
			}
			b.fabric.stop = nil
			if s.ExtentsDue(0) || !slices.Equal(before, s.Extents()) {
				t.Fatalf("freed before %v: something is due at once, or allocated: %v", free, s.Extents())
			}
			all := map[layout.Addr]bool{}
			for range 20 {
				all[must(s.AllocExtent(c, 1000))(t)] = true
			}
			if all[late] {
				t.Fatal("an extent is used to which a verb may be on its way")
			}
			epoch := s.Layout().Epoch
			*b.fabric.clock = 2_000_000_000
			if waits {
				check(t, s.AdvanceEpoch(nil))
			}
			if !s.ExtentsDue(*b.fabric.clock) {
				t.Fatal("nothing is due")
			}
			for _, x := range []*rdma.Thread{c.Thread(), th} {
				s.View().Rekey(x)
			}
			for try := 0; s.ExtentsDue(*b.fabric.clock); try++ {
				if err := s.SettleExtents(c); err != nil && try > 2 {
					t.Fatal(err)
				}
				s.View().Rekey(c.Thread())
				for _, x := range s.Fabric().Blades() {
					check(t, c.Thread().Reconnect(x.ID))
				}
			}
			if n := s.Layout().Epoch - epoch; n != 1 {
				t.Errorf("waited %v: %d epochs", waits, n)
			}
			again := must(s.AllocExtent(c, 1000))(t)
			if more := must(s.AllocExtent(c, 1000))(t); free && again != late && more != late {
				t.Errorf("%v is lost, used are %v and %v", late, again, more)
			}
		}
	}
}

// TestInheritedExtents: a process dies that has allocated extents. The one that adopts
// their segment has them listed as those that are lost unless something leads to them,
// once, and has the others.
func TestInheritedExtents(t *testing.T) {
	b := newSharedBed(t, 2, 12, 1)
	s, c := b.open()
	s2, c2 := b.join(10)
	used, lost := must(s2.AllocExtent(c2, 60_000))(t), must(s2.AllocExtent(c2, 1000))(t)
	for used.Segment() != lost.Segment() {
		lost = must(s2.AllocExtent(c2, 1000))(t)
	}
	check(t, s.Follow())
	if n := must(s.TakeOver(21))(t); n != 1 {
		t.Fatalf("%d processes were taken over", n)
	}
	for n := 0; n < 40 && !s.Owns(lost); n++ {
		must(s.AllocExtent(c, 20_000))(t)
	}
	own := must(s.AllocExtent(c, 256))(t) // what is adopted is read
	generation, _ := s.Unswept()
	var freed bool
	for _, x := range s.DeadExtents() {
		switch x.Addr {
		case lost:
			freed = must(s.FreeExtent(x))(t)
		case own:
			t.Errorf("an extent of a process that lives is listed: %v", x)
		}
	}
	if !s.Leaked() || !freed {
		t.Fatalf("extents of a dead process: loose %v, freed %v of %v", s.Leaked(), freed, s.DeadExtents())
	}
	check(t, s.SettleExtents(c))
	check(t, s.LeaksFreed(generation))
	if s.Leaked() {
		t.Error("loose still")
	}
	again := false
	for range 40 {
		a := must(s.AllocExtent(c, 1000))(t)
		if again = again || a == lost; a.Segment() == used.Segment() && a.Offset() >= used.Offset() &&
			a.Offset() < used.Offset()+60_000 {
			t.Fatalf("%v is in the extent at %v, which was not given back", a, used)
		}
	}
	if !again {
		t.Errorf("the extent at %v is lost", lost)
	}
}

// TestAdoptedUnread: the table of a segment that was adopted cannot be read, and no other extent is
// asked for. It is read when extents are settled, and what is in it is listed.
func TestAdoptedUnread(t *testing.T) {
	b := newSharedBed(t, 2, 4, 1)
	b.fabric.clock = new(int64)
	s, c := b.join(1000)
	dead, dc := b.join(10)
	for {
		if _, err := dead.AllocExtent(dc, 60<<10); errors.Is(err, memory.ErrNoSpace) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	check(t, s.Follow())
	*b.fabric.clock = 11
	if must(s.TakeOver(11))(t) != 1 {
		t.Fatal("no registration has ended")
	}
	connect := func() {
		for _, b := range s.Fabric().Blades() {
			check(t, c.Thread().Reconnect(b.ID))
		}
	}
	connect()
	b.fabric.stop = &stop{status: rdma.StatusFlushed}
	if _, err := s.AllocExtent(c, 60<<10); !errors.Is(err, rdma.ErrVerb) {
		t.Fatalf("no table can be read: %v", err)
	}
	b.fabric.stop = nil
	connect()
	if !s.ExtentsDue(11) || s.Leaked() || len(s.DeadExtents()) > 0 {
		t.Fatalf("a table is to be read: due %v, loose %v, and dead are %v",
			s.ExtentsDue(11), s.Leaked(), s.DeadExtents())
	}
	check(t, s.SettleExtents(c))
	if s.ExtentsDue(11) || !s.Leaked() || len(s.DeadExtents()) == 0 {
		t.Errorf("a table was read: due %v, loose %v, and dead are %v", s.ExtentsDue(11), s.Leaked(), s.DeadExtents())
	}
}

// TestListedAndLost: a process has listed the extents of a dead one, and is itself declared dead
// before it frees them. They are another process's then, and when that has died, too, other
// extents may be there.
func TestListedAndLost(t *testing.T) {
	b := newSharedBed(t, 2, 12, 1)
	other, oc := b.join(1000)
	s, c := b.join(20)
	dead, dc := b.join(10)
	lost := must(dead.AllocExtent(dc, 1000))(t)
	check(t, s.Follow())
	if n := must(s.TakeOver(11))(t); n != 1 {
		t.Fatalf("%d processes were taken over", n)
	}
	adopt := func(s *memory.Space, c *rdma.Coro) {
		t.Helper()
		for n := 0; n < 60 && !s.Owns(lost); n++ {
			must(s.AllocExtent(c, 20_000))(t)
		}
		must(s.AllocExtent(c, 256))(t) // what is adopted is read
		if !s.Owns(lost) {
			t.Helper()
			t.Fatalf("process %d has not adopted the segment of %v: %+v %+v", s.Process(), lost, s.Layout().Segments,
				s.Layout().Processes)
		}
	}
	adopt(s, c)
	listed := s.DeadExtents()
	if len(listed) == 0 {
		t.Fatal("none is listed")
	}
	check(t, other.Follow())
	if n := must(other.TakeOver(21))(t); n != 1 {
		t.Fatalf("%d processes were taken over", n)
	}
	check(t, s.Follow())
	free := func(when string) {
		for _, x := range listed {
			if done, err := s.FreeExtent(x); done || err != nil {
				t.Errorf("%s %v was freed: %v, %v", when, x, done, err)
			}
		}
	}
	free("without the segment")
	if len(s.DeadExtents()) > 0 {
		t.Errorf("listed are %v", s.DeadExtents())
	}
	adopt(other, oc) // it may use the places
	check(t, s.Follow())
	s.Begin(c.Thread()) // it registers anew
	must(s.AllocExtent(c, 256))(t)
	check(t, s.Evict(other.Process()))
	adopt(s, c)
	if len(s.DeadExtents()) == 0 {
		t.Error("none is listed again")
	}
	free("after another process had the segment")
}
