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

// tryOpen opens a shared database beside others, or not.
func (b *bed) tryOpen(until int64) (*memory.Space, *rdma.Coro, error) {
	b.tb.Helper()
	o := b.opts
	o.Until = until
	c := b.thread().Plain()
	s, err := memory.Open(c, b.fabric, b.cat, o)
	return s, c, err
}

// TestShared: the first process that opens a shared database creates it and is alone until it says
// so; the others are beside it. The first one after all have closed it owns everything.
func TestShared(t *testing.T) {
	b := newSharedBed(t, 2, 8, 1)
	b.fabric.clock = new(int64)
	s, _, err := b.tryOpen(0)
	check(t, err)
	if !s.First() || !s.Shared() || s.Process() != 1 {
		t.Fatalf("first %v, shared %v, process %d", s.First(), s.Shared(), s.Process())
	}
	if _, _, err := b.tryOpen(0); !errors.Is(err, memory.ErrShared) ||
		!strings.Contains(err.Error(), "process 1 is alone") {
		t.Errorf("beside one that is alone: %v", err)
	}
	check(t, s.EndAlone())
	check(t, s.EndAlone())
	o := b.opts
	o.Shared = false // it stays what it is
	b.opts = o
	s2, c2, err := b.tryOpen(0)
	check(t, err)
	if s2.First() || !s2.Shared() || s2.Process() != 2 || s2.View().Epoch != 1 {
		t.Errorf("first %v, shared %v, process %d, epoch %d", s2.First(), s2.Shared(), s2.Process(), s2.View().Epoch)
	}
	for _, x := range []*memory.Space{s, s2} {
		if err := x.BeginAlone(); !errors.Is(err, memory.ErrShared) {
			t.Errorf("alone beside another process: %v", err)
		}
	}
	x := must(s2.AllocExtent(c2, 64))(t)
	must(b.allocator(s2, c2).Alloc(c2, 4))(t)
	b.dropThreads() // s2 does not close its allocator: its process is gone
	c := b.thread().Plain()
	check(t, s2.Close(b.thread().Plain()))
	check(t, s.BeginAlone()) // its registration has ended, and its segments are there
	if _, _, err := b.tryOpen(0); !errors.Is(err, memory.ErrShared) {
		t.Errorf("beside one that is alone: %v", err)
	}
	check(t, s.EndAlone())
	old := s.View()
	check(t, s.Close(c))
	s, c, err = b.tryOpen(0)
	check(t, err)
	l := s.Layout()
	if !s.First() || len(l.Processes) != 1 || b.opens(0, old.Key(0)) || b.opens(1, old.Key(1)) {
		t.Errorf("first %v, processes %+v, and the keys before open the blades", s.First(), l.Processes)
	}
	if all := s.Extents(); len(all) != 1 || all[0].Addr != x {
		t.Errorf("extents %v", all)
	}
	for _, g := range l.Segments {
		if owns := g.Kind == layout.KindIndex; owns != (g.Owner == s.Process()) {
			t.Errorf("segment %+v of process %d", g, s.Process())
		}
	}
	check(t, s.Close(c))

	b = newBed(t, 2, 8, 1)
	s, c = b.open()
	if s.Shared() || !s.First() || s.BeginAlone() != nil || s.EndAlone() != nil {
		t.Error("a database of one process is shared")
	}
	check(t, s.Close(c))
	b.opts.Shared = true
	if _, _, err := b.tryOpen(0); !errors.Is(err, layout.ErrGeometry) {
		t.Errorf("share what was created for one process: %v", err)
	}
	b.opts.Openings = true
	if _, _, err := b.tryOpen(0); err == nil {
		t.Error("shared, and each opening an epoch")
	}
}

// TestDeadBefore: a blade has restarted, or the database was being created, when all processes died
// that had it open. The next one waits until they must have renewed their registrations, and is the
// first one then. Beside one that lives it is told to try again.
func TestDeadBefore(t *testing.T) {
	for _, what := range []string{"blade", "format", "alone"} {
		b := newSharedBed(t, 2, 8, 1)
		b.fabric.clock = new(int64)
		var dead *memory.Space
		var err error
		if what == "format" {
			// until the catalog is written, and the headers are not
			for left := 0; must(layout.LoadLayout(b.cat))(t) == nil; left++ {
				st := &stop{left: left}
				b.fabric.stop, b.cat.stop = st, st
				if _, _, err = b.tryOpen(30_000_000); err == nil {
					t.Fatal("it was created at once")
				}
				b.fabric.stop, b.cat.stop = nil, nil
			}
		} else {
			dead, _, err = b.tryOpen(30_000_000)
			check(t, err)
			if what == "blade" {
				check(t, dead.EndAlone())
				check(t, b.inner.StopBlade(1))
				check(t, b.inner.RestartBlade(1, true))
			}
		}
		if l := must(layout.LoadLayout(b.cat))(t); len(l.Processes) != 1 {
			t.Fatalf("%s: %+v", what, l.Processes)
		}
		b.dropThreads()
		s, c, err := b.tryOpen(0)
		check(t, err)
		if l := s.Layout(); !s.First() || len(l.Processes) != 1 || l.Processes[0].ID == 1 || !l.Formatted {
			t.Errorf("%s: first %v, %+v", what, s.First(), l.Processes)
		}
		if dead != nil {
			if err := dead.Follow(); err != nil && !errors.Is(err, rdma.ErrBladeDown) {
				t.Error(err)
			}
			if slices.ContainsFunc(dead.Layout().Segments, func(g layout.Segment) bool { return g.Owner == 1 }) {
				t.Errorf("%s: the dead process owns segments", what)
			}
		}
		check(t, s.EndAlone())
		check(t, b.inner.StopBlade(0))
		check(t, b.inner.RestartBlade(0, true))
		if _, _, err := b.tryOpen(0); !errors.Is(err, memory.ErrShared) ||
			!strings.Contains(err.Error(), "declared it dead") {
			t.Errorf("%s: a blade has restarted that is not declared dead: %v", what, err)
		}
		check(t, s.Close(c))
		b.dropThreads()
	}
}

// TestBlankBefore: blades have restarted without what they had, and no process has the database
// open any more. The next one counts them as lost, unless segments would be lost with them that
// have no other copy.
func TestBlankBefore(t *testing.T) {
	for _, x := range []struct {
		blank  []rdma.BladeID
		giveUp bool
		kind   error
		text   string
	}{
		{[]rdma.BladeID{1}, false, nil, ""},
		{[]rdma.BladeID{0, 1}, false, layout.ErrForeign, "its region is blank"},
		{[]rdma.BladeID{0, 1}, true, nil, ""},
		{[]rdma.BladeID{0, 1, 2}, true, layout.ErrLost, "no blade would be left"},
	} {
		b := newSharedBed(t, 3, 8, 1)
		b.fabric.clock = new(int64)
		s, c, err := b.tryOpen(30_000_000)
		check(t, err)
		check(t, s.EndAlone())
		co := must(s.NewCoordinator())(t)
		a := b.allocator(s, c)
		for range 5 { // segments on all blades
			must(a.Alloc(c, 40))(t)
		}
		l := s.Layout()
		b.dropThreads()
		for _, id := range x.blank {
			check(t, b.inner.StopBlade(id))
			check(t, b.inner.RestartBlade(id, false))
		}
		b.opts.GiveUp = x.giveUp
		s, c, err = b.tryOpen(30_000_000)
		if x.kind != nil {
			if !errors.Is(err, x.kind) || !strings.Contains(err.Error(), x.text) {
				t.Errorf("%v: %v", x.blank, err)
			}
			if now := must(layout.LoadLayout(b.cat))(t); !slices.Equal(now.Processes, l.Processes) ||
				now.Epoch != l.Epoch {
				t.Errorf("%v: the catalog was changed", x.blank)
			}
			continue
		}
		check(t, err)
		l = s.Layout()
		for id := range l.Blades {
			if down := l.Blades[id].State == layout.BladeDown; down != slices.Contains(x.blank, rdma.BladeID(id)) {
				t.Errorf("%v: blade %d is down: %v", x.blank, id, down)
			}
		}
		if r := l.Redundancy(); (r.Lost > 0) != x.giveUp || !s.FailoverPending() || !s.First() {
			t.Errorf("%v: %+v, failover pending %v", x.blank, r, s.FailoverPending())
		}
		claim := must(s.Claim(memory.ClaimOptions{By: s.Process(), Steal: true}, co.ID))(t)
		check(t, claim.Decide(nil))
		check(t, claim.Forget())
		for _, id := range x.blank {
			check(t, s.Admit(c, id, nil))
		}
		check(t, s.Layout().Validate())
		check(t, s.EndAlone())
		check(t, s.Close(c))
	}
}

// TestSharedAtEveryStep: the process that creates a shared database, and one that opens it when all
// others are gone, dies at any step. The next one has it.
func TestSharedAtEveryStep(t *testing.T) {
	for at, done := 0, false; !done; at++ {
		b := newSharedBed(t, 2, 8, 1)
		b.fabric.clock = new(int64)
		for range 2 {
			st := &stop{left: at}
			b.fabric.stop, b.cat.stop = st, st
			s, c, err := b.tryOpen(1)
			if err == nil {
				err = errors.Join(s.EndAlone(), s.Close(c))
			}
			done = err == nil
			b.fabric.stop, b.cat.stop = nil, nil
			b.dropThreads()
		}
		s, c, err := b.tryOpen(1)
		if err != nil {
			t.Fatalf("step %d: %v", at, err)
		}
		check(t, s.Layout().Validate())
		if !s.First() {
			t.Errorf("step %d: it is not the first", at)
		}
		check(t, s.EndAlone())
		must(s.CreateTable("t", nil))(t)
		check(t, s.Close(c))
		b.dropThreads()
	}
}

// TestTermOfALateOpening: an opening that waits for longer than its term for a process that is
// alone registers for the whole term all the same. Else any other process could end it at once.
func TestTermOfALateOpening(t *testing.T) {
	const term = 1_000_000
	b := newSharedBed(t, 2, 8, 1)
	b.fabric.clock = new(int64)
	s, _, err := b.tryOpen(0)
	check(t, err)
	reads := 0
	b.cat.loaded = func() {
		if reads++; reads == 2 {
			b.cat.loaded = nil
			*b.fabric.clock += 5 * term
			check(t, s.EndAlone())
		}
	}
	late, _, err := b.tryOpen(*b.fabric.clock + term)
	check(t, err)
	if p := late.Layout().Process(late.Process()); p == nil || p.Term != term || p.Until != *b.fabric.clock+term {
		t.Fatalf("it has registered as %+v at %d, for a term of %d", p, *b.fabric.clock, term)
	}
	check(t, s.Follow())
	*b.fabric.clock += term / 2
	if n, err := s.TakeOver(*b.fabric.clock); n > 0 || err != nil {
		t.Errorf("half a term later %d processes were declared gone: %v", n, err)
	}
}
