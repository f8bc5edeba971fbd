package recovery_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
)

// TestSweepBesideDamage: the index of a table is damaged. A sweep beside others frees what the
// dead have left in the other tables, and what they had fetched; it leaves what is linked in the
// damaged one, and gives nobody a free block to which a slot of it may lead since a blade was
// lost. When the index is repaired, the next sweep frees the rest.
func TestSweepBesideDamage(t *testing.T) {
	for _, s := range settings(t) {
		for _, lost := range []bool{false, true} {
			if lost && s.backups == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%v lost=%v", s, lost), func(t *testing.T) {
				w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
				sound := w.table
				meta, err := w.space.CreateTable("spoilt", []byte(`{"key":"bytes","value":"bytes","index":"race"}`))
				must(t, err)
				root, ix, err := race.Create(w.ctl.Plain(), w.space, meta.ID, race.Options{Groups: 16})
				must(t, err)
				must(t, w.space.SetTableRoot(meta.ID, root))
				spoilt := &occ.Table{ID: meta.ID, Name: "spoilt", Index: ix}

				ours, own := w.session()
				w.sure(ours, own, put("kept", "1"))
				victim, tx := w.session()
				w.sure(victim, tx, put("a", "1"), put("b", long))
				w.sure(victim, tx, del("a"), del("b"))
				w.table = spoilt
				w.sure(ours, own, put("hollow", long), put("value", "1"))
				w.sure(victim, tx, put("deleted", long))
				w.sure(victim, tx, del("deleted"))
				victim.Thread().Plain().Sleep(10_000)
				if lost {
					w.loseBlade(2)
					w.sweep()
					// As if its placeholder had been on that blade, and its client had died since.
					w.zero(w.ctl.Plain(), "hollow", 2)
				}
				var linked []layout.Addr
				w.blocks(w.ctl.Plain(), func(a layout.Addr, _ record.Image) { linked = append(linked, a) })
				w.table = sound
				if !lost {
					w.decideUntil(victim.Coordinator(), -1)
				}
				w.sure(ours, own, put("kept", "2")) // it may have to rejoin
				if lost {
					w.sure(victim, tx, put("c", "1")) // another coordinator by now
					w.sure(victim, tx, del("c"))
					victim.Thread().Plain().Sleep(10_000)
					w.decideUntil(victim.Coordinator(), -1)
					w.sure(ours, own, put("kept", "3"))
				}

				v := w.space.View()
				var was [][]byte
				for i := range v.Copies(root) {
					p := w.f.Memory(v.At(root, i).Blade)[v.At(root, i).Off:][:record.LineSize]
					was = append(was, slices.Clone(p))
					copy(p, "not the root of an index")
				}
				rep, err := recovery.Sweep(w.ctl.Plain(), w.eng.Recovery())
				if !errors.Is(err, layout.ErrCorrupt) || rep.Damage == nil {
					t.Errorf("the sweep does not say that an index is damaged: %v", err)
				}
				if rep.Freed == 0 || (rep.Strays > 0) == lost {
					t.Errorf("the sweep has found %+v", rep)
				}
				if _, due := w.space.Unswept(); !due {
					t.Error("no other sweep is due")
				}
				w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
					if line.Meta().State() == record.Absent {
						t.Errorf("block %v of a sound table is a deleted record still", a)
					}
				})
				for _, a := range w.space.Spare() {
					if slices.Contains(linked, a) {
						t.Errorf("block %v is in the pool, and a slot of the damaged index leads there", a)
					}
				}
				for i := range 200 {
					w.sure(ours, own, put(fmt.Sprint("k", i), long))
				}

				for i, p := range was {
					copy(w.f.Memory(v.At(root, i).Blade)[v.At(root, i).Off:], p)
				}
				if lost {
					_, err := w.space.Build()
					must(t, err)
				}
				w.sweep()
				w.table = spoilt
				if got := w.values(ours, own, "value", "deleted"); got[0] != "1" || got[1] != "" {
					t.Errorf("%q", got)
				}
				w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
					if line.Meta().State() != record.Live {
						t.Errorf("mended: a slot leads to block %v, which is %v", a, line.Meta().State())
					}
				})
				w.table = sound
				w.check("mended")
			})
		}
	}
}
