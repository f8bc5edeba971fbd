package recovery_test

import (
	"fmt"
	"testing"

	"txnode/memory/record"
	"txnode/occ"
)

// TestDamagedLock: a client has died in a transaction, and a bit of the guard of what it had
// locked is damaged since: of a record that it updates in place, or of one that it moves; or the
// line is zero, or junk, and a copy has it. It is recovered, and all of the transaction is
// there, or nothing.
func TestDamagedLock(t *testing.T) {
	for _, s := range settings(t) {
		if s.policy == occ.PolicyFORD { // its records that are not locked by it may be at rest as they were
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			for _, key := range []string{"x", "y"} {
				for _, bit := range []int{0, 42, zeroLine, junkLine} { // that it is locked, and by whom
					if bit < 0 && s.backups == 0 {
						continue
					}
					for stop := 0; damagedLock(t, s, stop, key, bit); stop++ {
					}
				}
			}
		})
	}
}

// Damages of a whole line.
const zeroLine, junkLine = -1, -2

// damagedLock is TestDamagedLock of a client that dies after so many verbs; false: it has come
// to its end before.
func damagedLock(t *testing.T, s setting, stop int, key string, bit int) bool {
	t.Helper()
	w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
	ours, own := w.session()
	victim, tx := w.loaded(put("k", "1"), put("x", "1"), put("y", "1"))
	block := w.blockOf(key)
	w.arm(stop)
	told := w.do(tx, put("k", "2"), put("x", long), put("y", "2"))
	if told == nil {
		tx.Coro().Sleep(10_000)
	}
	if !w.disarm() {
		return false
	}
	if record.Image(block).Lock() != tx.ID() {
		return true
	}
	switch bit {
	case zeroLine:
		clear(block[:record.LineSize])
	case junkLine:
		for i := range record.LineSize {
			block[i] = byte(0xa6 + 3*i)
		}
	default:
		block[record.GuardOff+bit/8] ^= 1 << (bit % 8)
	}
	w.decideUntil(victim.Coordinator(), -1)
	k := w.values(ours, own, "k")[0]
	must(t, ours.Close())
	w.repair()
	if damage := w.sweepAlone(); damage != nil {
		t.Errorf("swept: %v", damage)
	}
	what := fmt.Sprintf("stop %d, %s, bit %d, told %v", stop, key, bit, told)
	want := []string{"2", long, "2"}
	if k == "1" && told != nil {
		if want = []string{"1", "1", "1"}; s.backups == 0 { // nothing says what the guard was
			return true
		}
	}
	w.mended(what, []string{"k", "x", "y"}, want)
	return true
}
