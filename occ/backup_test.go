package occ_test

import (
	"errors"
	"testing"

	"txnode/occ"
)

// TestBackupsOfInserts: the block of a key that is being inserted is not on the
// backups yet. Who reads from backups must meet its lock all the same: to take the
// key for absent would let it come before a transaction that it comes after.
func TestBackupsOfInserts(t *testing.T) {
	for _, p := range policies {
		b := newBed(t, 3, 2, occ.Options{Policy: p, ReadBackups: true})
		_, one := b.session()
		_, two := b.session()
		must(t, one.Begin())
		i, err := one.Stage(b.table, []byte("k"), true)
		must(t, err)
		must(t, one.Insert(i, []byte("1")))
		must(t, one.Execute())
		if err := b.do(two, get("k")); !errors.Is(err, occ.ErrConflict) {
			t.Errorf("policy %v: reading a key that is being inserted: %v", p, err)
		}
		must(t, one.Commit())
		if v, ok := b.value(two, "k"); !ok || v != "1" {
			t.Errorf("policy %v: k is %q, %v", p, v, ok)
		}
	}
}
