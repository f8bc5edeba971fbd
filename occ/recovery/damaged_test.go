package recovery_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/occ"
)

// second makes another table.
func (w *world) second(name string) *occ.Table {
	w.t.Helper()
	meta, err := w.space.CreateTable(name, []byte(`{"key":"bytes","value":"bytes","index":"race"}`))
	must(w.t, err)
	root, ix, err := race.Create(w.ctl.Plain(), w.space, meta.ID, race.Options{Groups: 16})
	must(w.t, err)
	must(w.t, w.space.SetTableRoot(meta.ID, root))
	return &occ.Table{ID: meta.ID, Name: name, Index: ix}
}

// spoil overwrites everything that the index of a table consists of, on all copies. What it
// returns brings it back.
func (w *world) spoil(t *occ.Table) (mended func()) {
	w.t.Helper()
	all, err := t.Index.(*race.Index).Extents(w.ctl.Plain())
	must(w.t, err)
	v := w.space.View()
	var was [][]byte
	at := func(i, k int) []byte {
		n := w.space.Extents()
		for _, x := range n {
			if x.Addr == all[i] {
				return w.f.Memory(v.At(all[i], k).Blade)[v.At(all[i], k).Off:][:x.Size]
			}
		}
		w.t.Fatalf("there is no extent at %v", all[i])
		return nil
	}
	for i := range all {
		for k := range v.Copies(all[i]) {
			p := at(i, k)
			was = append(was, slices.Clone(p))
			for j := range p {
				p[j] = 0xa5
			}
		}
	}
	return func() {
		n := 0
		for i := range all {
			for k := range v.Copies(all[i]) {
				copy(at(i, k), was[n])
				n++
			}
		}
	}
}

// TestReclaimBesideDamage: a session has deleted records of a table whose index is damaged. It
// reclaims those of other tables when space is short, and can be closed.
func TestReclaimBesideDamage(t *testing.T) {
	for _, s := range settings() {
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
			sound, spoilt := w.table, w.second("spoilt")
			ours, own := w.session()
			w.table = spoilt
			w.sure(ours, own, put("a", "1"))
			w.sure(ours, own, del("a"))
			w.table = sound
			w.sure(ours, own, put("b", "1"), put("c", "1"))
			w.sure(ours, own, del("b"))
			own.Coro().Sleep(10_000) // until its lock is released
			mended := w.spoil(spoilt)
			if n, err := ours.MakeRoom(own.Coro()); n != 1 || err != nil {
				t.Errorf("%d deleted records are reclaimed beside a damaged index: %v", n, err)
			}
			w.sure(ours, own, del("c"))
			own.Coro().Sleep(10_000)
			must(t, ours.Close())
			if w.space.Registered(ours.Coordinator()) {
				t.Error("a session that is closed is registered")
			}
			if n := w.deleted(sound); n > 0 {
				t.Errorf("%d records of the sound table are deleted, and their session is closed", n)
			}
			mended()
			w.check("closed")
		})
	}
}

// TestTombstonesOfClosed: a session that has taken the deleted records of others upon itself is
// closed, or dies, and cannot reclaim some of them: somebody else does, although the sessions
// whose they are live on.
func TestTombstonesOfClosed(t *testing.T) {
	for _, s := range settings() {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v dies=%v", s, dies), func(t *testing.T) {
				w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
				ours, own := w.session()
				busy, tx := w.session()
				late, _ := w.session()
				w.sure(ours, own, put("a", "1"), put("b", "1"))
				w.sure(ours, own, del("a"), del("b"))
				own.Coro().Sleep(10_000) // until its locks are released
				must(t, w.open(tx, put("a", "2")))
				if n, err := late.MakeRoom(late.Thread().Plain()); n != 1 || err != nil {
					t.Fatalf("%d deleted records are reclaimed: %v", n, err)
				}
				if dies {
					w.arm(0)
					late.Break(errors.New("dead"))
				}
				if err := late.Close(); (err != nil) != dies {
					t.Errorf("closed: %v", err)
				}
				if w.disarm(); dies {
					w.decideUntil(late.Coordinator(), -1)
				}
				_ = tx.Rollback()
				w.sure(busy, tx, put("c", "1")) // it may have to rejoin
				w.sure(ours, own, put("d", "1"))
				w.sweep()
				must(t, busy.Close())
				must(t, ours.Close())
				if n := w.deleted(w.table); n > 0 {
					t.Errorf("%d records are deleted, and all sessions closed", n)
				}
				w.check("closed")
			})
		}
	}
}

// deleted counts the deleted records to which slots of a table lead.
func (w *world) deleted(t *occ.Table) (n int) {
	w.t.Helper()
	was := w.table
	w.table = t
	defer func() { w.table = was }()
	w.blocks(w.ctl.Plain(), func(_ memory.Addr, line record.Image) {
		if line.Meta().State() == record.Absent {
			n++
		}
	})
	return n
}
