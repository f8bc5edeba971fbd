package memory_test

import (
	"errors"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
)

// TestDropTable: the states of a table, which last, and the name, which is free from the first step
// on.
func TestDropTable(t *testing.T) {
	b := newBed(t, 2, 4, 1)
	s, c := b.open()
	drop := func(id uint16) error { return s.ChangeTables(memory.TableChange{ID: id, Drop: true}) }
	first := must(s.CreateTable("t", []byte("old")))(t)
	_, err := s.CreateTable("t", []byte("old"))
	if err != nil { // without a root its creation goes on
		t.Fatal(err)
	}
	for i, change := range []func(uint16) error{drop, drop, s.ForgetTable} {
		if err := change(first.ID); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	for _, change := range []func(uint16) error{drop, s.ForgetTable} {
		for _, id := range []uint16{0, first.ID, 99} {
			if err := change(id); !errors.Is(err, memory.ErrNoTable) {
				t.Errorf("table %d: %v", id, err)
			}
		}
	}
	second := must(s.CreateTable("t", []byte("new")))(t)
	if second.ID == first.ID || string(second.Options) != "new" {
		t.Errorf("the new table is %+v", second)
	}
	if err := drop(second.ID); err != nil {
		t.Fatal(err)
	}
	// Changes of several tables are all there, or none.
	none := []memory.TableChange{{ID: second.ID, Options: []byte("other")}, {ID: first.ID, Drop: true}}
	if err := s.ChangeTables(none...); !errors.Is(err, memory.ErrNoTable) ||
		string(must(s.Tables())(t)[1].Options) != "new" {
		t.Errorf("a change of a table that is there, and of one that is not: %v", err)
	}
	third := must(s.CreateTable("t", nil))(t)
	if ts := must(s.Tables())(t); len(ts) != 3 || ts[0].State != layout.TableDropped ||
		ts[1].State != layout.TableDropping || ts[2].State != layout.TableLive || ts[2].ID != third.ID {
		t.Errorf("%+v", ts)
	}
	check(t, s.Close(c))
	s, _ = b.open()
	if ts := must(s.Tables())(t); len(ts) != 3 || ts[0].State != layout.TableDropped ||
		ts[1].State != layout.TableDropping || ts[2].State != layout.TableLive {
		t.Errorf("opened again: %+v", ts)
	}
}
