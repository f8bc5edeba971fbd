package memory_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"txnode/memory"
	"txnode/rdma"
)

func TestLogAreasAreCleared(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	first := must(s.NewCoordinator())(t)
	dirty := bytes.Repeat([]byte{0xee}, 1000)
	scribble := func(l memory.LogArea, off uint64) {
		l.Addr.Off += off
		b.poke(l.Addr.Blade, l.Addr.Off, dirty)
	}
	scribble(first.Logs[0], 0)
	scribble(first.Logs[1], testLog-1000)
	other := must(s.NewCoordinator())(t)
	scribble(other.Logs[0], 0)
	check(t, s.CloseCoordinatorOn(c, first.ID))
	again := must(s.NewCoordinator())(t)
	if again.ID == first.ID || again.Logs[0].Addr != first.Logs[0].Addr || again.Logs[1].Addr != first.Logs[1].Addr {
		t.Errorf("areas %+v are not used again: %+v", first, again)
	}
	for _, l := range again.Logs {
		if l.Size != testLog || !isZero(read(t, c, l.Addr, int(l.Size))) {
			t.Errorf("log area at %v is not clear", l.Addr)
		}
	}
	if !bytes.Equal(read(t, c, other.Logs[0].Addr, len(dirty)), dirty) {
		t.Error("another coordinator's log is gone")
	}
}

func TestCoordinatorsSurvive(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	var want []memory.Coordinator
	for range 7 { // more than a segment has areas
		want = append(want, must(s.NewCoordinator())(t))
	}
	seen := map[rdma.RemoteAddr]bool{}
	for _, x := range want {
		for blade, l := range x.Logs {
			if int(l.Addr.Blade) != blade || seen[l.Addr] {
				t.Errorf("coordinator %d: log of blade %d at %v", x.ID, blade, l.Addr)
			}
			seen[l.Addr] = true
		}
	}
	check(t, s.CloseCoordinator(want[2].ID))
	if err := s.CloseCoordinator(want[2].ID); !errors.Is(err, memory.ErrNoCoordinator) {
		t.Errorf("closed twice: %v", err)
	}
	if err := s.CloseCoordinator(99); !errors.Is(err, memory.ErrNoCoordinator) {
		t.Errorf("never opened: %v", err)
	}
	want = slices.Delete(want, 2, 3)
	check(t, s.Close(c))
	s, _ = b.open()
	got := must(s.Coordinators())(t)
	if len(got) != len(want) {
		t.Fatalf("%d coordinators", len(got))
	}
	for i := range got {
		if got[i].ID != want[i].ID || !slices.Equal(got[i].Logs, want[i].Logs) {
			t.Errorf("%+v\n%+v", got[i], want[i])
		}
	}
	if next := must(s.NewCoordinator())(t); next.ID != 8 {
		t.Errorf("the next coordinator is %d", next.ID)
	}
}

func TestCoordinatorNumbersEnd(t *testing.T) {
	b := newBed(t, 1, 4, 0)
	s, _ := b.open()
	s.SetNextCoordinator(memory.MaxCoordinators - 1)
	last := must(s.NewCoordinator())(t)
	if last.ID != memory.MaxCoordinators-1 {
		t.Errorf("the last is %d", last.ID)
	}
	check(t, s.CloseCoordinator(last.ID))
	if _, err := s.NewCoordinator(); !errors.Is(err, memory.ErrExhausted) {
		t.Errorf("%v", err)
	}
}

// TestCloseCoordinatorFails: when the areas cannot be cleared, the coordinator
// stays registered.
func TestCloseCoordinatorFails(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, _ := b.open()
	x := must(s.NewCoordinator())(t)
	b.fabric.stop = &stop{left: 1}
	if err := s.CloseCoordinator(x.ID); err == nil {
		t.Error("closed without clearing")
	}
	b.fabric.stop = nil
	if l := must(s.Coordinators())(t); len(l) != 1 {
		t.Errorf("%+v", l)
	}
	check(t, s.CloseCoordinator(x.ID))
}

// TestCloseOfDead: a coordinator that is closed when it has just been declared dead keeps its
// logs, which somebody reads, and its areas, which he will clear.
func TestCloseOfDead(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	x := must(s.NewCoordinator())(t)
	record := bytes.Repeat([]byte{0xee}, 64)
	b.poke(x.Logs[0].Addr.Blade, x.Logs[0].Addr.Off, record)
	claim := must(s.Claim(memory.ClaimOptions{}, x.ID))(t)
	if err := s.CloseCoordinatorOn(c, x.ID); !errors.Is(err, memory.ErrNoCoordinator) {
		t.Errorf("one that was declared dead is closed: %v", err)
	}
	at := x.Logs[0].Addr
	at.Key = s.View().Key(at.Blade)
	if !bytes.Equal(read(t, c, at, len(record)), record) {
		t.Error("its log is gone")
	}
	if y := must(s.NewCoordinator())(t); y.Logs[0].Addr.Off == at.Off && y.Logs[0].Addr.Blade == at.Blade {
		t.Error("somebody else has its log area")
	}
	check(t, claim.Forget())
	if err := s.CloseCoordinatorOn(c, x.ID); !errors.Is(err, memory.ErrNoCoordinator) {
		t.Errorf("it was recovered: %v", err)
	}
}
