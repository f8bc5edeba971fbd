package txn_test

import (
	"slices"
	"testing"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma/inproc"
	"txnode/txn"
)

// TestRealTime: a database on a fabric of the caller's that runs in real time renews leases and
// builds copies by itself, while no worker does anything. The capability decides, not whose the
// fabric is.
func TestRealTime(t *testing.T) {
	f, err := inproc.New(inproc.Options{Seed: 1, Blades: slices.Repeat([]inproc.BladeOptions{{Size: 64 << 20}}, 3)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	o := onFabric(f, txn.PolicyDefault)
	o.LeaseTerm = 300 * time.Millisecond
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, 100, val(1))
	lives := func(c layout.CoordinatorEntry) bool { return db.Space().Lease(c.ID, f.Now()) == memory.LeaseLive }
	// its worker is idle
	for from := f.Now(); f.Now() < from+int64(o.LeaseTerm) ||
		!slices.ContainsFunc(db.Space().Layout().Coordinators, lives); {
		time.Sleep(time.Millisecond)
	}
	segs := db.Space().Layout().Segments
	of := slices.IndexFunc(segs, func(s layout.Segment) bool { return s.Kind == layout.KindBlocks })
	if err := f.StopBlade(segs[of].Placement.Replicas[0].Blade); err != nil {
		t.Fatal(err)
	}
	for k := range uint64(100) { // which meets the blade, and leaves the copies to others
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, k, val(2)) }); err != nil {
			t.Fatal(err)
		}
	}
	for r := db.Redundancy(); len(r.Down) != 1 || r.Missing > 0; r = db.Redundancy() {
		time.Sleep(time.Millisecond)
	}
	if got := contents(t, db, tab, 100); len(got) != 100 || string(got[7]) != string(val(2)) {
		t.Errorf("%d records, %q", len(got), got[7])
	}
}
