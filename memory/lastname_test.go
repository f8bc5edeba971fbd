package memory_test

import (
	"slices"
	"testing"

	"txnode/memory"
)

// TestOldNameExpires: the registration of a process is ended while it has coordinators, and the
// process that has done that goes before it recovers them. The process registers anew, and
// nobody stands for what it had under its old name: it recovers these coordinators itself,
// though their sessions live.
func TestOldNameExpires(t *testing.T) {
	b := newSharedBed(t, 2, 4, 1)
	b.fabric.clock = new(int64)
	far, _ := b.join(1000)
	s, _ := b.join(10)
	id := must(s.NewCoordinator())(t).ID
	was := s.Process()
	if s.Lease(id, 5) != memory.LeaseLive {
		t.Fatal("the coordinator does not live")
	}
	check(t, far.Follow())
	*b.fabric.clock = 11
	if n := must(far.TakeOver(11))(t); n != 1 {
		t.Fatalf("%d registrations were ended", n)
	}
	check(t, s.Follow())
	if s.Recoverer() == was {
		t.Fatal("it has its old name still")
	}
	young := must(s.NewCoordinator())(t).ID
	if got := s.Expired(12); !slices.Contains(got, id) || slices.Contains(got, young) {
		t.Errorf("expired are %v; the coordinator of the old name is %d, that of the new one %d", got, id, young)
	}
}
