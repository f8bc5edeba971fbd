package recovery_test

import (
	"testing"

	"txnode/memory/layout"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// takeBack takes a blade in again, without its memory, and builds the copies that are
// missing.
func (w *world) takeBack(b rdma.BladeID) {
	w.t.Helper()
	must(w.t, w.f.RestartBlade(b, false))
	c := w.ctl.Plain()
	must(w.t, w.space.Admit(c, b, nil))
	k := w.space.NewCopier()
	idle := false
	for steps := 0; !idle && steps < 5000; steps++ {
		var err error
		idle, err = k.Step(c)
		must(w.t, err)
	}
	if r := w.space.Redundancy(); r.Missing+r.Building > 0 {
		w.t.Fatalf("copies are still missing: %+v", r)
	}
}

// loseBlade stops a blade and declares it dead.
func (w *world) loseBlade(b rdma.BladeID) {
	w.t.Helper()
	must(w.t, w.f.StopBlade(b))
	_, err := recovery.FailOver(w.ctl.Plain(), w.eng.Recovery(), w.space.DeclareDead(b))
	must(w.t, err)
}

// TestOutcomeOfFewLogs: a session begins while one of two blades is lost, commits, and is
// idle. The blade comes back, all copies are built, and then the other is lost, which has
// had the only copy of the session's log. What it has acknowledged is in place, and not called
// aborted.
func TestOutcomeOfFewLogs(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups != 1 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			w := newWorldOn(t, 2, s, occ.Options{}, 64<<10)
			_, first := w.session()
			must(t, w.do(first, put("a", "0")))
			w.loseBlade(1)
			idle, tx := w.session()
			w.sure(idle, tx, put("k", "new"))
			w.takeBack(1)
			w.loseBlade(0)
			ours, own := w.session()
			if got := w.values(ours, own, "k"); got[0] != "new" {
				t.Errorf("%q after the loss of both blades, one after the other", got)
			}
			v, ok := w.space.Verdict(tx.ID().Coordinator())
			if got := v.Of(tx.ID().Seq()); !ok || got != layout.OutcomeUnknown {
				t.Errorf("the outcome of what is acknowledged and in no log: %v, %v", got, ok)
			}
		})
	}
}
