package txn_test

import (
	"errors"
	"slices"
	"testing"

	"txnode/memory/layout"
	"txnode/rdma/inproc"
	"txnode/txn"
)

// TestReturned: the server of a blade restarts that has the last copies of data, while the
// database is open. If its region is what it was, nothing is lost; if it is blank, what
// had no other copy is.
func TestReturned(t *testing.T) {
	for _, c := range []struct {
		name         string
		blades, f    int
		blank, loses bool
	}{
		{"one blade", 1, 0, false, false},
		{"without backups", 3, 0, false, false},
		{"the last copy", 2, 1, false, false},
		{"without backups, blank", 3, 0, true, true},
		{"the last copy, blank", 2, 1, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := t.Context()
			f, err := inproc.New(inproc.Options{
				Seed: 1, Blades: slices.Repeat([]inproc.BladeOptions{{Size: 16 << 20}}, c.blades),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			o := onFabric(f, txn.PolicyDefault)
			o.Backups = txn.F(c.f)
			db := reopen(t, o)
			tab := table(t, db, "t")
			const keys = 200
			put := func(v uint64) {
				t.Helper()
				for k := range uint64(keys) {
					if err := db.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, k, val(v)) }); err != nil {
						t.Fatalf("value %d, key %d: %v", v, k, err)
					}
				}
			}
			put(1)
			if c.f > 0 {
				if err := f.StopBlade(1); err != nil { // what it had has its last copy elsewhere
					t.Fatal(err)
				}
				put(2)
			}
			want := val(uint64(1 + c.f))
			for round := range 3 {
				if err := errors.Join(f.StopBlade(0), f.RestartBlade(0, !c.blank)); err != nil {
					t.Fatal(err)
				}
				lost := 0
				for k := range uint64(keys) {
					err := db.View(ctx, func(tx *txn.Tx) error {
						v, err := tab.Get(tx, k)
						if err == nil && string(v) != string(want) {
							t.Errorf("round %d: key %d is %q", round, k, v)
						}
						return err
					})
					switch {
					case errors.Is(err, layout.ErrLost):
						lost++
					case err != nil:
						t.Fatalf("round %d: key %d: %v", round, k, err)
					}
				}
				if (lost > 0) != c.loses {
					t.Fatalf("round %d: %d of %d records are lost", round, lost, keys)
				}
				if c.loses {
					break
				}
				put(uint64(3 + round))
				want = val(uint64(3 + round))
			}
			if err := db.Close(ctx); err != nil && !c.loses {
				t.Fatal(err)
			}
		})
	}
}
