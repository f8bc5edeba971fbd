package memory_test

import (
	"errors"
	"reflect"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// TestTenure: others end the registration of a process. Its threads get no view of the epoch in
// which that was, those that have posted nothing before included, also when the process registers
// anew: they begin anew before. The thread of a session goes on as long as its coordinator lives,
// but not under a right of before.
func TestTenure(t *testing.T) {
	b := newSharedBed(t, 3, 10, 1)
	s, c := b.join(100)
	other, _ := b.join(0)
	at := must(s.AllocExtent(c, 256))(t)
	post := func(th *rdma.Thread) error {
		v, c := s.ViewOn(th), th.Plain()
		buf := must(th.Alloc(8))(t)
		defer th.Free(buf, 8)
		var batch rdma.Batch
		batch.Read(v.At(at, 0), buf, 8)
		err := c.Do(&batch)
		check(t, th.Reconnect(v.At(at, 0).Blade))
		return err
	}
	goes := func(when string, th *rdma.Thread, want bool) {
		t.Helper()
		if err := post(th); (err == nil) != want || err != nil && !errors.Is(err, rdma.ErrStaleKey) {
			t.Errorf("%s: goes on %v, and its verb: %v", when, want, err)
		}
	}
	co := must(s.NewCoordinator())(t)
	session := b.thread()
	s.Join(session, co.ID)
	if !s.AcquireRight(7) {
		t.Fatal("no right")
	}
	under := func(when string, th *rdma.Thread, want bool) {
		t.Helper()
		check(t, s.Hold(th, 7, func() error { goes(when, th, want); return nil }))
	}
	was := s.Process()
	goes("registered", c.Thread(), true)
	goes("a session", session, true)
	under("under a right", session, true)

	check(t, other.Follow())
	if n := must(other.TakeOver(101))(t); n != 1 {
		t.Fatalf("%d registrations were ended", n)
	}
	check(t, s.Follow())
	for _, anew := range []bool{false, true} {
		if anew {
			check(t, s.Renew(1000))
			if s.Process() == was {
				t.Fatal("it has not registered anew")
			}
		}
		goes("ended", c.Thread(), false)
		goes("ended, and it has posted nothing before", b.thread(), anew) // that thread begins now
		goes("the session of a process that was ended", session, true)
		under("the session, under a right that was ended", session, false)
		goes("the session, when it is done with that", session, true)
		under("under a right that was ended", c.Thread(), false)
		if s.HasRight(7) {
			t.Error("it has the right of before")
		}
		if err := s.Stands(was); !errors.Is(err, memory.ErrEnded) || !errors.Is(err, rdma.ErrStaleKey) {
			t.Errorf("number %d: %v", was, err)
		}
		check(t, errors.Join(s.Stands(0), s.Stands(co.ID)))
	}
	check(t, s.Stands(s.Process()))
	s.Begin(c.Thread())
	goes("begun anew", c.Thread(), true)

	must(other.Claim(memory.ClaimOptions{By: other.Process(), Now: 200}, co.ID))(t)
	check(t, s.Follow())
	goes("a session that was declared dead", session, false)
	s.Begin(session) // it is no thread of the process
	goes("that session still", session, false)
	s.Join(session, co.ID)
	goes("a session of a coordinator that is dead", session, false)
	s.Leave(session)
	goes("without it", session, true)
	if err := s.Stands(co.ID); !errors.Is(err, memory.ErrEnded) {
		t.Errorf("coordinator %d: %v", co.ID, err)
	}
}

// TestRightsInChanges: others end the registration of a process that has a right. What it
// does under the right then is not in the catalog, whether it has heard of that or not, or
// has registered anew.
func TestRightsInChanges(t *testing.T) {
	change := func(x memory.TableChange) func(s *memory.Space, c *rdma.Coro) error {
		return func(s *memory.Space, _ *rdma.Coro) error { return s.ChangeTables(x) }
	}
	create := func(s *memory.Space, _ *rdma.Coro) error { _, err := s.CreateTable("more", nil); return err }
	for i, x := range []struct {
		name   string
		of     uint32
		errors []error
		act    func(s *memory.Space, c *rdma.Coro) error
	}{
		{
			"drop", layout.RightAlone, []error{memory.ErrShared, memory.ErrEnded},
			change(memory.TableChange{ID: 1, Drop: true}),
		},
		{
			"options", layout.RightAlone, []error{memory.ErrShared, memory.ErrEnded},
			change(memory.TableChange{ID: 1, Options: []byte("x")}),
		},
		{"create", layout.RightAlone, []error{memory.ErrShared, memory.ErrEnded}, create},
		{
			"alone within", layout.RightAlone, []error{memory.ErrShared, memory.ErrEnded},
			func(s *memory.Space, _ *rdma.Coro) error { return s.BeginAlone() },
		},
		{"root", 1, []error{memory.ErrTableExists}, func(s *memory.Space, c *rdma.Coro) error {
			return s.SetTableRoot(1, must(s.AllocExtent(c, 256))(t))
		}},
		{"unmade", 1, []error{memory.ErrTableExists}, change(memory.TableChange{ID: 1, Drop: true, Unmade: true})},
		{"forget", 1, []error{memory.ErrEnded}, func(s *memory.Space, _ *rdma.Coro) error { return s.ForgetTable(1) }},
		{
			"nodes", 1, []error{memory.ErrEnded},
			change(memory.TableChange{ID: 1, Root: layout.MakeAddr(1, 0), Nodes: 4}),
		},
		{"build", layout.RightCopies, []error{memory.ErrEnded}, func(s *memory.Space, _ *rdma.Coro) error {
			_, err := s.Build()
			return err
		}},
		{"spread", layout.RightCopies, []error{memory.ErrEnded}, func(s *memory.Space, _ *rdma.Coro) error {
			_, err := s.Spread()
			return err
		}},
		{"settle", layout.RightCopies, []error{memory.ErrEnded}, func(s *memory.Space, _ *rdma.Coro) error {
			return s.AdvanceEpoch(s.Settle(false))
		}},
		{"admit", layout.RightCopies, []error{memory.ErrEnded}, func(s *memory.Space, c *rdma.Coro) error {
			return s.Admit(c, 2, nil)
		}},
	} {
		for k, way := range []string{"it has not heard of it", "it has heard of it", "it has registered anew"} {
			if testing.Short() && (i+k)%3 > 0 {
				continue
			}
			b := newSharedBed(t, 3, 10, 1)
			s, c := b.join(10_000_000)
			must(s.CreateTable("t", nil))(t)
			var other *memory.Space
			if x.of == layout.RightAlone {
				check(t, s.BeginAlone())
				var err error
				other, _, err = b.tryOpen(0) // which waits until the registration has ended
				check(t, err)
				check(t, other.EndAlone())
			} else {
				other, _ = b.join(0)
				if check(t, s.Follow()); !s.AcquireRight(x.of) {
					t.Fatal("no right")
				}
				check(t, other.AdvanceEpoch(func(l *layout.Layout) error { l.TakeDown(2); return nil }))
				check(t, s.Follow())
				if n := must(other.TakeOver(10_000_001))(t); n != 1 {
					t.Fatalf("%d registrations were ended", n)
				}
			}
			if way != "it has not heard of it" {
				check(t, s.Follow())
			}
			if way == "it has registered anew" {
				check(t, s.Renew(1_000_000_000))
			}
			s.Begin(c.Thread())
			for blade := range 2 {
				check(t, c.Thread().Reconnect(rdma.BladeID(blade)))
			}
			before := must(layout.LoadLayout(b.cat))(t)
			err := x.act(s, c)
			for _, want := range x.errors {
				if !errors.Is(err, want) {
					t.Errorf("%s, %s: %v", x.name, way, err)
				}
			}
			after := must(layout.LoadLayout(b.cat))(t)
			if !reflect.DeepEqual(before.Tables, after.Tables) || before.Blades[2].State != after.Blades[2].State ||
				before.Epoch != after.Epoch {
				t.Errorf("%s, %s: the catalog was changed from %+v to %+v", x.name, way, before, after)
			}
			if x.of == layout.RightAlone {
				if err := s.EndAlone(); !errors.Is(err, memory.ErrShared) {
					t.Errorf("%s, %s: alone to the end: %v", x.name, way, err)
				}
				check(t, s.ChangeTables(memory.TableChange{ID: 1, Options: []byte("y")})) // without a right
			} else {
				s.ReleaseRight(x.of)
				if !s.AcquireRight(x.of) {
					t.Errorf("%s, %s: it does not get the right anew", x.name, way)
				}
			}
		}
	}
}
