package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"txnode/cluster"
	"txnode/memory/catalog"
	"txnode/txn"
)

// TestRestoreOfManyTables: a restore beside a cluster has a few workers, however many
// ordered tables it loads.
func TestRestoreOfManyTables(t *testing.T) {
	const tables, most = 40, 10 // workers: 8 load ordered tables, one others, and the pool has one
	ctx := t.Context()
	type table = txn.OrderedTable[uint64, uint64]
	each := func(db *txn.DB, fn func(tx *txn.Tx, x *table, k uint64) error) {
		t.Helper()
		for i := range uint64(tables) {
			x, err := txn.CreateOrderedTable(db, fmt.Sprintf("t%02d", i), txn.Uint64, txn.Plain[uint64]())
			if err == nil {
				err = db.Update(ctx, func(tx *txn.Tx) error { return fn(tx, x, i) })
			}
			if err != nil {
				t.Fatalf("table %d: %v", i, err)
			}
		}
	}
	from, err := txn.Open(ctx, txn.Options{Blades: 2, BladeSize: 64 << 20, SegmentSize: 256 << 10, LogArea: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close(context.Background())
	each(from, func(tx *txn.Tx, x *table, k uint64) error { return x.Put(tx, k, k+100) })
	var file bytes.Buffer
	if _, err := from.Backup(ctx, &file, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}

	b := newBed(t)
	c := b.catalog(&catalog.Mem{}, "c")
	b.blades([]uint64{size}, "a")
	b.blades([]uint64{size}, "b")
	if err := cluster.Init(ctx, c, b.list("a", "b"), cluster.Geometry{SegmentSize: 256 << 10, LogArea: 64 << 10},
		cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	to, err := cluster.Open(ctx, b.address("c"), txn.Options{}, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close(context.Background())
	workers := 0
	if _, err := to.Restore(ctx, bytes.NewReader(file.Bytes()), txn.BackupOptions{Progress: func(uint64) {
		workers = max(workers, len(to.Space().Layout().Coordinators))
	}}); err != nil {
		t.Fatal(err)
	}
	if workers < 2 || workers > most {
		t.Errorf("%d workers load %d tables", workers, tables)
	}
	each(to, func(tx *txn.Tx, x *table, k uint64) error {
		if v, err := x.Get(tx, k); err != nil || v != k+100 {
			return fmt.Errorf("%d, %w", v, err)
		}
		return nil
	})
}
