package txn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"txnode/memory"
	"txnode/txn"
)

// TestDecidedWhenIdle: whoever has declared a blade dead has stopped before he has decided
// anything, and nobody runs transactions, nor do leases expire. They are decided all the
// same, and copies built.
func TestDecidedWhenIdle(t *testing.T) {
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{
		Blades: 4, Backups: txn.F(1), BladeSize: 64 << 20, SegmentSize: 256 << 10,
		LogArea: 64 << 10, IndexGroups: 16, LeaseTerm: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	table, err := txn.CreateTable(db, "words", txn.Uint64, txn.Plain[int64]())
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(100) {
		if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, i, 1) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := stopper(t, db).StopBlade(1); err != nil {
		t.Fatal(err)
	}
	s := db.Space()
	all, err := s.Coordinators()
	if err != nil {
		t.Fatal(err)
	}
	var ids []uint32
	for _, c := range all {
		ids = append(ids, c.ID)
	}
	if _, err := s.Claim(memory.ClaimOptions{Now: db.Now(), Change: s.DeclareDead(1)}, ids...); err != nil {
		t.Fatal(err)
	}
	if r := db.Redundancy(); r.Missing == 0 || !s.FailoverPending() {
		t.Fatalf("%+v", r)
	}
	for tries := 0; s.FailoverPending() || db.Redundancy().Missing > 0; tries++ {
		if tries == 2000 {
			t.Fatalf("transactions wait to be decided: %v; %+v", s.FailoverPending(), db.Redundancy())
		}
		time.Sleep(10 * time.Millisecond)
	}
	for i := range uint64(100) {
		if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, i, 2) }); err != nil {
			t.Fatal(err)
		}
	}
	swept(t, db)
	audit(t, db)
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestBothDecided: two blades die at once, and all transactions are decided when both
// are declared dead.
func TestBothDecided(t *testing.T) {
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{
		Blades: 4, Backups: txn.F(2), BladeSize: 64 << 20, SegmentSize: 256 << 10, LogArea: 64 << 10, IndexGroups: 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	table, err := txn.CreateTable(db, "words", txn.Uint64, txn.Plain[int64]())
	if err != nil {
		t.Fatal(err)
	}
	put := func(n int64) {
		t.Helper()
		for i := range uint64(20) {
			if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, i, n) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(1)
	if err := errors.Join(stopper(t, db).StopBlade(1), stopper(t, db).StopBlade(2)); err != nil {
		t.Fatal(err)
	}
	put(2)
	r := db.Redundancy()
	if len(r.Outages) != 2 {
		t.Fatalf("%+v", r.Outages)
	}
	for _, x := range r.Outages {
		if y := r.Outages[1]; x.Promoted == 0 || x.Decided < y.Promoted {
			t.Errorf("all is decided at %d, and blade %d declared dead at %d", x.Decided, y.Blade, y.Promoted)
		}
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
}
