//go:build unix

package txn_test

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"txnode/txn"
)

// takes is how much disk the files of a database take, in bytes.
func takes(t *testing.T, dir string) (n int64) {
	t.Helper()
	for _, name := range []string{"blade-000.region", "blade-001.region", "catalog.db"} {
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(dir, name), &st); err != nil {
			t.Fatal(err)
		}
		n += st.Blocks * 512
	}
	return n
}

// TestSmallDirectoryTakesLittleDisk: a database of one record with every option at its default is
// files of 16 GiB each that are almost nothing but holes, and so it is when it has been opened
// again, whether it was closed or its process was killed.
func TestSmallDirectoryTakesLittleDisk(t *testing.T) {
	dir := t.TempDir()
	for i := range uint64(4) {
		db, err := txn.Open(t.Context(), txn.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		open := txn.OpenTable[uint64, uint64]
		if i == 0 {
			open = txn.CreateTable[uint64, uint64]
		}
		tab, err := open(db, "accounts", txn.Uint64, txn.Plain[uint64]())
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, i, i) }); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			other := t.TempDir() // what is there when the process is killed now
			copySparse(t, dir, other)
			dir = other
		}
		close1(t, db)
		if took := takes(t, dir); took > 4<<20 {
			t.Errorf("%d records take %d KiB of disk", i+1, took>>10)
		}
	}
}

// copySparse copies the files of a directory, without pages that are zero.
func copySparse(t *testing.T, from, to string) {
	t.Helper()
	for _, name := range []string{"blade-000.region", "blade-001.region", "catalog.db"} {
		if out, err := exec.Command("cp", "--sparse=always", filepath.Join(from, name),
			to).CombinedOutput(); err != nil {
			t.Skipf("cp: %v: %s", err, out)
		}
	}
}
