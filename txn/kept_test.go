package txn_test

import (
	"errors"
	"testing"

	"txnode/txn"
)

// TestKeptTx: a Tx that was kept after its function has returned is refused, also while its worker
// runs the next transactions, whatever is called with it.
func TestKeptTx(t *testing.T) {
	db := mustOpen(t, txn.Options{Workers: 1})
	tab, raw := table(t, db, "t"), must(txn.CreateRawTable(db, "raw"))
	w := must(db.NewWorker())
	defer w.Close()
	for name, run := range map[string]func(fn func(*txn.Tx) error) error{
		"Update": func(fn func(*txn.Tx) error) error { return db.Update(t.Context(), fn) },
		"View":   func(fn func(*txn.Tx) error) error { return db.View(t.Context(), fn) },
		"Worker": func(fn func(*txn.Tx) error) error { return w.Update(t.Context(), fn) },
		"Begin": func(fn func(*txn.Tx) error) error {
			tx, err := db.Begin(t.Context(), false)
			if err != nil {
				return err
			}
			return errors.Join(fn(tx), tx.Commit())
		},
	} {
		var kept *txn.Tx
		var id uint64
		if err := run(func(tx *txn.Tx) error { kept, id = tx, tx.ID(); return nil }); err != nil {
			t.Fatal(err)
		}
		for range 200 { // longer than any number of handles is kept
			if err := run(func(*txn.Tx) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		err := run(func(tx *txn.Tx) error {
			_, get := tab.Get(kept, 1)
			_, forUpdate := tab.GetForUpdate(kept, 1)
			_, has := tab.Has(kept, 1)
			_, rawGet := raw.Get(kept, []byte("k"))
			for i, err := range []error{
				get, forUpdate, has, rawGet, tab.Put(kept, 1, nil), tab.Insert(kept, 1, nil), tab.Delete(kept, 1),
				tab.Stage(kept, 1, txn.ForUpdate),
				raw.Put(kept, []byte("k"), nil), raw.Insert(kept, []byte("k"), nil), raw.Delete(kept, []byte("k")),
				raw.Stage(kept, []byte("k"), txn.ForRead),
				kept.Execute(), kept.Commit(), kept.Fetch([]txn.Row{{Table: raw, Key: []byte("12345678")}}),
				(&txn.Row{Table: raw, Key: []byte("12345678")}).Put(kept, nil),
			} {
				if !errors.Is(err, txn.ErrTxDone) {
					t.Errorf("%s: operation %d with a Tx that was kept: %v", name, i, err)
				}
			}
			if err := kept.Rollback(); err != nil {
				t.Error(err)
			}
			if kept.ValidateAtEnd(); kept.ID() != id || tx.ID() == id {
				t.Errorf("%s: the transaction was %d, now it is %d", name, id, kept.ID())
			}
			if _, err := tab.Get(tx, 1); !errors.Is(err, txn.ErrNotFound) {
				t.Errorf("%s: what was written with it: %v", name, err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
