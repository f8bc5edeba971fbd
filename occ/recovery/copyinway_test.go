package recovery_test

import (
	"fmt"
	"testing"

	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
)

// TestReservedOnCopy: f = 2, a block that a client has reserved who has died is so on its primary
// alone, and has been copied with its lock to a copy that is being built, when the blade of the
// primary is lost. The next copy is free. A sweep frees the other one, too.
func TestReservedOnCopy(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups != 2 {
			continue
		}
		for _, alone := range []bool{false, true} {
			what := fmt.Sprintf("%v, alone: %v", s, alone)
			w := newWorldOn(t, 4, s, occ.Options{}, 64<<10)
			w.loaded(put("a", "1"))
			dying, _ := w.session()
			class, _ := record.ClassFor(1, 1)
			alloc, err := w.space.NewAllocator(dying.Thread())
			must(t, err)
			alloc.Serve(dying.Coordinator())
			block, err := alloc.Alloc(dying.Thread().Plain(), class)
			must(t, err)
			line := func(k int) record.Image {
				at := w.space.View().At(block, k)
				return record.Image(w.f.Memory(at.Blade)[at.Off:][:record.LineSize])
			}
			id := record.MakeTxID(dying.Coordinator(), 3)
			for _, k := range []int{0, 2} {
				line(k).Put(block, id+1, record.Absent, w.table.ID, class, id, []byte("k"), nil)
			}
			next := w.space.View().At(block, 1).Blade
			w.loseBlade(w.space.View().At(block, 0).Blade)
			if w.space.View().At(block, 0).Blade != next {
				t.Fatalf("%s: another copy is the primary", what)
			}
			again, tx := w.loaded(put("b", "1"))
			for n, due := 0, true; due; n++ {
				o := w.eng.Recovery()
				if o.Alone = alone; alone {
					o.By = 0
				}
				_, err := recovery.Sweep(w.ctl.Plain(), o)
				must(t, err)
				if n == 3 {
					t.Fatalf("%s: no sweep comes to its end", what)
				}
				_, due = w.space.Unswept()
			}
			for k := range w.space.View().Copies(block) {
				if line(k).Meta().State() != record.Free {
					t.Errorf("%s: copy %d of the block is in state %v", what, k, line(k).Meta().State())
				}
			}
			if alone {
				continue // sessions find it by its header
			}
			w.build()
			w.check(what)
			w.sure(again, tx, put("k", "2"))
			if got := w.values(again, tx, "a", "k"); got[0] != "1" || got[1] != "2" {
				t.Errorf("%s: %q", what, got)
			}
		}
	}
}
