package recovery_test

import (
	"bytes"
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
)

// TestRepairBesideWriter: a damaged copy of a record is repaired while a transaction writes the
// record, at every time of it. The new value stays, on all copies.
func TestRepairBesideWriter(t *testing.T) {
	for _, s := range replicated(t) {
		t.Run(s.String(), func(t *testing.T) {
			for k := range s.backups + 1 {
				for delay, beside := int64(0), true; beside && !t.Failed(); delay += 600 {
					beside = repairBesideWriter(t, s, k, delay)
				}
			}
		})
	}
}

// repairBesideWriter is TestRepairBesideWriter for copy k, with a writer that begins so much later
// than the repair, in nanoseconds. It reports whether the repair was not over by then.
func repairBesideWriter(t *testing.T, s setting, k int, delay int64) (beside bool) {
	w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
	writer, tx := w.loaded(put("a", "1"))
	_, repairer := w.session()
	block := layout.Addr(0)
	w.blocks(w.ctl.Plain(), func(a layout.Addr, _ record.Image) { block = a })
	at := w.copiesOf("a")
	w.f.Memory(at[k].Blade)[at[k].Off+record.ChecksumOff] ^= 4
	mended := false
	w.f.Run(2, func(i int) {
		if i == 0 {
			_, _, err := repairer.Repair(block)
			must(t, err)
			mended = true
			return
		}
		tx.Coro().Sleep(delay)
		beside = !mended
		w.sure(writer, tx, put("a", "2"))
	})
	tx.Coro().Sleep(10_000) // until its locks are released
	if got := w.values(writer, tx, "a"); got[0] != "2" {
		t.Errorf("copy %d mended, written %d ns later: %q", k, delay, got)
	}
	if _, whole, err := repairer.Repair(block); err != nil || !whole { // what the writer was in the way of
		t.Errorf("copy %d mended, written %d ns later: whole=%v, %v", k, delay, whole, err)
	}
	var first []byte
	for i, x := range at {
		p := bytes.Clone(w.f.Memory(x.Blade)[x.Off:][:record.LineSize])
		if first == nil {
			first = p
		}
		if _, err := record.Image(p).Check(block); err != nil ||
			!bytes.Equal(p[:record.GuardOff], first[:record.GuardOff]) {
			t.Errorf("copy %d mended, written %d ns later: copy %d is %x, %v", k, delay, i, p, err)
		}
	}
	w.check("mended")
	return beside
}
