package memory_test

import (
	"errors"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
)

// TestTableGetsNodes: a table whose index is in extents gets one of nodes in one step of the
// catalog, once, by the process that has the right to mend the index, and only to a block.
func TestTableGetsNodes(t *testing.T) {
	b := newBed(t, 2, 4, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	block := must(a.Alloc(c, 0))(t)
	x := must(s.CreateTable("t", []byte("options")))(t)
	change := func(id uint16, root layout.Addr, nodes layout.Class) error {
		return s.ChangeTables(memory.TableChange{ID: id, Root: root, Nodes: nodes})
	}
	if err := change(x.ID, block, 4); !errors.Is(err, memory.ErrRevision) {
		t.Errorf("a table without an index: %v", err)
	}
	extent := must(s.AllocExtent(c, 256))(t)
	check(t, s.SetTableRoot(x.ID, extent))
	for what, err := range map[string]error{
		"no root":           change(x.ID, 0, 4),
		"an extent":         change(x.ID, extent, 4),
		"no class":          change(x.ID, block, layout.NumClasses),
		"root but no nodes": change(x.ID, block, 0),
	} {
		if err == nil {
			t.Errorf("%s: the table has it", what)
		}
	}
	if got := must(s.Tables())(t)[0]; got.Root != extent || got.InBlocks() {
		t.Fatalf("%+v", got)
	}
	check(t, change(x.ID, block, 4))
	if err := change(x.ID, block, 4); !errors.Is(err, memory.ErrRevision) {
		t.Errorf("twice: %v", err)
	}
	dropped := must(s.CreateTable("d", nil))(t)
	check(t, s.SetTableRoot(dropped.ID, extent))
	check(t, s.ChangeTables(memory.TableChange{ID: dropped.ID, Drop: true}))
	if err := change(dropped.ID, block, 4); !errors.Is(err, memory.ErrRevision) {
		t.Errorf("a table that is being dropped: %v", err)
	}
	check(t, s.Close(c))
	s, _ = b.open()
	if got := must(s.Tables())(t)[0]; got.Root != block || got.Nodes != 4 || got.Ordered() || got.Name != "t" ||
		string(got.Options) != "options" || got.State != layout.TableLive {
		t.Errorf("%+v", got)
	}
}
