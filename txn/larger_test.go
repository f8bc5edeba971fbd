package txn_test

import (
	"errors"
	"path/filepath"
	"testing"

	"txnode/internal/raced"
	"txnode/txn"
)

// outgrownBlocks is a database that is full, but for the blocks of many deleted records of a size.
func outgrownBlocks(t *testing.T, o txn.Options, size, n int) (*txn.DB, *txn.Table[uint64, []byte]) {
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	one := func(k uint64, size int) error {
		return db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Insert(tx, k, make([]byte, size)) })
	}
	for k := range uint64(n) {
		if err := one(k, size); err != nil {
			t.Fatal(err)
		}
	}
	// another size fills the rest
	for k := uint64(1 << 32); ; k++ {
		if err := one(k, 40_000); err != nil {
			if !errors.Is(err, txn.ErrNoSpace) {
				t.Fatal(err)
			}
			break
		}
	}
	for k := range uint64(n) {
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Delete(tx, k) }); err != nil {
			t.Fatal(err)
		}
	}
	return db, tab
}

// TestLargerBlockIsRead: who looks for a record among several candidates needs as much memory as
// that has, and not as its block.
func TestLargerBlockIsRead(t *testing.T) {
	raced.Skip(t)
	o := tiny()
	o.BladeSize, o.SegmentSize, o.LogArea, o.Arena, o.Workers = 64<<20, 1<<20, 1<<20, 4<<20, 1
	o.Dir = filepath.Join(t.TempDir(), "db")
	db, tab := outgrownBlocks(t, o, 700_000, 30)
	const n = 25 // some share buckets and fingerprints
	for k := range uint64(n) {
		if err := db.Update(t.Context(),
			func(tx *txn.Tx) error { return tab.Insert(tx, 1<<40+k, make([]byte, 5000)) }); err != nil {
			t.Fatalf("record %d: %v", k, err)
		}
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.Arena = 1 << 20
	db = mustOpen(t, o)
	tab, err := txn.OpenTable(db, "t", txn.Uint64, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for k := range uint64(n) {
		if err := db.View(t.Context(),
			func(tx *txn.Tx) error { _, err := tab.Get(tx, 1<<40+k); return err }); err != nil {
			t.Errorf("record %d: %v", k, err)
		}
	}
}

// TestNodesAreNotLarger: the index says of which class the blocks of its nodes are. When only
// larger ones are free, there is no room for a node.
func TestNodesAreNotLarger(t *testing.T) {
	raced.Skip(t)
	o := tiny()
	o.BladeSize, o.Workers = 4<<20, 1
	db, _ := outgrownBlocks(t, o, 12_000, 60)
	tab, err := txn.CreateOrderedTable(db, "o", txn.Uint64, txn.Bytes())
	for k := uint64(0); err == nil; k++ {
		err = db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Insert(tx, k, make([]byte, 8)) })
	}
	if !errors.Is(err, txn.ErrNoSpace) {
		t.Fatal(err)
	}
	audit(t, db)
}
