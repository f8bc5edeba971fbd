package memory_test

import (
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
)

// TestFreesGrow: the number of a freeing is larger than all before, also than those of
// whoever had the database open before, once a coordinator is registered.
func TestFreesGrow(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	last := uint64(0)
	var block layout.Addr
	grows := func(s *memory.Space) {
		t.Helper()
		for range 3 {
			before := s.Frees()
			if n := s.CountFree(block); n <= last || n <= before || n != s.Frees() {
				t.Fatalf("number %#x, after %#x", n, last)
			}
			last = s.Frees()
		}
	}
	for range 3 {
		s, c := b.open()
		block = must(s.AllocExtent(c, 100))(t)
		id := must(s.NewCoordinator())(t).ID
		if s.Frees() <= last {
			t.Fatalf("coordinator %d: log records would say %#x, and blocks were freed at %#x before",
				id, s.Frees(), last)
		}
		grows(s)
		for range 100 {
			s.CountFree(block)
		}
		id = must(s.NewCoordinator())(t).ID
		last = s.Frees() - 1
		grows(s)
		if last>>memory.FreesShift != uint64(id)+1 {
			t.Errorf("number %#x when coordinator %d was the last", last, id)
		}
		check(t, s.Close(c))
	}
}
