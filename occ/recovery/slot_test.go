package recovery_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
)

// TestDamagedSlot: a client has died while a record moved, and a bit of its slot is damaged
// since, on the primary: of its fingerprint, or of the address. So the slot leads neither to the
// one block nor to the other. The client is recovered, the slot is repaired from another copy, and
// then all of the transaction is there, or nothing.
func TestDamagedSlot(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups == 0 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			for _, bit := range []int{8, 56} {
				for stop := 0; damagedSlot(t, s, stop, bit); stop++ {
				}
			}
		})
	}
}

// damagedSlot is TestDamagedSlot of a client that dies after so many verbs; false: it has come to
// its end before.
func damagedSlot(t *testing.T, s setting, stop, bit int) bool {
	w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
	what := fmt.Sprintf("stop %d, bit %d", stop, bit)
	ours, own := w.session()
	victim, tx := w.session()
	w.sure(victim, tx, put("k", "1"), put("x", "1"))
	v := w.space.View()
	var slot []byte // of x, on the primary
	must(t, w.table.Index.(*race.Index).Walk(w.ctl.Plain(), func(at layout.Addr, c index.Candidate) error {
		a, s := v.At(c.Addr, 0), v.At(at, 0)
		if string(record.Image(w.f.Memory(a.Blade)[a.Off:][:c.Class.Size()]).Key()) == "x" {
			slot = w.f.Memory(s.Blade)[s.Off:][:8]
		}
		return nil
	}))
	tx.Coro().Sleep(10_000) // until its locks are released
	w.arm(stop)
	told := w.do(tx, put("k", "2"), put("x", long))
	if told == nil {
		tx.Coro().Sleep(10_000)
	}
	if !w.disarm() {
		return false
	}
	w.spoilt = true
	binary.LittleEndian.PutUint64(slot, binary.LittleEndian.Uint64(slot)^1<<bit)
	w.decideUntil(victim.Coordinator(), -1)
	want := []string{"1", "1"}
	if w.values(ours, own, "k")[0] == "2" {
		want = []string{"2", long}
	} else if told == nil {
		t.Errorf("%s: an acknowledged transaction is lost", what)
	}
	must(t, ours.Close())

	w.repair()
	rep, err := recovery.Sweep(w.ctl.Plain(), recovery.Options{Space: w.space, Steal: true, Alone: true})
	if err != nil || rep.Damage != nil {
		t.Errorf("%s: swept when it was mended: %v, %v", what, err, rep.Damage)
	}
	w.mended(fmt.Sprintf("%s, told %v", what, told), []string{"k", "x"}, want)
	return true
}
