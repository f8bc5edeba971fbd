package txn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/txn"
)

// TestOrderedTable: what an ordered table has is there in order, in the transaction that has
// changed it, in later ones, and when the database is opened again.
func TestOrderedTable(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	open := func() *txn.DB {
		db, err := txn.Open(ctx, txn.Options{Dir: dir, Blades: 2, BladeSize: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	db := open()
	table, err := txn.CreateOrderedTable(db, "numbers", txn.Uint64, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	const n = 2000
	for from := uint64(0); from < n; from += 50 {
		if err := db.Update(ctx, func(tx *txn.Tx) error {
			for k := from; k < from+50; k++ {
				if err := table.Insert(tx, k*7%n, fmt.Sprint(k*7%n)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(db *txn.DB, table *txn.OrderedTable[uint64, string]) {
		t.Helper()
		if err := db.View(ctx, func(tx *txn.Tx) error {
			var keys []uint64
			for k, v := range table.Range(tx, txn.Including(uint64(100)), txn.Excluding(uint64(1900))) {
				if v != fmt.Sprint(k) {
					return fmt.Errorf("%d: %q", k, v)
				}
				keys = append(keys, k)
			}
			if len(keys) != 1800 || !slices.IsSorted(keys) || keys[0] != 100 {
				return fmt.Errorf("%d keys", len(keys))
			}
			k, _, found, err := table.Last(tx, txn.Bound[uint64]{}, txn.Excluding(uint64(500)))
			if err != nil || !found || k != 499 {
				return fmt.Errorf("last: %d %v %w", k, found, err)
			}
			if n, err := table.Count(tx, txn.Excluding(uint64(1990)), txn.Bound[uint64]{}); n != 9 || err != nil {
				return fmt.Errorf("count: %d %w", n, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	check(db, table)
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
	db = open()
	defer func() {
		if err := db.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	if table, err = txn.OpenOrderedTable(db, "numbers", txn.Uint64, txn.Text()); err != nil {
		t.Fatal(err)
	}
	check(db, table)
	if _, err := txn.OpenTable(db, "numbers", txn.Uint64, txn.Text()); !errors.Is(err, txn.ErrTableType) {
		t.Error(err)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error {
		n, err := table.DeleteRange(tx, txn.Including(uint64(200)), txn.Excluding(uint64(300)))
		if err == nil && n != 100 {
			err = fmt.Errorf("%d deleted", n)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.View(ctx, func(tx *txn.Tx) error {
		if n, err := table.Count(tx, txn.Bound[uint64]{}, txn.Bound[uint64]{}); n != 1900 || err != nil {
			return fmt.Errorf("count: %d %w", n, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// atMost is a key whose encodings have at most so many bytes.
func atMost[K any](k txn.Key[K], bytes int) txn.Key[K] {
	k.MaxBytes = bytes
	return k
}
