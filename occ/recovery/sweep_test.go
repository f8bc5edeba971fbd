package recovery_test

import (
	"fmt"
	"slices"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestSweepBesideInserts: while a sweep is on its way, step by step, others take blocks
// that it has seen free and use them, and free others. It gives none of these away, and
// what the dead had is in the pool afterwards: what they had fetched, and the blocks of
// deleted records that nobody else reclaims.
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
			if sweeper.Report.Strays == 0 || sweeper.Report.Freed < 2 {
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

// TestPruneSlots: a slot leads to a block that is free, as when its insert had its
// placeholder on a blade that was lost, and has died. Nobody can read or insert the key
// until the slot is emptied; a block of which one copy is not free is left alone. A sweep before it
// says which blocks need not be read.
func TestPruneSlots(t *testing.T) {
	for _, s := range replicated(t) {
		for _, sweeps := range []bool{false, true} {
			w := newWorld(t, s, occ.Options{})
			se, _ := w.loaded(put("a", "1"), put("b", "1"), put("c", "1"))
			c := se.Thread().Plain()
			w.zero(c, "a", s.backups+1)
			o := w.eng.Recovery()
			var swept recovery.SweepReport
			if sweeps {
				o.Alone = true
				var err error
				swept, err = recovery.Sweep(w.ctl.Plain(), o)
				must(t, err)
			} else {
				w.zero(c, "b", s.backups)
			}
			n, err := recovery.PruneSlots(w.ctl.Plain(), o, swept)
			must(t, err)
			if n != 1 {
				t.Errorf("%v, swept %v: %d slots were emptied", s, sweeps, n)
			}
			fresh, other := w.session()
			w.sure(fresh, other, put("a", "2"))
			if got := w.values(fresh, other, "a", "c"); !slices.Equal(got, []string{"2", "1"}) {
				t.Errorf("%v, swept %v: %q", s, sweeps, got)
			}
		}
	}
}

// TestScouringReadsNoTakenBlocks: after the loss of a blade a sweep looks for slots that lead to
// free blocks. Of the blocks that it has seen taken before it reads none again, so it costs no
// READ for each record.
func TestScouringReadsNoTakenBlocks(t *testing.T) {
	for _, s := range replicated(t) {
		w := newWorld(t, s, occ.Options{})
		ours, own := w.session()
		const n = 60
		for i := range n {
			w.sure(ours, own, put(fmt.Sprint("key", i), "1"))
		}
		w.loseBlade(2)
		if !w.space.Dangling() {
			t.Fatal("nothing is hollow")
		}
		at := map[rdma.RemoteAddr]bool{}
		w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
			g := w.space.View().At(a, 0)
			g.Key = 0
			at[g] = true
		})
		reads := 0
		w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool {
			if wr.Op == rdma.OpRead && at[rdma.RemoteAddr{Blade: wr.Blade, Off: wr.Off}] {
				reads++
			}
			return false
		}}
		w.sweep()
		w.disarm()
		if len(at) < n || reads > n/4 {
			t.Errorf("%v: %d READs of %d records", s, reads, len(at))
		}
	}
}

// TestVacateBesideTransactions: the same, while others are at work: who meets the slot
// empties it. Nobody does while transactions are undecided that may have lost something with a
// blade, which a recovery would put into that very block.
func TestVacateBesideTransactions(t *testing.T) {
	for _, s := range replicated(t) {
		w := newWorld(t, s, occ.Options{})
		se, _ := w.loaded(put("a", "1"), put("b", "1"), put("c", "1"))
		c := se.Thread().Plain()
		w.zero(c, "a", s.backups+1)
		w.zero(c, "b", s.backups+1)
		ours, own := w.session()
		w.sure(ours, own, put("a", "2"))
		if got := w.values(ours, own, "a", "c"); !slices.Equal(got, []string{"2", "1"}) {
			t.Errorf("%v: %q", s, got)
		}
		var hollow layout.Addr
		w.blocks(c, func(a layout.Addr, line record.Image) {
			if line.Meta().State() == record.Free {
				hollow = a
			}
		})
		o := w.eng.Recovery()
		cs, err := w.space.Coordinators()
		must(t, err)
		var ids []uint32
		for _, x := range cs {
			ids = append(ids, x.ID)
		}
		claim, err := w.space.Claim(memory.ClaimOptions{Change: func(*layout.Layout) error { return nil }}, ids...)
		must(t, err)
		must(t, recovery.Reconnect(w.ctl.Plain(), w.space))
		if done, err := recovery.Vacate(w.ctl.Plain(), o, w.table.ID, []byte("b"), hollow); done || err != nil {
			t.Errorf("%v: a slot was emptied while transactions are undecided: %v", s, err)
		}
		var rep recovery.Report
		must(t, recovery.Run(w.ctl.Plain(), o, claim, &rep))
		// After the loss of a blade a sweep looks for such slots.
		fresh, other := w.session()
		w.sure(fresh, other, put("d", "1"))
		other.Coro().Sleep(10_000)
		w.zero(fresh.Thread().Plain(), "d", s.backups+1)
		if swept, err := recovery.Sweep(w.ctl.Plain(), o); err != nil || swept.Slots == 0 {
			t.Errorf("%v: a sweep has emptied %d slots: %v", s, swept.Slots, err)
		}
		w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
			if line.Meta().State() == record.Free {
				t.Errorf("%v: a slot leads to the free block %v", s, a)
			}
		})
		if s.policy == occ.PolicyFORD {
			continue // whose undo log takes the insert back
		}
		if got := w.values(fresh, other, "a", "b", "c"); !slices.Equal(got, []string{"2", "1", "1"}) {
			t.Errorf("%v: %q", s, got)
		}
		w.check(s.String())
	}
}

// TestVacateLockOfDead: a slot leads to a free block on which somebody has left the lock of a
// READ, and has died. Nobody has that block: the slot is emptied, so that a split of its sub-table
// can be finished, which comes before locks are resolved. As long as he is alive, it is not.
func TestVacateLockOfDead(t *testing.T) {
	for _, s := range replicated(t) {
		w := newWorld(t, s, occ.Options{})
		se, _ := w.loaded(put("a", "1"), put("b", "1"))
		c := se.Thread().Plain()
		var hollow layout.Addr
		w.blocks(c, func(a layout.Addr, line record.Image) {
			if string(line.Key()) == "a" {
				hollow = a
			}
		})
		w.zero(c, "a", s.backups+1)
		dead, _ := w.session()
		g := w.space.View().At(hollow, 0)
		g.Off += record.GuardOff
		var b rdma.Batch
		b.CAS(g, 0, uint64(record.HeldBy(record.MakeTxID(dead.Coordinator(), 3))))
		must(t, c.Do(&b))
		if b.Result(0) != 0 {
			t.Fatalf("%#x", b.Result(0))
		}
		vacated := func() bool {
			done, err := recovery.Vacate(w.ctl.Plain(), w.eng.Recovery(), w.table.ID, []byte("a"), hollow)
			must(t, err)
			return done
		}
		if vacated() {
			t.Errorf("%v: somebody alive has the lock", s)
		}
		must(t, dead.Close())
		if !vacated() {
			t.Errorf("%v: the slot of block %v is not emptied", s, hollow)
		}
		w.sweep()
		w.check(s.String())
	}
}

// slotsTo is how many slots lead to a block.
func (w *world) slotsTo(a layout.Addr) (n int) {
	w.t.Helper()
	must(w.t, w.table.Index.(*race.Index).Walk(w.ctl.Plain(), func(_ layout.Addr, x index.Candidate) error {
		if x.Addr == a {
			n++
		}
		return nil
	}))
	return n
}

// hollow makes the slot of a key of the only session lead to a free block, as when a blade is
// lost, so that a sweep looks for such slots.
func (w *world) hollow(se *occ.Session, key string) (block layout.Addr) {
	w.t.Helper()
	claim, err := w.space.Claim(memory.ClaimOptions{Change: func(*layout.Layout) error { return nil }},
		se.Coordinator())
	must(w.t, err)
	must(w.t, recovery.Reconnect(w.ctl.Plain(), w.space))
	var rep recovery.Report
	must(w.t, recovery.Run(w.ctl.Plain(), w.eng.Recovery(), claim, &rep))
	w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
		if string(line.Key()) == key {
			block = a
		}
	})
	w.zero(w.ctl.Plain(), key, w.space.Backups()+1)
	return block
}

// TestSweepBesideLookup: a slot leads to a free block, which somebody who is looking for the key
// locks, as what he reads, and unlocks again, between any two steps of a sweep. The sweep does
// not give the block to others while the slot is there.
func TestSweepBesideLookup(t *testing.T) {
	for _, s := range replicated(t) {
		t.Run(s.String(), func(t *testing.T) {
			for from, steps := 0, 1; from < steps; from++ {
				w := newWorld(t, s, occ.Options{})
				gone, tx := w.session()
				w.sure(gone, tx, put("a", "1"), put("b", "1"))
				hollow := w.hollow(gone, "a")
				reader, own := w.session()
				g := w.space.View().At(hollow, 0)
				g.Off += record.GuardOff
				lock := func(old, to record.Guard) {
					var b rdma.Batch
					b.CAS(g, uint64(old), uint64(to))
					must(t, reader.Thread().Plain().Do(&b))
				}
				sweeper := recovery.NewSweeper(w.eng.Recovery())
				held := record.HeldBy(record.MakeTxID(reader.Coordinator(), 1<<20))
				done := false
				for n := 0; !done; n++ {
					if n == from {
						lock(0, held)
					}
					var err error
					done, err = sweeper.Step(w.ctl.Plain())
					must(t, err)
					if n == from {
						lock(held, 0)
					}
					steps = max(steps, n+1)
				}
				what := fmt.Sprintf("locked in step %d", from)
				if w.slotsTo(hollow) > 0 && slices.Contains(w.space.Spare(), hollow) {
					t.Errorf("%s: block %v is given to others, and a slot leads there", what, hollow)
				}
				for i := range 100 {
					w.sure(reader, own, put(fmt.Sprint("k", i), "1"))
				}
				if _, due := w.space.Unswept(); due {
					w.sweep()
				}
				w.check(what)
				if t.Failed() {
					break
				}
			}
		})
	}
}

// TestSweepBesideVacate: a slot leads to a free block, and somebody who empties it is late
// with any of his verbs, while a sweep comes by, which gives free blocks to others. It does
// not give that one while the slot is there.
func TestSweepBesideVacate(t *testing.T) {
	for _, s := range replicated(t) {
		t.Run(s.String(), func(t *testing.T) {
			for n := 0; ; n++ {
				w := newWorld(t, s, occ.Options{})
				gone, tx := w.session()
				w.sure(gone, tx, put("a", "1"), put("b", "1"))
				hollow := w.hollow(gone, "a")
				late, _ := w.session()
				w.arm(n)
				done, err := recovery.Vacate(late.Thread().Plain(), late.Recovery(), w.table.ID, []byte("a"), hollow)
				stopped := w.disarm()
				if !stopped && (err != nil || !done) {
					t.Fatal(done, err)
				}
				_, err = recovery.Sweep(w.ctl.Plain(), w.eng.Recovery())
				must(t, err)
				what := fmt.Sprintf("late with verb %d", n)
				slots := w.slotsTo(hollow)
				if slots > 0 && slices.Contains(w.space.Spare(), hollow) {
					t.Errorf("%s: block %v is given to others, and a slot leads there", what, hollow)
				}
				if _, due := w.space.Unswept(); slots > 0 && !due {
					t.Errorf("%s: no sweep is due, and a slot leads to a free block", what)
				}
				ours, own := w.session()
				for i := range 100 {
					w.sure(ours, own, put(fmt.Sprint("k", i), "1"))
				}
				w.decideUntil(late.Coordinator(), -1)
				w.try(ours, own, func() error { return w.do(own, get("b")) })
				w.sweep()
				w.check(what)
				if !stopped || t.Failed() {
					break
				}
			}
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
			w.loseBlade(w.copiesOf("kept")[0].Blade) // the slots are looked at, too, from now on
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
