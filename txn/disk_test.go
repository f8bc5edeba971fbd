//go:build unix

package txn_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"txnode/txn"
)

// TestSmallDirectoryTakesLittleDisk: a database of a few records with every option
// at its default is files of 16 GiB each that are almost nothing but holes.
func TestSmallDirectoryTakesLittleDisk(t *testing.T) {
	dir := t.TempDir()
	db, err := txn.Open(t.Context(), txn.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"accounts", "orders"} {
		tab, err := txn.CreateTable(db, name, txn.Uint64, txn.Plain[uint64]())
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(t.Context(), func(tx *txn.Tx) error {
			for k := range uint64(100) {
				if err := tab.Put(tx, k, k); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	close1(t, db)
	for _, name := range []string{"blade-000.region", "blade-001.region", "catalog.db"} {
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(dir, name), &st); err != nil {
			t.Fatal(err)
		}
		if took := st.Blocks * 512; took > 48<<20 {
			t.Errorf("%s of %d MiB takes %d MiB of disk", name, st.Size>>20, took>>20)
		}
	}
}
