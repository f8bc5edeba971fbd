package recovery_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/index/race"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
)

// TestDamagedIsNotFree: a bit of a record is damaged on the primary, or its line is zero, so
// that it says that its block is free; whoever has written it has died, and perhaps somebody
// who had locked it. A sweep, or who opens the database, gives the block to nobody: it is
// repaired from the copy.
func TestDamagedIsNotFree(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups == 0 {
			continue
		}
		for _, locked := range []bool{false, true} {
			for _, alone := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v, locked %v, alone %v", s, locked, alone), func(t *testing.T) {
					for _, value := range []string{"1", long} {
						damagedIsNotFree(t, s, locked, alone, value, unlive)
						damagedIsNotFree(t, s, locked, alone, value, func(block []byte) {
							clear(block[:record.LineSize])
						})
						damagedIsNotFree(t, s, locked, alone, value, func(block []byte) {
							clear(block[:record.GuardOff])
						})
					}
				})
			}
		}
	}
}

func damagedIsNotFree(t *testing.T, s setting, locked, alone bool, value string, damage func(block []byte)) {
	t.Helper()
	w := newWorld(t, s, occ.Options{})
	ours, own := w.session()
	victim, tx := w.loaded(put("x", value), put("y", "1"))
	if locked {
		must(t, w.open(tx, put("x", "2")))
	}
	damage(w.blockOf("x"))
	w.spoilt = true
	w.decideUntil(victim.Coordinator(), -1)
	_, err := recovery.Sweep(w.ctl.Plain(), recovery.Options{Space: w.space, Alone: alone})
	must(t, err)
	for i := range 100 {
		w.sure(ours, own, put(fmt.Sprint("k", i), value))
	}
	must(t, ours.Close())
	w.repair()
	w.mended("repaired", []string{"x", "y"}, []string{value, "1"})
}

// TestDamagedIsNotAdopted: the same of a database that is closed, and opened again, also if the
// whole word is gone that has the bit.
func TestDamagedIsNotAdopted(t *testing.T) {
	for _, s := range settings(t) {
		t.Run(s.String(), func(t *testing.T) {
			damagedIsNotAdopted(t, s, "x", unlive) // its lengths tell
			damagedIsNotAdopted(t, s, "a key that is longer", func(block []byte) { clear(block[record.MetaOff:][:8]) })
		})
	}
}

func damagedIsNotAdopted(t *testing.T, s setting, key string, damage func(block []byte)) {
	t.Helper()
	big := strings.Repeat("x", 8000)
	w := newWorld(t, s, occ.Options{})
	ours, _ := w.loaded(put(key, big), put("y", "1"))
	must(t, ours.Close())
	block := w.blockOf(key)[:len(big)]
	damage(block)
	w.spoilt = true
	was := slices.Clone(block)
	w.reopen(occ.Options{Policy: s.policy}, w.table)
	w.table.Index.(*race.Index).SetVacant(recovery.Vacant(w.space)) // as package txn does
	ours, own := w.session()
	for i := range 80 {
		w.sure(ours, own, put(fmt.Sprint("k", i), big))
	}
	must(t, ours.Close())
	if !slices.Equal(block, was) {
		t.Error("its block was written")
	}
	if s.backups == 0 {
		return
	}
	w.repair()
	w.mended("repaired", []string{key, "y"}, []string{big, "1"})
}

// TestDamagedTwiceIsNotFree: the same damage on all copies, as where a copy was built of what was
// damaged: the block is given to nobody either, as a slot leads to it.
func TestDamagedTwiceIsNotFree(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups == 0 {
			continue
		}
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{})
			ours, own := w.session()
			victim, tx := w.loaded(put("x", "1"), put("y", "1"))
			must(t, w.open(tx, put("x", "2")))
			block := w.blockOf("x")[:record.GuardOff]
			for _, at := range w.copiesOf("x") {
				unlive(w.f.Memory(at.Blade)[at.Off:])
			}
			was := slices.Clone(block)
			w.spoilt = true
			w.decideUntil(victim.Coordinator(), -1)
			_, err := recovery.Sweep(w.ctl.Plain(), recovery.Options{Space: w.space})
			must(t, err)
			for i := range 100 {
				w.sure(ours, own, put(fmt.Sprint("k", i), "1"))
			}
			if !slices.Equal(was, block) {
				t.Error("the block is another one's")
			}
			must(t, ours.Close())
		})
	}
}
