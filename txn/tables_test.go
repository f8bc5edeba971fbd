package txn_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/txn"
	"txnode/txn/snapshot"
)

// TestTableOfFull: a table for which there was no room is not there, whoever asks; when there is,
// it is made, of other types, too.
func TestTableOfFull(t *testing.T) {
	dir := t.TempDir()
	o := txn.Options{
		Dir: dir, BladeSize: 4 << 20, SegmentSize: 256 << 10, LogArea: 16 << 10, CacheBytes: 1 << 20, Blades: 2,
	}
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	for n := uint64(0); ; n++ {
		err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, n, make([]byte, 200)) })
		if errors.Is(err, txn.ErrNoSpace) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	failed := ""
	for i := 0; failed == ""; i++ { // an index segment has room for several
		name := fmt.Sprint("late ", i)
		if _, err := txn.CreateTable(db, name, txn.Uint64, txn.Bytes()); errors.Is(err, txn.ErrNoSpace) {
			failed = name
		} else if err != nil {
			t.Fatal(err)
		}
	}
	absent := func(db *txn.DB) {
		t.Helper()
		if names, err := db.Tables(); err != nil || slices.Contains(names, failed) || !slices.Contains(names, "t") {
			t.Errorf("%q, %v", names, err)
		}
		if _, err := txn.OpenTable(db, failed, txn.Uint64, txn.Bytes()); !errors.Is(err, txn.ErrNoTable) {
			t.Error(err)
		}
	}
	absent(db)
	close1(t, db)
	o.ReadOnly = true
	db = mustOpen(t, o)
	absent(db)
	if _, err := db.Recover(t.Context()); !errors.Is(err, txn.ErrReadOnly) {
		t.Error(err)
	}
	close1(t, db)
	o.ReadOnly, o.BladeSize = false, 8<<20
	db = mustOpen(t, o)
	absent(db)
	made, err := txn.CreateTable(db, failed, txn.String, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(t.Context(), func(tx *txn.Tx) error { return made.Put(tx, "a", val(1)) }); err != nil {
		t.Error(err)
	}
	close1(t, db)
}

// TestTableNames: what a name crosses on its way into a backup carries UTF-8 alone, so other names
// are refused where a table is made, and where a backup would lose them.
func TestTableNames(t *testing.T) {
	db := mustOpen(t, txn.Options{})
	for _, name := range []string{"caf\xe9", "\xff", "\xfe"} {
		_, err := txn.CreateRawTable(db, name)
		says(t, "CreateRawTable", err, txn.ErrOptions, "UTF-8")
		if _, err := db.Space().CreateTable(name, nil); err == nil {
			t.Errorf("the catalog takes a table %q", name)
		}
		if err := (&snapshot.Table{Name: name}).Validate(); err == nil {
			t.Errorf("a backup takes a table %q", name)
		}
	}
	if _, err := txn.CreateRawTable(db, "café"); err != nil {
		t.Error(err)
	}
	if names := must(db.Tables()); len(names) != 1 || names[0] != "café" {
		t.Errorf("tables %q", names)
	}
}
