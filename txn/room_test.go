package txn_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"txnode/txn"
)

// TestRoomForATable: a new database has room for a table with a record, or is refused with the size
// that has, and nothing is left in its directory.
func TestRoomForATable(t *testing.T) {
	for segment := uint32(256 << 10); segment <= 1<<20; segment *= 2 {
		for _, g := range []struct{ blades, backups int }{
			{1, 0}, {2, 0}, {2, 1}, {3, 0}, {3, 1}, {3, 2}, {4, 1}, {4, 2},
		} {
			o := txn.Options{Blades: g.blades, Backups: txn.F(g.backups), SegmentSize: segment}
			o.BladeSize = txn.LeastBladeSize(o)
			name := fmt.Sprintf("%d blades of %d bytes, %d backups, segments of %d",
				g.blades, o.BladeSize, g.backups, segment)
			db, err := txn.Open(t.Context(), o)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			tab, err := txn.CreateTable(db, "t", txn.Uint64, txn.Plain[int64]())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 1, 1) }); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := db.Close(t.Context()); err != nil {
				t.Error(err)
			}
			least := o.BladeSize
			o.BladeSize -= 64 << 10
			o.Dir = filepath.Join(t.TempDir(), "new")
			_, err = txn.Open(t.Context(), o)
			says(t, name, err, txn.ErrOptions, fmt.Sprint("BladeSize is ", o.BladeSize), fmt.Sprint(least))
			if _, err := os.Lstat(o.Dir); !os.IsNotExist(err) {
				t.Errorf("%s: there is something: %v", name, err)
			}
		}
	}
	_, err := txn.Open(t.Context(), txn.Options{BladeSize: 1 << 20})
	says(t, "a MiB", err, txn.ErrOptions, "BladeSize is 1048576: a table takes 4 segments of 262144 bytes on a blade",
		"raise BladeSize to 1114112")
	_, err = txn.Open(t.Context(), txn.Options{Dir: t.TempDir(), Blades: 2, Backups: txn.F(2)})
	says(t, "more backups than blades, in a directory", err, txn.ErrOptions, "too few for 3 copies")
	// One that is there is opened as it is: with a smaller index it has had room.
	o := txn.Options{Dir: t.TempDir(), Blades: 1, BladeSize: 3<<18 + 64<<10, SegmentSize: 256 << 10, IndexGroups: 8}
	for range 2 {
		db, err := txn.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := txn.CreateTable(db, "t", txn.Uint64, txn.Plain[int64]()); err != nil {
			t.Error(err)
		}
		if err := db.Close(t.Context()); err != nil {
			t.Error(err)
		}
		o.IndexGroups = 0
	}
}
