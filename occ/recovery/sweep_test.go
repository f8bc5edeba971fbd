package recovery_test

import (
	"fmt"
	"slices"
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
)

// TestSweepBesideInserts: while a sweep is on its way, step by step, others take blocks
// that it has seen free and use them, and free others. It gives none of these away, and
// what the dead had fetched is in the pool afterwards.
func TestSweepBesideInserts(t *testing.T) {
	for _, s := range settings(t) {
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{ReclaimAfter: 1})
			ours, own := w.session()
			victim, tx := w.session()
			w.sure(ours, own, put("a", "1"), put("b", long))
			w.sure(victim, tx, put("c", "2"), put("d", long))
			w.sure(victim, tx, del("c"), del("a"))
			must(t, w.do(own, put("e", "1")))
			w.decideUntil(victim.Coordinator(), -1)
			w.sure(ours, own, put("e", "2")) // it may have to rejoin: another sweep would be due

			by, _ := w.session()
			sweeper := recovery.NewSweeper(by.Recovery())
			var want []string
			var ks []string
			for i := 0; ; i++ {
				done, err := sweeper.Step(by.Thread().Plain())
				must(t, err)
				if done {
					break
				}
				key, gone := fmt.Sprintf("k%d", i), fmt.Sprintf("gone%d", i)
				w.sure(ours, own, put(key, "5"), put(gone, long))
				w.sure(ours, own, del(gone))
				must(t, ours.Maintain(ours.Thread().Plain()))
				ks, want = append(ks, key), append(want, "5")
			}
			if _, due := w.space.Unswept(); due {
				t.Error("the sweep has come to its end, and another is due")
			}
			if sweeper.Report.Strays == 0 {
				t.Errorf("the sweep has found %+v", sweeper.Report)
			}
			w.check("swept")
			if got := w.values(ours, own, ks...); !slices.Equal(got, want) {
				t.Errorf("%q", got)
			}
			for i := range 200 { // from the pool, as from the lists
				k := fmt.Sprintf("x%d", i)
				w.sure(ours, own, put(k, "6"))
				ks, want = append(ks, k), append(want, "6")
			}
			for i, k := range ks {
				if got := w.values(ours, own, k); got[0] != want[i] {
					t.Fatalf("%s is %q", k, got)
				}
			}
			w.check("used")
		})
	}
}

// TestSweepPassesOver: a sweep that meets a lock which somebody else resolves is not the last.
func TestSweepPassesOver(t *testing.T) {
	for _, s := range settings(t) {
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{})
			ours, own := w.session()
			w.sure(ours, own, put("a", "1"))
			victim, tx := w.session()
			w.try(victim, tx, func() error {
				if err := tx.Begin(); err != nil {
					return err
				}
				_, err := tx.Stage(w.table, []byte("a"), true)
				must(t, err)
				if err = tx.Execute(); err != nil {
					_ = tx.Rollback()
				}
				return err // nil: it has the lock, and no more is heard of it
			})
			w.decideUntil(victim.Coordinator(), -1)
			w.try(ours, own, func() error { return w.do(own, get("before")) }) // it may have to rejoin
			var at layout.Addr
			w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
				if string(line.Key()) == "a" {
					at = a
				}
			})
			r := w.space.BeginResolve(at, ours.Coordinator())
			if r == nil {
				t.Fatal("somebody resolves the lock")
			}
			o := w.eng.Recovery()
			_, err := recovery.Sweep(w.ctl.Plain(), o)
			must(t, err)
			if _, due := w.space.Unswept(); !due {
				t.Error("no sweep is due, and there is a lock")
			}
			r.End(false, 0)
			_, err = recovery.Sweep(w.ctl.Plain(), o)
			must(t, err)
			if _, due := w.space.Unswept(); due {
				t.Error("another sweep is due")
			}
			w.check("afterwards")
		})
	}
}

// TestSweepBesideResolution: somebody looks whose lock a block has that a dead client has left
// free, just when a sweep asks which blocks nobody has, or is about to free it on the copies on
// which it is not free. It is found by another sweep, which is due, and the others by this one.
func TestSweepBesideResolution(t *testing.T) {
	for _, half := range []bool{false, true} {
		for k, more := 0, true; more && !t.Failed(); k++ {
			w := newWorldOn(t, 4, setting{occ.PolicyDefault, 2, strong}, occ.Options{}, 64<<10)
			ours, own := w.session()
			w.sure(ours, own, put("kept", "1"))
			w.loseBlade(w.copiesOf("kept")[0].Blade)
			w.sweep()
			w.sure(ours, own, put("kept", "2"))
			victim, tx := w.session()
			ks := []string{"a", "b", "c"}
			w.sure(victim, tx, put("a", "1"), put("b", "1"), put("c", "1"))
			var at []layout.Addr
			w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
				if slices.Contains(ks, string(line.Key())) {
					at = append(at, a)
				}
			})
			slices.Sort(at)
			w.sure(victim, tx, del("a"), del("b"), del("c"))
			tx.Coro().Sleep(10_000)
			v := w.space.View()
			line := func(a layout.Addr) []byte {
				to := v.At(a, v.Copies(a)-1)
				return w.f.Memory(to.Blade)[to.Off:][:record.LineSize]
			}
			var was [][]byte
			for _, a := range at {
				was = append(was, slices.Clone(line(a)))
			}
			if n, err := victim.MakeRoom(victim.Thread().Plain()); n != 3 || err != nil {
				t.Fatal(n, err)
			}
			for i, a := range at {
				if half {
					copy(line(a), was[i])
				}
			}
			w.decideUntil(victim.Coordinator(), -1)
			s := recovery.NewSweeper(w.eng.Recovery())
			done := false
			for i := 0; i < k && !done; i++ {
				var err error
				done, err = s.Step(w.ctl.Plain())
				must(t, err)
			}
			more = !done
			r := w.space.BeginResolve(at[0], ours.Coordinator())
			for !done {
				var err error
				done, err = s.Step(w.ctl.Plain())
				must(t, err)
			}
			r.End(false, 0)
			for _, a := range at[1:] {
				if !slices.Contains(w.space.Spare(), a) {
					t.Errorf("half free: %v, resolved from step %d on: block %v is in no pool", half, k, a)
				}
			}
			if _, due := w.space.Unswept(); due {
				w.sweep()
			}
			w.check(fmt.Sprintf("half free: %v, resolved from step %d on", half, k))
		}
	}
}
