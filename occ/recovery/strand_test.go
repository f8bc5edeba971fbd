package recovery_test

import (
	"fmt"
	"slices"
	"testing"

	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestStrandBesideLoss: as TestRecoverBesideDamage, and who recovers is stopped, too, when
// requests of his to one blade may arrive that he posted later than others, which do not; and
// then a blade is lost.
func TestStrandBesideLoss(t *testing.T) {
	for _, s := range settings() {
		if s.backups == 0 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			step := 29
			if s.backups == 1 && s.caps == strong {
				step = 12
			}
			for at := step; ; at += step {
				left := 0
				for stopped := true; stopped; left++ {
					stopped = false
					for lost := range rdma.BladeID(3) {
						for late := range rdma.BladeID(3) {
							if late != lost && strandBesideLoss(t, s, at, left, late, lost) {
								stopped = true
							}
						}
					}
				}
				if left == 1 || t.Failed() { // nobody has been stopped
					break
				}
			}
		})
	}
}

// strandBesideLoss is TestStrandBesideLoss of a client that dies after so many verbs, and a
// recoverer of whose verbs, after some that are left to it, only those to one blade arrive. It
// reports whether there were others.
func strandBesideLoss(t *testing.T, s setting, at, left int, late, lost rdma.BladeID) (stopped bool) {
	t.Helper()
	w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
	what := fmt.Sprintf("stopped after %d verbs, and who recovers after %d, but for those to blade %d; blade %d is lost", at, left, late, lost)
	sound, spoilt := w.table, w.second("spoilt")
	_, first := w.session()
	victim, tx := w.session()
	w.sure(victim, tx, put("k", "1"))
	w.table = spoilt
	w.sure(victim, tx, put("x", "1"), put("y", "1"), put("gone", "1"))
	w.sure(victim, tx, del("gone"))
	w.table = sound
	must(t, w.do(first, get("k")))
	tx.Coro().Sleep(10_000) // until its locks are released
	w.arm(at)
	told := w.mixed(tx, spoilt, put("k", "2"), put("x", long), put("new", "2"), put("y", "2"), put("gone", "2"))
	if told == nil {
		tx.Coro().Sleep(10_000)
	}
	if !w.disarm() {
		return false
	}
	mended := w.spoil(spoilt)
	w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool {
		left--
		return left < 0 && wr.Blade != late
	}}
	_, _ = recovery.Recover(w.newThread().Plain(), w.eng.Recovery(), victim.Coordinator())
	stopped = w.disarm()
	w.loseBlade(lost)
	ours, own := w.session()
	keys, want := []string{"x", "y", "new", "gone"}, []string{"1", "1", "", ""}
	if w.values(ours, own, "k")[0] == "2" {
		want = []string{long, "2", "2", "2"}
	} else if told == nil {
		t.Errorf("%s: an acknowledged transaction is lost", what)
	}
	must(t, ours.Close())
	mended()
	o := recovery.Options{Space: w.space, Steal: true, Alone: true}
	if rep, err := recovery.Sweep(w.ctl.Plain(), o); err != nil || rep.Damage != nil {
		t.Fatalf("%s: swept when it was mended: %v, %v", what, err, rep.Damage)
	}
	_, err := recovery.PruneSlots(w.ctl.Plain(), o)
	must(t, err)
	w.table = spoilt
	ours, own = w.session()
	if got := w.values(ours, own, keys...); !slices.Equal(got, want) {
		t.Errorf("%s: %.4q", what, got)
	}
	return stopped
}
