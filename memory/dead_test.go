package memory_test

import (
	"errors"
	"strings"
	"testing"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/inproc"
)

// TestDeclareDead: blades are given up in the catalog of a database that was not closed. Its
// coordinators are decided like those of a lost blade, nobody begins before, and what had
// its last copy there says so.
func TestDeclareDead(t *testing.T) {
	f, err := inproc.New(inproc.Options{Seed: 3, Blades: []inproc.BladeOptions{
		{Size: 8 << 20}, {Size: 8 << 20}, {Size: 8 << 20},
	}})
	check(t, err)
	th, err := rdma.NewThread(f, rdma.ThreadOptions{})
	check(t, err)
	cat := &catalog.Mem{}
	o := memory.Options{Backups: 1, SegmentSize: 256 << 10, LogArea: 64 << 10}
	s, err := memory.Open(th.Plain(), f, cat, o)
	check(t, err)
	at, err := s.AllocExtent(th.Plain(), 4096)
	check(t, err)
	coord, err := s.NewCoordinator()
	check(t, err)
	before := s.Layout()
	on := s.View().Placement(at.Segment()).Replicas
	spare := rdma.BladeID(3) - on[0].Blade - on[1].Blade // the third

	for _, x := range []struct {
		l    *layout.Layout
		dear bool
	}{{before, false}, {before.Without(on[1].Blade), true}, {before.Without(spare), false}} {
		if says := x.l.Remedy(on[0].Blade); strings.Contains(says,
			"give up for ever what is on no other blade, 1 of 1 segments") != x.dear ||
			!strings.Contains(says, "ReplaceLost") {
			t.Error(x.dear, says)
		}
	}
	check(t, layout.DeclareDead(cat, on[0].Blade))
	l, err := layout.LoadLayout(cat)
	check(t, err)
	if p := l.Segments[at.Segment()].Placement; p.N != 1 || p.Replicas[0] != on[1] || l.Epoch != before.Epoch+1 ||
		l.Blades[on[0].Blade].State != layout.BladeDown {
		t.Errorf("epoch %d after %d, %+v", l.Epoch, before.Epoch, p)
	}
	if c := l.Coordinators; len(c) != 1 || c[0].ID != coord.ID || !c[0].Recovering || !c[0].Promoted {
		t.Errorf("coordinators %+v", c)
	}
	check(t, layout.DeclareDead(cat, on[0].Blade)) // it is down
	s, err = memory.Open(th.Plain(), f, cat, o)
	check(t, err)
	if _, err := s.NewCoordinator(); !errors.Is(err, memory.ErrGated) {
		t.Errorf("a coordinator before the others are decided: %v", err)
	}

	check(t, layout.DeclareDead(cat, on[1].Blade))
	s, err = memory.Open(th.Plain(), f, cat, o)
	check(t, err)
	if err := s.LostError(at); !errors.Is(err, layout.ErrLost) {
		t.Errorf("without any copy: %v", err)
	}
	rev := s.Layout().Epoch
	if err := layout.DeclareDead(cat, spare); !errors.Is(err, layout.ErrLost) {
		t.Errorf("the last blade: %v", err)
	}
	if l, err := layout.LoadLayout(cat); err != nil || l.Epoch != rev || l.Blades[spare].State != layout.BladeUp {
		t.Errorf("something has changed: %+v, %v", l, err)
	}
	check(t, s.SetCheckpoint(1))
	if err := layout.DeclareDead(cat, on[0].Blade); !errors.Is(err, layout.ErrLayout) {
		t.Errorf("one that has promised to survive a loss of power: %v", err)
	}
	check(t, th.Close())
}
