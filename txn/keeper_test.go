package txn_test

import (
	"context"
	"testing"

	"txnode/txn"
)

// TestCopiesBesideSweep: after the loss of a blade there is much to sweep, and copies are built in turns with that: another loss would be that
// of data.
func TestCopiesBesideSweep(t *testing.T) {
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{Blades: 3, Backups: txn.F(1), BladeSize: 256 << 20, SegmentSize: 1 << 20, LogArea: 64 << 10, LeaseTerm: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(ctx)
	table, err := txn.CreateTable(db, "records", txn.Uint64, txn.Plain[int64]())
	if err != nil {
		t.Fatal(err)
	}
	const records = 60_000 // a sweep looks at 16,384 in a row at most
	if n, err := table.Load(ctx, func(yield func(uint64, int64) bool) {
		for i := range uint64(records) {
			if !yield(i, 1) {
				return
			}
		}
	}, txn.LoadOptions{}); err != nil || n != records {
		t.Fatal(n, err)
	}
	step := db.KeepByHand()
	sw := stopper(t, db)
	if err := sw.StopBlade(1); err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, records, 1) }); err != nil {
		t.Fatal(err)
	}
	if err := sw.RestartBlade(1, true); err != nil {
		t.Fatal(err)
	}
	for {
		unswept, copied, err := step()
		if err != nil {
			t.Log(err)
		}
		if copied > 0 && unswept {
			return
		}
		if !unswept {
			t.Fatalf("the sweep has ended, and %d bytes of copies are there", copied)
		}
	}
}
