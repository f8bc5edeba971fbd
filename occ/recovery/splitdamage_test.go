package recovery_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
)

// TestSplitOverDamage: records are damaged on their primaries, and then the sub-table is split
// whose slots lead to them. The split comes to its end, also when a recovery has to finish it, and
// when the records are repaired from the copies, they are found.
func TestSplitOverDamage(t *testing.T) {
	// what is tried of others is like one of these
	stops := map[string]int{"free": byRun(100, 50, 200), "key": byRun(220, 110, 330)}
	for name, damage := range map[string]func(p []byte){
		"free":  unlive,
		"zero":  func(p []byte) { clear(p[:record.LineSize]) },
		"key":   func(p []byte) { p[record.KeyOff+4] ^= 1 },
		"table": func(p []byte) { p[8+7] ^= 1 },
		"junk": func(p []byte) {
			for i := range record.LineSize {
				p[i] ^= 0xa5
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fill := splitOverDamage(t, nil, -1, 1000)
			splitOverDamage(t, damage, -1, fill)
			for stop := 10; stops[name] > 0 && splitOverDamage(t, damage, stop, fill) >= 0; stop += stops[name] {
			}
		})
	}
}

// splitOverDamage is TestSplitOverDamage of a split whose client dies after so many verbs,
// negative: not. The insert with the number fill splits the sub-table; without damage, the first
// that does is returned, and else -1 if nobody has died.
func splitOverDamage(t *testing.T, damage func(p []byte), stop, fill int) int {
	w := newWorld(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{})
	ix := w.table.Index.(*race.Index)
	ix.SetVacant(recovery.Vacant(w.space)) // as package txn does
	ours, own := w.session()
	const keys = 12
	key := func(i int) string { return fmt.Sprint("key ", i) }
	value := func(i int) string { return strings.Repeat("v", i*20) + "1" }
	var all, values []string
	for i := range keys {
		all, values = append(all, key(i)), append(values, value(i))
		w.sure(ours, own, put(key(i), value(i)))
	}
	victim, dying := w.loaded(put("x", "1"))
	insert := func(i int) {
		var err error
		for range 4 {
			if err = w.do(own, put(fmt.Sprint("new ", i), "1")); !errors.Is(err, occ.ErrConflict) {
				break
			}
			_, _ = own.Unblock()
			own.Coro().Sleep(3000)
		}
		if err != nil {
			t.Errorf("stop %d: insert %d: %v", stop, i, err)
		}
	}
	for i := range fill {
		if insert(i); ix.Events().Splits > 0 {
			return i
		}
	}
	own.Coro().Sleep(10_000) // until its locks are released
	var blocks [][]byte
	for i := range keys {
		blocks = append(blocks, w.blockOf(key(i)))
	}
	w.spoilt = true
	for _, p := range blocks {
		damage(p)
	}
	died := false
	if stop >= 0 {
		w.arm(stop)
		_ = w.do(dying, put(fmt.Sprint("new ", fill), "1"))
		if died = w.disarm(); died {
			w.decideUntil(victim.Coordinator(), -1)
			w.sweep()
		}
	}
	if !died {
		dying.Coro().Sleep(10_000)
		must(t, victim.Close())
	}
	for i := range 30 {
		insert(fill + i)
	}
	if ix.Events().Splits == 0 && !died {
		t.Errorf("stop %d: there was no split", stop)
	}
	own.Coro().Sleep(10_000)
	must(t, ours.Close())
	w.repair()
	w.mended(fmt.Sprintf("stop %d, repaired", stop), all, values)
	if stop >= 0 && !died {
		return -1
	}
	return 0
}

// TestDamagedIsNotVacant: a bit of a record is damaged, on all copies or where there are none,
// so that it says that its block is free. Nobody empties its slot: when the bit is as it was,
// the record is there.
func TestDamagedIsNotVacant(t *testing.T) {
	for f := range 2 {
		damagedIsNotVacant(t, f)
	}
}

func damagedIsNotVacant(t *testing.T, f int) {
	w := newWorld(t, setting{occ.PolicyDefault, f, strong}, occ.Options{})
	w.table.Index.(*race.Index).SetVacant(recovery.Vacant(w.space)) // as package txn does
	ours, _ := w.loaded(put("x", "1"), put("y", "1"))
	must(t, ours.Close())
	ours, own := w.session()
	victim, _ := w.loaded(put("z", "1"))
	copies := w.copiesOf("x")
	turn := func() {
		for _, at := range copies {
			unlive(w.f.Memory(at.Blade)[at.Off:])
		}
	}
	w.spoilt = true
	turn()
	told := false
	for range 5 {
		if _, err := w.value(own, "x"); errors.Is(err, occ.ErrConflict) {
			_, err := own.Unblock()
			told = told || errors.Is(err, layout.ErrCorrupt)
		}
	}
	if !told {
		t.Error("who reads it is not told that it is damaged")
	}
	w.decideUntil(victim.Coordinator(), -1)
	w.sweep()
	must(t, ours.Close())
	_, err := recovery.PruneSlots(w.ctl.Plain(), recovery.Options{Space: w.space, Steal: true, Alone: true},
		recovery.SweepReport{})
	must(t, err)
	turn() // the bit is as it was
	ours, own = w.session()
	if got := w.values(ours, own, "x", "y"); got[0] != "1" || got[1] != "1" {
		t.Errorf("%q", got)
	}
}
