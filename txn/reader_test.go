package txn_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/txn"
)

// TestReaderBesideDoubt: somebody opens a database to read it that another one has open, on the
// same blades. While nobody knows whether the catalog has made a change of the epoch, or when what
// he has read of the catalog is old by now, he is refused: the blades keep the keys that they have,
// or whoever writes would take all of them for restarted, and lost.
func TestReaderBesideDoubt(t *testing.T) {
	f, err := inproc.New(inproc.Options{Seed: 1, Blades: slices.Repeat([]inproc.BladeOptions{{Size: 16 << 20}}, 3)})
	if err != nil {
		t.Fatal(err)
	}
	o := onFabric(f, txn.PolicyDefault)
	cat := &deaf{makes: true}
	o.Catalog = cat
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	if err := db.Run(t.Context(), 1, 1, func(_ context.Context, _ int, w *txn.Worker) error {
		return w.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 1, val(1)) })
	}); err != nil {
		t.Fatal(err)
	}
	ro := o
	ro.ReadOnly = true
	refused := func(what string) {
		t.Helper()
		_, err := txn.Open(t.Context(), ro)
		says(t, what, err, rdma.ErrStaleKey, "epoch", "try again")
	}
	reads := func(db *txn.DB) {
		t.Helper()
		tab, err := txn.OpenTable(db, "t", txn.Uint64, txn.Bytes())
		if err == nil {
			err = db.View(t.Context(), func(tx *txn.Tx) error { _, err := tab.Get(tx, 1); return err })
		}
		if err != nil {
			t.Error(err)
		}
	}
	old, _, err := cat.Load()
	if err != nil {
		t.Fatal(err)
	}
	cat.down.Store(true)
	if err := db.Space().AdvanceEpoch(nil); !errors.Is(err, errDeaf) {
		t.Fatal(err)
	}
	ro.Catalog = &cat.Mem // which answers others
	refused("while the change is in doubt")
	cat.down.Store(false)
	if err := db.Space().AdvanceEpoch(nil); err != nil {
		t.Fatal(err)
	}
	copied := &catalog.Mem{}
	if _, err := copied.Apply(0, old); err != nil {
		t.Fatal(err)
	}
	ro.Catalog = copied
	_, err = txn.Open(t.Context(), ro)
	says(t, "by an old catalog", err, layout.ErrForeign, "old copy", "Bring the newest back")
	ro.Catalog = cat
	reads(mustOpen(t, ro))
	reads(db)
	if r := db.Redundancy(); r.Missing > 0 || len(r.Outages) > 0 {
		t.Errorf("%+v", r)
	}
}

// TestReaderBesideRestart: a blade has restarted, and before whoever has the database open notices
// that, somebody opens it to read. He is refused, and leaves the blade as it is, so that it is
// noticed. He can read when that is over.
func TestReaderBesideRestart(t *testing.T) {
	ctx := t.Context()
	f, err := inproc.New(inproc.Options{Seed: 1, Blades: slices.Repeat([]inproc.BladeOptions{{Size: 16 << 20}}, 3)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := onFabric(f, txn.PolicyDefault)
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, 10, val(1))
	if err := errors.Join(f.StopBlade(1), f.RestartBlade(1, true)); err != nil {
		t.Fatal(err)
	}
	read := o
	read.ReadOnly = true
	r, err := txn.Open(ctx, read)
	switch {
	case err == nil: // the process has met the blade by itself before
		if err := r.Close(ctx); err != nil {
			t.Fatal(err)
		}
	case !errors.Is(err, rdma.ErrStaleKey) && !errors.Is(err, txn.ErrUnrecovered): // or it is about to
		t.Errorf("opened to read: %v", err)
	}
	// what it has met by itself it notes soon
	for n := 0; !db.Space().Restarted(1) && len(db.Redundancy().Outages) == 0; n++ {
		if n == 30000 {
			t.Fatal("nobody knows that the blade has restarted")
		}
		time.Sleep(time.Millisecond)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, 3, val(2)) }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, o) // sweeps what the lost one may have had
	until(t, "it is swept", func() bool { _, unswept := again.Space().Unswept(); return !unswept })
	if err := again.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if r, err = txn.Open(ctx, read); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, r, table(t, r, "t"), 10); len(got) != 10 || string(got[3]) != string(val(2)) {
		t.Errorf("%d records, %q", len(got), got[3])
	}
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
}
