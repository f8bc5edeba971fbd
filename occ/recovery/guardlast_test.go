package recovery_test

import (
	"fmt"
	"strings"
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestFreedGuardLast: without OrderedLine, whoever makes a locked block free, by whichever way,
// does not release its lock by the WRITE that has the rest of the line, which could arrive behind
// it: a copy that is just being built would get a mixture, and count as full.
func TestFreedGuardLast(t *testing.T) {
	for name, free := range map[string]func(w *world, s *occ.Session, tx *occ.Tx){
		"abort": func(w *world, _ *occ.Session, tx *occ.Tx) {
			must(w.t, tx.Begin())
			i, err := tx.Stage(w.table, []byte("a"), true)
			must(w.t, err)
			must(w.t, tx.Insert(i, []byte("1")))
			_ = tx.Execute()
			_ = tx.Rollback()
		},
		"move": func(w *world, _ *occ.Session, tx *occ.Tx) {
			if w.do(tx, put("a", "1")) == nil {
				_ = w.do(tx, put("a", strings.Repeat("v", 300)))
			}
		},
		"reclaim": func(w *world, s *occ.Session, tx *occ.Tx) {
			if w.do(tx, put("a", "1")) == nil && w.do(tx, del("a")) == nil {
				tx.Coro().Sleep(10_000)
				_, _ = s.MakeRoom(tx.Coro())
			}
		},
	} {
		for _, s := range settings(t) {
			if s.caps.OrderedLine {
				continue
			}
			for _, again := range []bool{false, true} {
				for stop := -1; ; stop++ {
					what := fmt.Sprintf("%s, %v, stop %d, again %v", name, s, stop, again)
					died, frees := freedGuardLast(t, what, s, stop, again, free)
					if stop < 0 && frees == 0 {
						t.Errorf("%s: no block was made free", what)
					}
					if stop >= 0 && !died {
						break
					}
				}
			}
		}
	}
}

// freedGuardLast runs free, of a client who is to die after so many verbs, negative: not, and
// recovers him; again: who recovers him has the first WRITE of a guard fail behind a line that was
// made free, and begins again. It reports whether he has died, and how many locks were released
// with blocks that came free.
func freedGuardLast(t *testing.T, what string, s setting, stop int, again bool,
	free func(w *world, s *occ.Session, tx *occ.Tx)) (died bool, frees int) {
	w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
	victim, its := w.session()
	at := map[rdma.RemoteAddr]bool{} // lines that were made free but for their guards
	w.arrive = func(wr *rdma.WR, data []byte) {
		to := rdma.RemoteAddr{Blade: wr.Blade, Off: wr.Off &^ (record.LineSize - 1)}
		line := record.Image(w.f.Memory(to.Blade)[to.Off:][:record.LineSize])
		switch held := line.Guard().Held(); {
		case !held || !w.isPrimary(wr.Blade, wr.Off):
		case len(data) == record.LineSize && !record.Image(data).Guard().Held() &&
			record.Image(data).Meta().State() == record.Free:
			t.Errorf("%s: the line of a free block, and its guard, in one WRITE to %v", what, to)
		case len(data) == record.GuardOff && wr.Off == to.Off:
			at[to] = true
		case len(data) == 8 && wr.Off == to.Off+record.GuardOff && at[to]:
			frees++
		}
	}
	w.arm(stop)
	free(w, victim, its)
	if died = w.disarm(); died {
		if again {
			w.stop.pick = func(wr *rdma.WR) bool {
				to := rdma.RemoteAddr{Blade: wr.Blade, Off: wr.Off &^ (record.LineSize - 1)}
				return !w.stop.hit && wr.Op == rdma.OpWrite && wr.Off == to.Off+record.GuardOff && wr.Len == 8 && at[to]
			}
			o := w.eng.Recovery()
			if _, err := recovery.Recover(w.newThread().Plain(), o, victim.Coordinator()); err == nil {
				_, _ = recovery.Sweep(w.newThread().Plain(), o)
			}
			w.disarm()
		}
		w.recover(victim.Coordinator())
	} else {
		its.Coro().Sleep(10_000)
	}
	w.arrive = nil
	w.check(what)
	return died, frees
}

// isPrimary reports whether there are primaries of blocks of records at off of a blade.
func (w *world) isPrimary(b rdma.BladeID, off uint64) bool {
	l := w.space.Layout()
	for i := range l.Segments {
		g := &l.Segments[i]
		if g.Kind != layout.KindBlocks {
			continue
		}
		if at := w.space.View().At(layout.MakeAddr(layout.SegmentID(i), 0), 0); at.Blade == b &&
			off-at.Off < uint64(l.SegmentSize) {
			return true
		}
	}
	return false
}
