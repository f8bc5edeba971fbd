package occ_test

import (
	"errors"
	"testing"

	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/inproc"
)

// TestBladeBackBeforeJoin: a blade comes back between the moment in which a session's
// coordinator is registered, without a log area there, and that in which the session
// looks at the map, where the blade is. The session has an area on it: without one its
// log would go to the beginning of a region, over the header.
func TestBladeBackBeforeJoin(t *testing.T) {
	for b := range rdma.BladeID(3) {
		bed := newBed(t, 3, 1, occ.Options{})
		fabric := bed.fabric.(*inproc.Fabric)
		s, _ := bed.session()
		c := bed.ctl.Plain()
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		check(fabric.StopBlade(b))
		_, err := recovery.FailOver(c, recovery.Options{Space: bed.space}, bed.space.DeclareDead(b))
		check(err)
		coord, err := bed.space.NewCoordinator()
		check(err)
		for i, l := range coord.Logs {
			if down := rdma.BladeID(i) == b; (l.Size == 0) != down || l.Addr.Blade != rdma.BladeID(i) {
				t.Errorf("blade %d is down, log area on blade %d: %+v", b, i, l)
			}
		}
		check(fabric.RestartBlade(b, false))
		check(bed.space.Admit(c, b, nil))
		s.Join(coord)
		for i, l := range s.LogAreas() {
			if l.Size == 0 || l.Addr.Blade != rdma.BladeID(i) {
				t.Errorf("blade %d is back, log area on blade %d: %+v", b, i, l)
			}
		}
		// A verb to where an area is not reaches nothing.
		var batch rdma.Batch
		a := coord.Logs[b].Addr
		a.Key = bed.space.Current().Key(b)
		batch.Read(a, 0, 64)
		check(bed.ctl.Reconnect(b))
		if err := c.Do(&batch); err == nil {
			t.Error("an area that is not there can be read")
		}
	}
}

// TestDeadBeforeJoin: a coordinator is declared dead, recovered and forgotten between
// the moment in which it is registered and that in which its session looks at the map.
// The session does no transaction as that coordinator: its locks would be nobody's.
func TestDeadBeforeJoin(t *testing.T) {
	bed := newBed(t, 3, 1, occ.Options{})
	s, tx := bed.session()
	coord, err := bed.space.NewCoordinator()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := recovery.Recover(bed.ctl.Plain(), recovery.Options{Space: bed.space}, coord.ID); err != nil {
		t.Fatal(err)
	}
	s.Join(coord)
	if err := tx.Begin(); !errors.Is(err, occ.ErrFenced) || !errors.Is(err, occ.ErrBroken) {
		t.Fatalf("a transaction of a coordinator that is gone begins: %v", err)
	}
	if err := s.Rejoin(s.Thread().Plain()); err != nil {
		t.Fatal(err)
	}
	must(t, tx.Begin())
	must(t, tx.Rollback())
	if s.Coordinator() == coord.ID {
		t.Error("the session has not become another coordinator")
	}
}
