package txn_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"txnode/internal/raced"
	"txnode/txn"
)

// wrote is how many bytes the process has given the system to be written to disks.
func wrote(t *testing.T) (n int) {
	t.Helper()
	p, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(p)) {
		if v, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			if _, err := fmt.Sscan(v, &n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}

// TestReopenPower: who opens a database that survives a loss of power, and that was closed,
// does not write it anew; who opens one that was open since without that promise does.
func TestReopenPower(t *testing.T) {
	raced.Skip(t)
	const data = 8 << 20
	o := tiny()
	o.Dir, o.BladeSize, o.Durability = t.TempDir(), 64<<20, txn.DurabilityPower
	open := func(durability txn.Durability) (db *txn.DB, took int) {
		o.Durability = durability
		before := wrote(t)
		db = mustOpen(t, o)
		return db, wrote(t) - before
	}
	db, _ := open(txn.DurabilityPower)
	tab := table(t, db, "t")
	value := bytes.Repeat([]byte("x"), 8000)
	before := wrote(t)
	for k := uint64(0); k < data/8000; k += 8 {
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			for i := range uint64(8) {
				if err := tab.Put(tx, k+i, value); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if wrote(t)-before < data {
		t.Skip("what is written to files here goes to no disk")
	}
	close1(t, db)
	if _, err := os.Stat(filepath.Join(o.Dir, "settled.json")); err != nil {
		t.Skip("it is not known of this file system when its files change")
	}
	for range 2 {
		db, took := open(txn.DurabilityPower)
		if took > data/16 {
			t.Errorf("%d KiB were written by opening it", took>>10)
		}
		if got := contents(t, db, table(t, db, "t"), 4); len(got) != 4 {
			t.Errorf("%d records", len(got))
		}
		close1(t, db)
	}
	db, _ = open(txn.DurabilityProcess)
	close1(t, db)
	db, took := open(txn.DurabilityPower)
	if took < data {
		t.Errorf("%d KiB were written after it was open without that promise", took>>10)
	}
	close1(t, db)
}
