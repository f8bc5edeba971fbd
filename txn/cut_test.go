package txn_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"txnode/txn"
)

// TestCutWhileOpen: a file of the database is cut short while the database is open, for writing or
// not. Every use of the file is an error, each time; nothing waits for ever, Close included.
func TestCutWhileOpen(t *testing.T) {
	options := txn.Options{BladeSize: 16 << 20, SegmentSize: 256 << 10, LogArea: 64 << 10, IndexGroups: 8}
	for _, c := range []struct {
		file string
		size int64
		// wanted: the steps with these names are to fail with ErrCorrupt; others may.
		wanted []string
	}{
		{"catalog.db", 0, []string{"first table", "second table", "worker", "close"}},
		{"catalog.db", 4096, []string{"first table", "second table", "worker", "close"}},
		{"catalog.db", 3*4096 + 100, nil}, // pages that nothing is read from again may be gone
		{"blade-000.region", 0, nil},
		{"blade-001.region", 1 << 20, nil},
		{"LOCK", 0, nil},
	} {
		for _, readOnly := range []bool{false, true} {
			o := options
			o.Dir = t.TempDir()
			db := mustOpen(t, o)
			tab, err := txn.CreateTable(db, "t", txn.Uint64, txn.Text())
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 1, "x") }); err != nil {
				t.Fatal(err)
			}
			if readOnly {
				close1(t, db)
				o.ReadOnly = true
				db = mustOpen(t, o)
				if tab, err = txn.OpenTable(db, "t", txn.Uint64, txn.Text()); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Truncate(filepath.Join(o.Dir, c.file), c.size); err != nil {
				t.Fatal(err)
			}
			errs := map[string]error{}
			_, errs["first table"] = txn.CreateTable(db, "u", txn.Uint64, txn.Text())
			_, errs["second table"] = txn.CreateTable(db, "v", txn.Uint64, txn.Text())
			w, err := db.NewWorker()
			if err == nil {
				err = w.Close()
			}
			errs["worker"] = err
			for k := range uint64(3) {
				_ = db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, k, "y") })
				_ = db.View(t.Context(), func(tx *txn.Tx) error { _, err := tab.Get(tx, k); return err })
			}
			errs["close"] = db.Close(t.Context())
			for _, name := range c.wanted {
				if err := errs[name]; !readOnly && !errors.Is(err, txn.ErrCorrupt) {
					t.Errorf("%s of %d bytes: %s: %v", c.file, c.size, name, err)
				}
			}
		}
	}
}
