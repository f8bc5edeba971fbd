package recovery_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/memory"
	"txnode/occ"
	"txnode/rdma"
)

// withoutLogOn makes a session that has no log area on a blade, whose disk has no room while
// the session begins.
func (w *world) withoutLogOn(b rdma.BladeID) (*occ.Session, *occ.Tx) {
	w.t.Helper()
	w.f.Fill(b, true)
	defer w.f.Fill(b, false)
	for { // areas that there are do not need room
		c, err := w.space.NewCoordinator()
		must(w.t, err)
		if c.Logs[b].Size == 0 {
			must(w.t, w.space.CloseCoordinatorOn(w.ctl.Plain(), c.ID))
			break
		}
	}
	s, tx := w.session()
	c, _, err := w.space.Coordinator(s.Coordinator())
	must(w.t, err)
	for x, l := range c.Logs {
		if (l.Size == 0) != (x == int(b)) {
			w.t.Fatalf("the log areas are %+v, and blade %d is full", c.Logs, b)
		}
	}
	return s, tx
}

// TestBackupWithoutLog: the disk of a blade is full, so a session has no log area there. It stops
// after each verb, or all fail that go elsewhere, and another blade may be lost then, so that what
// it has written to the full one counts. Its transaction has happened wholly or not at all.
func TestBackupWithoutLog(t *testing.T) {
	for _, s := range []setting{
		{occ.PolicyDefault, 1, strong}, {occ.PolicyDefault, 1, weak}, {occ.PolicyFORD, 1, weak},
	} {
		t.Run(s.String(), func(t *testing.T) {
			cases := 0
			for i := range byRun(1, len(canonicals), 1) {
				c := &canonicals[(2*i)%len(canonicals)]
				for full := range rdma.BladeID(byRun(3, 3, 1)) {
					for lost := range rdma.BladeID(3) { // the full one: none is
						for k := -1; ; k++ {
							what := fmt.Sprintf("%s, blade %d is full, stopped after %d verbs, blade %d is lost",
								c.name, full, k, lost)
							w := newWorld(t, s, occ.Options{})
							ours, own := w.session()
							ks, old, now := w.prepare(ours, own, c, "k")
							victim, tx := w.withoutLogOn(full)
							if w.arm(k); k < 0 { // what it writes to the full blade comes through alone
								w.stop = stop{pick: func(wr *rdma.WR) bool {
									return wr.Op == rdma.OpWrite && wr.Blade != full
								}}
							}
							told := w.do(tx, c.tx("k")...)
							stopped := w.disarm()
							if told != nil && !stopped {
								t.Fatalf("%s: %v", what, told)
							}
							if lost != full {
								w.loseBlade(lost)
							}
							w.recover(victim.Coordinator())
							ours, own = w.session()
							w.judge(what, ours, own, tx.ID(), told, ks, old, now)
							w.check(what)
							cases++
							if !stopped || t.Failed() {
								break
							}
						}
						if t.Failed() {
							return
						}
					}
				}
			}
			t.Logf("%d cases", cases)
		})
	}
}

// TestTooFewLogs: a session begins on as many blades as a log record goes to, and not on fewer.
func TestTooFewLogs(t *testing.T) {
	w := newWorld(t, setting{occ.PolicyDefault, 2, strong}, occ.Options{})
	w.f.Fill(1, true)
	for {
		_, err := w.space.NewCoordinator()
		if err == nil {
			continue // an area that there was
		}
		var none *memory.NoSpaceError
		if !errors.As(err, &none) || none.Blade != 1 || none.Backing == nil {
			t.Errorf("%v", err)
		}
		break
	}
	w.f.Fill(1, false)
	w.session()
}
