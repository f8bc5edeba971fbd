package recovery_test

import (
	"fmt"
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
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
	w.spoilt = true
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

// TestOldOverNew: a record was inserted and then updated, or deleted, by another client. Its primary
// is zeroed, and so looks as it was before the insert, whose client dies. Recovery does not write the
// first image over the last one, which the backups have, or of which a log tells.
func TestOldOverNew(t *testing.T) {
	for _, s := range settings(t) {
		for _, value := range []string{"2", long, ""} {
			for _, both := range []bool{false, true} { // the second client dies, too
				if s.backups == 0 && (!both || s.policy == occ.PolicyFORD) {
					continue // nothing tells
				}
				w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
				ours, own := w.session()
				first, _ := w.loaded(put("k", "1"), put("long", long))
				second, its := w.loaded(get("k"))
				w.sure(second, its, op{key: "k", value: value}, put("long", "3"))
				its.Coro().Sleep(10_000)
				at := []layout.Addr{w.keyAt("long")}
				if value != long { // else it has another block
					at = append(at, w.keyAt("k"))
				}
				for _, a := range at {
					p := w.space.View().At(a, 0)
					clear(w.f.Memory(p.Blade)[p.Off:][:record.LineSize])
				}
				ids := []uint32{first.Coordinator()}
				if both {
					ids = append(ids, second.Coordinator())
				}
				o := w.eng.Recovery()
				o.Steal = true
				_, err := recovery.Recover(w.newThread().Plain(), o, ids...)
				must(t, err)
				for k := range w.space.View().Copies(at[0]) {
					for i, a := range at {
						p := w.space.View().At(a, k)
						if img := record.Image(w.f.Memory(p.Blade)[p.Off:][:record.LineSize]); img.Version().Coordinator() ==
							first.Coordinator() {
							t.Errorf("%v, %.4q, both %v: copy %d of block %d has its first image", s, value, both, k, i)
						}
					}
				}
				if s.backups == 0 {
					continue // nothing can be repaired
				}
				w.sure(ours, own, put("other", "1"))
				own.Coro().Sleep(10_000)
				must(t, ours.Close())
				w.repair()
				w.mended(fmt.Sprintf("%v, %.4q, both %v", s, value, both), []string{"k", "long"}, []string{value, "3"})
			}
		}
	}
}
