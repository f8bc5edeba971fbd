package recovery_test

import (
	"fmt"
	"testing"

	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
)

// TestPlaceholderOnCopy: f = 2, the placeholder of a client who has died is on its primary alone,
// and has been copied with its lock to a copy that is being built, when the blade of the primary is
// lost. The next one is free, and a slot leads there. A sweep empties it and frees the copy, and a
// split that comes before it does not wait.
func TestPlaceholderOnCopy(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups != 2 {
			continue
		}
		for _, split := range []bool{false, true} {
			what := fmt.Sprintf("%v, split: %v", s, split)
			w := newWorldOn(t, 4, s, occ.Options{}, 64<<10)
			ix := w.table.Index.(*race.Index)
			ix.SetVacant(recovery.Vacant(w.space)) // as package txn does
			ix.SetSpoilt(recovery.Spoilt(w.space))
			w.loaded(put("a", "1"))
			_, dying := w.session()
			must(t, dying.Begin())
			i, err := dying.Stage(w.table, []byte("k"), true)
			must(t, err)
			must(t, dying.Insert(i, []byte("1")))
			must(t, dying.Execute())
			at := w.copiesOf("k")
			line := func(k int) record.Image {
				return record.Image(w.f.Memory(at[k].Blade)[at[k].Off:][:record.LineSize])
			}
			if line(0).Meta().State() != record.Absent || line(1).Meta().State() != record.Free {
				t.Fatalf("%s: the placeholder is not on the primary alone", what)
			}
			copy(line(2), line(0))
			var block layout.Addr
			w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
				if string(line.Key()) == "k" {
					block = a
				}
			})
			w.loseBlade(at[0].Blade)
			if w.space.View().At(block, 0).Blade != at[1].Blade {
				t.Fatalf("%s: another copy is the primary", what)
			}
			again, tx := w.session()
			for i := 0; split && ix.Events().Splits == 0; i++ {
				w.sure(again, tx, put(fmt.Sprint("new ", i), "1"))
			}
			tx.Coro().Sleep(10_000)
			for n, due := 0, true; due; n++ {
				if w.sweep(); n == 3 {
					t.Fatalf("%s: no sweep comes to its end", what)
				}
				_, due = w.space.Unswept()
			}
			if w.slotsTo(block) > 0 {
				t.Errorf("%s: a slot leads to block %v", what, block)
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
