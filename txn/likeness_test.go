package txn_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"txnode/internal/raced"
	"txnode/txn"
)

// TestDamagedBesideLikeness: records are damaged, and some of them share fingerprint and
// buckets with others, so that a lookup has to read several. Each is said to be damaged, and
// the others are read.
func TestDamagedBesideLikeness(t *testing.T) {
	raced.Skip(t)
	for _, size := range []int{16, 6000} { // the larger ones fill the arena when they are read again and again
		o := tiny()
		o.Dir, o.Retries = t.TempDir(), 3
		db := mustOpen(t, o)
		tab := table(t, db, "t")
		const n = 600
		for k := range uint64(n) {
			v := []byte("sound")
			if k%3 == 0 {
				v = bytes.Repeat([]byte("needle! "), size/8)
			}
			if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, k, v) }); err != nil {
				t.Fatal(err)
			}
		}
		close1(t, db)
		for b := range 2 {
			path := filepath.Join(o.Dir, fmt.Sprintf("blade-%03d.region", b))
			p, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, bytes.ReplaceAll(p, []byte("needle! "), []byte("needle? ")),
				0o644); err != nil {
				t.Fatal(err)
			}
		}
		db = mustOpen(t, o)
		tab = table(t, db, "t")
		for k := range uint64(n) {
			get := db.View(t.Context(), func(tx *txn.Tx) error { _, err := tab.Get(tx, k); return err })
			lock := db.Update(t.Context(), func(tx *txn.Tx) error { _, err := tab.GetForUpdate(tx, k); return err })
			if k%3 == 0 {
				says(t, fmt.Sprintf("Get of %d", k), get, txn.ErrCorrupt, "checksum")
				says(t, fmt.Sprintf("GetForUpdate of %d", k), lock, txn.ErrCorrupt, "checksum")
			} else if get != nil || lock != nil {
				t.Errorf("%d: %v, %v", k, get, lock)
			}
		}
		close1(t, db)
	}
}
