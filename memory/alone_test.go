package memory_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// A process that is taken for dead, and is only late, while another one is alone with the
// database: nothing that it does without a registration counts, and it has none before the other
// one is alone no more.

// TestAloneBesideLate: a process is late, and has a session. The other one is alone as soon as that
// is recovered, and not before. The late one registers when the other is alone no more, and learns
// then what has become of the tables.
func TestAloneBesideLate(t *testing.T) {
	b := newSharedBed(t, 2, 10, 1)
	b.fabric.clock = new(int64)
	s, _ := b.open()
	var told []layout.Table
	late, lc := b.join(10)
	late.OnTables(func(t layout.Table) { told = append(told, t) })
	was := late.Process()
	x := must(late.NewCoordinatorUntil(1000))(t) // a lease that has not ended: it runs on
	table := must(s.CreateTable("words", nil))(t)
	*b.fabric.clock = 50
	check(t, s.Follow())
	if err := s.BeginAlone(); !errors.Is(err, memory.ErrShared) || !strings.Contains(err.Error(), "as processes 2") {
		t.Errorf("beside a process that has joined: %v", err)
	}
	must(s.TakeOver(50))(t)
	if err := s.BeginAlone(); !errors.Is(err, memory.ErrShared) || !strings.Contains(err.Error(), "coordinators [3]") {
		t.Errorf("beside a session that is not recovered: %v", err)
	}
	claim := must(s.Claim(memory.ClaimOptions{By: s.Process(), Now: 50, Until: 500}, x.ID))(t)
	check(t, claim.Forget())
	must(s.NewCoordinator())(t) // its own is not in the way
	check(t, s.BeginAlone())

	for range 2 {
		if _, err := late.NewCoordinatorUntil(1000); !errors.Is(err, memory.ErrShared) ||
			!strings.Contains(err.Error(), "process 1 is alone") {
			t.Errorf("it registers a session: %v", err)
		}
		if err := late.Renew(1000, x.ID); !errors.Is(err, memory.ErrShared) {
			t.Errorf("it renews: %v", err)
		}
	}
	if late.AcquireRight(uint32(table.ID)) || late.AcquireRight(layout.RightCopies) {
		t.Error("it has a right")
	}
	if err := late.BeginAlone(); !errors.Is(err, memory.ErrShared) {
		t.Errorf("it is alone: %v", err)
	}
	if by := late.Recoverer(); late.Registered(by) {
		t.Errorf("it recovers others as %d", by)
	}
	a := b.allocator(late, lc)
	if _, err := a.Alloc(lc, 20); !errors.Is(err, memory.ErrShared) {
		t.Errorf("it takes a block: %v", err)
	}
	if _, err := late.AllocExtent(lc, 100); !errors.Is(err, memory.ErrShared) {
		t.Errorf("it takes an extent: %v", err)
	}
	if len(told) > 0 || len(s.Layout().Processes) != 1 {
		t.Errorf("it has registered anew: %+v, told %v", s.Layout().Processes, told)
	}
	check(t, s.ChangeTables(memory.TableChange{ID: table.ID, Drop: true}))
	check(t, s.EndAlone())

	check(t, late.Renew(1000))
	if now := late.Process(); now == was || !s.Registered(now) {
		t.Errorf("process %d renews as %d, registered %v", was, now, s.Registered(now))
	}
	if len(told) == 0 || told[len(told)-1].State != layout.TableDropping {
		t.Errorf("it was told %+v", told)
	}
	must(late.NewCoordinatorUntil(1000))(t)
	agree(t, b, s, late)
}

// TestAloneLost: a process is taken for dead while it is alone, and hears of it when it ends that.
func TestAloneLost(t *testing.T) {
	b := newSharedBed(t, 2, 10, 1)
	b.fabric.clock = new(int64)
	s, _ := b.join(30_000_000)
	check(t, s.BeginAlone())
	if err := s.BeginAlone(); !errors.Is(err, memory.ErrShared) ||
		!strings.Contains(err.Error(), "alone with it already") {
		t.Errorf("alone twice: %v", err)
	}
	other, _, err := b.tryOpen(0) // which waits for as long as the registration lasts
	check(t, err)
	if !other.First() {
		t.Fatal("it is beside one that was alone")
	}
	if err := s.EndAlone(); !errors.Is(err, memory.ErrShared) ||
		!strings.Contains(err.Error(), "taken this process for dead") {
		t.Errorf("alone to the end, though another process was, too: %v", err)
	}
	check(t, other.EndAlone())
	check(t, s.Renew(60_000_000))
	agree(t, b, s, other)
	if l := s.Layout(); len(l.Rights) != 0 || len(l.Processes) != 2 {
		t.Errorf("rights %+v, processes %+v", l.Rights, l.Processes)
	}
}

// TestRightsGivenBack: the catalog cannot be changed when a process is done with what it had a
// right to. The next renewal gives the right back; and no right that is in use.
func TestRightsGivenBack(t *testing.T) {
	for _, lie := range []bool{false, true} { // the change was made, and the catalog says that it has failed
		b := newSharedBed(t, 2, 10, 1)
		b.fabric.clock = new(int64)
		s, _ := b.join(100)
		check(t, s.BeginAlone())
		if !s.AcquireRight(7) || !s.AcquireRight(layout.RightCopies) {
			t.Fatal("there are no rights")
		}
		has := func(want ...uint32) {
			t.Helper()
			var of []uint32
			for _, m := range must(layout.LoadLayout(b.cat))(t).Rights {
				of = append(of, m.Of)
			}
			if !slices.Equal(of, want) {
				t.Errorf("lie %v: rights of %v, not %v", lie, of, want)
			}
		}
		has(layout.RightAlone, 7, layout.RightCopies)
		b.cat.fail, b.cat.lie, b.cat.deaf = true, lie, true
		if err := s.EndAlone(); err == nil {
			t.Fatal("the catalog cannot be changed, and was")
		}
		s.ReleaseRight(7)
		b.cat.fail, b.cat.lie, b.cat.deaf = false, false, false
		check(t, s.Renew(200))
		has(layout.RightCopies)
		if !s.HasRight(layout.RightCopies) || s.HasRight(7) {
			t.Error("a right that is in use was given back, or one that is not was kept")
		}
		check(t, s.BeginAlone()) // it can have all of them again
		if !s.AcquireRight(7) {
			t.Error("it has the right no more")
		}
		s.ReleaseRight(7)
		s.ReleaseRight(layout.RightCopies)
		check(t, s.EndAlone())
		has()
		agree(t, b, s)
	}
}

// TestRootOfOthers: two processes make the index of a table, one after the other: the second one's
// root is refused, and so is that of one without the right.
func TestRootOfOthers(t *testing.T) {
	b := newSharedBed(t, 2, 10, 1)
	b.fabric.clock = new(int64)
	s, c := b.join(100)
	other, oc := b.join(100)
	table := must(s.CreateTable("words", nil))(t)
	check(t, other.Follow())
	x, y := must(s.AllocExtent(c, 100))(t), must(other.AllocExtent(oc, 100))(t)
	if err := s.SetTableRoot(table.ID, x); !errors.Is(err, memory.ErrTableExists) {
		t.Errorf("a root without the right: %v", err)
	}
	if !s.AcquireRight(uint32(table.ID)) {
		t.Fatal("there is no right")
	}
	unmade := memory.TableChange{ID: table.ID, Drop: true, Unmade: true}
	if err := other.ChangeTables(unmade); !errors.Is(err, memory.ErrTableExists) {
		t.Errorf("a table is dropped that another process makes: %v", err)
	}
	check(t, s.SetTableRoot(table.ID, x))
	s.ReleaseRight(uint32(table.ID))
	if err := s.ChangeTables(unmade); !errors.Is(err, memory.ErrTableExists) {
		t.Errorf("a table is dropped as one that was not made: %v", err)
	}
	if !other.AcquireRight(uint32(table.ID)) {
		t.Fatal("there is no right behind another process")
	}
	if err := other.SetTableRoot(table.ID, y); !errors.Is(err, memory.ErrTableExists) {
		t.Errorf("a second root: %v", err)
	}
	other.ReleaseRight(uint32(table.ID))
	if l := agree(t, b, s, other); l.Tables[0].Root != x {
		t.Errorf("the root is %v, not %v", l.Tables[0].Root, x)
	}
}

// TestOptionsOfOthers: two processes change the options of a table that they have read, and the
// second one is told.
func TestOptionsOfOthers(t *testing.T) {
	b := newSharedBed(t, 2, 10, 1)
	s, _ := b.join(0)
	other, _ := b.join(0)
	table := must(s.CreateTable("words", []byte("a")))(t)
	check(t, other.Follow())
	change := func(s *memory.Space, was, to string) error {
		return s.ChangeTables(memory.TableChange{ID: table.ID, Was: []byte(was), Options: []byte(to)})
	}
	check(t, change(s, "a", "ab"))
	if err := change(other, "a", "ac"); !errors.Is(err, memory.ErrRevision) {
		t.Errorf("made of what is no more: %v", err)
	}
	check(t, change(other, "ab", "abc"))
	if l := agree(t, b, s, other); string(l.Tables[0].Options) != "abc" {
		t.Errorf("the options are %q", l.Tables[0].Options)
	}
}

// TestOpenedInEpoch: another process begins an epoch at every step of an opening beside it, so that
// keys which the opening has are good no more. It opens all the same.
func TestOpenedInEpoch(t *testing.T) {
	for at, done := 0, false; !done; at++ {
		b := newSharedBed(t, 2, 8, 1)
		s, c := b.join(0)
		must(s.AllocExtent(c, 100))(t)
		must(b.allocator(s, c).Alloc(c, 20))(t)
		n := 0
		done = true
		b.fabric.before = func(*rdma.WR) {
			if n++; n == at+1 {
				b.fabric.before, done = nil, false
				check(t, s.AdvanceEpoch(nil))
			}
		}
		other, _, err := b.tryOpen(0)
		b.fabric.before = nil
		if err != nil {
			t.Fatalf("an epoch before verb %d: %v", at, err)
		}
		agree(t, b, s, other)
		b.dropThreads()
	}
}
