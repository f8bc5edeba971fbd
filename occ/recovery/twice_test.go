package recovery_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
)

// TestSplitOverLostRecord: the primaries of records are zero, and their copies damaged, or there
// are none. Who reads them is told; a split comes to its end, also when a recovery has to finish
// it; and their slots stay, by which a check finds what is lost.
func TestSplitOverLostRecord(t *testing.T) {
	step := 210
	if testing.Short() {
		step = 630
	}
	for f := range 2 {
		for stop := -1; ; stop += step {
			if !splitOverLostRecord(t, f, stop) && stop >= 0 {
				break
			}
		}
	}
}

// splitOverLostRecord reports whether a client has died in the split, after so many verbs;
// negative: none is to.
func splitOverLostRecord(t *testing.T, f, stop int) (died bool) {
	w := newWorld(t, setting{occ.PolicyDefault, f, strong}, occ.Options{})
	ix := w.table.Index.(*race.Index)
	ix.SetVacant(recovery.Vacant(w.space)) // as package txn does
	ix.SetSpoilt(recovery.Spoilt(w.space))
	ours, own := w.session()
	const keys = 12
	key := func(i int) string { return fmt.Sprint("key ", i) }
	for i := range keys {
		w.sure(ours, own, put(key(i), "1"))
	}
	own.Coro().Sleep(10_000) // until its locks are released
	victim, dying := w.loaded(put("x", "1"))
	var copies [][]byte
	for i := range keys {
		for k, at := range w.copiesOf(key(i)) {
			p := w.f.Memory(at.Blade)[at.Off:][:record.LineSize]
			if k > 0 {
				p[record.KeyOff+4] ^= 1
			} else {
				copies = append(copies, p)
			}
		}
	}
	w.spoilt = true
	for _, p := range copies {
		clear(p)
	}
	try := func(o op) (err error) {
		for range 6 {
			if err = w.do(own, o); errors.Is(err, occ.ErrConflict) {
				if _, e := own.Unblock(); e != nil {
					return e
				}
				continue
			}
			break
		}
		return err
	}
	for i := range keys {
		if err := try(get(key(i))); stop < 0 && !errors.Is(err, layout.ErrCorrupt) {
			t.Fatalf("f=%d: who reads a record that is lost is told: %v", f, err)
		}
	}
	i := 0
	if stop >= 0 {
		w.arm(stop)
		for ; i < 1000 && !w.stop.hit && ix.Events().Splits == 0; i++ {
			_ = w.do(dying, put(fmt.Sprint("new ", i), "1"))
		}
		died = w.disarm()
	}
	if died {
		w.decideUntil(victim.Coordinator(), -1)
		_, err := recovery.Sweep(w.ctl.Plain(), w.eng.Recovery())
		if err != nil && !errors.Is(err, layout.ErrCorrupt) {
			t.Errorf("f=%d, stop %d: %v", f, stop, err)
		}
		w.sweep() // which finds nothing in its way
	} else {
		dying.Coro().Sleep(10_000)
		must(t, victim.Close())
	}
	for ; i < 1000 && ix.Events().Splits < 2; i++ {
		if err := try(put(fmt.Sprint("new ", i), "1")); err != nil && !errors.Is(err, layout.ErrCorrupt) {
			t.Fatalf("f=%d, stop %d: insert %d: %v", f, stop, i, err)
		}
	}
	if ix.Events().Splits < 2 {
		t.Errorf("f=%d, stop %d: there were %d splits", f, stop, ix.Events().Splits)
	}
	own.Coro().Sleep(10_000)
	must(t, ours.Close())
	if found := w.repair(); found < keys {
		t.Errorf("f=%d, stop %d: %d records are lost, and there are %d findings", f, stop, keys, found)
	}
	return died
}
