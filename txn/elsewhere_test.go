package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"testing"

	"txnode/internal/raced"
	"txnode/txn"
)

// TestRestoreElsewhere: the backup of a database that is full can be restored, on as many
// blades and with as many backups as it had, or on fewer, or with more.
func TestRestoreElsewhere(t *testing.T) {
	raced.Skip(t)
	o := tiny()
	o.Blades, o.BladeSize, o.Backups = 4, 3<<20, txn.F(1)
	db := mustOpen(t, o)
	tables := []*txn.RawTable{}
	for _, name := range []string{"a", "b"} {
		raw, err := txn.CreateRawTable(db, name)
		if err != nil {
			t.Fatal(err)
		}
		tables = append(tables, raw)
	}
	n := 0
	for full := false; !full; n++ {
		err := db.Update(t.Context(), func(tx *txn.Tx) error {
			for i, raw := range tables {
				if err := raw.Put(tx, fmt.Append(nil, n), bytes.Repeat([]byte{byte(n)}, 20+i*n%3000)); err != nil {
					return err
				}
			}
			return nil
		})
		if full = errors.Is(err, txn.ErrNoSpace); err != nil && !full {
			t.Fatal(err)
		}
	}
	read := func(db *txn.DB) map[string]string {
		t.Helper()
		all := map[string]string{}
		for _, name := range []string{"a", "b"} {
			raw, err := txn.OpenRawTable(db, name)
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				err := db.View(t.Context(), func(tx *txn.Tx) error {
					v, err := raw.Get(tx, fmt.Append(nil, i))
					if err == nil {
						all[fmt.Sprint(name, i)] = string(v)
					} else if errors.Is(err, txn.ErrNotFound) {
						err = nil
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		return all
	}
	want := read(db)
	var file bytes.Buffer
	if _, err := db.Backup(t.Context(), &file, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, to := range []struct{ blades, backups int }{{4, 1}, {2, 1}, {4, 2}, {3, 2}, {1, 0}, {8, 1}} {
		dir := filepath.Join(t.TempDir(), "d")
		x := txn.Options{Blades: to.blades, Backups: txn.F(to.backups)}
		if _, err := txn.RestoreDir(t.Context(), bytes.NewReader(file.Bytes()), dir, x,
			txn.BackupOptions{}); err != nil {
			t.Errorf("on %d blades, with %d backups: %v", to.blades, to.backups, err)
			continue
		}
		back := mustOpen(t, txn.Options{Dir: dir})
		if got := read(back); len(got) < 100 || !maps.Equal(got, want) {
			t.Errorf("on %d blades, with %d backups: %d records, not %d", to.blades, to.backups, len(got), len(want))
		}
		if err := back.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
