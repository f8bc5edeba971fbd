package txn_test

import (
	"errors"
	"strings"
	"testing"

	"txnode/txn"
)

// TestLookup: a key that is there, one that is not, the transaction's own changes, and errors.
func TestLookup(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := create(t, db, "t", txn.String, txn.Plain[uint64]("count"))
	other := create(t, mustOpen(t, tiny()), "t", txn.String, txn.Plain[uint64]("count"))
	lookup := func(tx *txn.Tx, k string, want uint64, there bool) {
		t.Helper()
		if v, found, err := tab.Lookup(tx, k); v != want || found != there || err != nil {
			t.Errorf("%q: %d, %v, %v", k, v, found, err)
		}
	}
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		lookup(tx, "a", 0, false)
		if err := tab.Insert(tx, "a", 5); err != nil {
			return err
		}
		lookup(tx, "a", 5, true)
		return tab.Put(tx, "b", 7)
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		if err := tab.Stage(tx, "b", txn.ForRead); err != nil {
			return err
		}
		lookup(tx, "a", 5, true)
		lookup(tx, "b", 7, true)
		lookup(tx, "c", 0, false)
		if err := tab.Delete(tx, "a"); err != nil {
			return err
		}
		lookup(tx, "a", 0, false)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var kept *txn.Tx
	says(t, "another database", db.View(t.Context(), func(tx *txn.Tx) error {
		kept = tx
		_, _, err := other.Lookup(tx, "a")
		return err
	}), txn.ErrOtherDatabase)
	_, _, err := tab.Lookup(kept, "a")
	says(t, "after the end", err, txn.ErrTxDone)
	quiet(t, db)
}

// TestLookupAllocates nothing, whether the key is there or not.
func TestLookupAllocates(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := create(t, db, "t", txn.Uint64, txn.Plain[uint64]())
	w, err := db.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 1, 1) }); err != nil {
		t.Fatal(err)
	}
	fn := func(tx *txn.Tx) error {
		for k := range uint64(3) {
			if _, found, err := tab.Lookup(tx, k); err != nil || found != (k == 1) {
				t.Error(k, found, err)
			}
		}
		return nil
	}
	ctx := t.Context()
	if n := testing.AllocsPerRun(200, func() { _ = w.View(ctx, fn) }); n >= 1 {
		t.Errorf("%v allocations", n)
	}
}

// TestTableUpdate: whatever the function wants is done, and nothing else.
func TestTableUpdate(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := create(t, db, "t", txn.String, txn.Text())
	mine := errors.New("mine")
	for _, c := range []struct {
		name, key string
		before    string // "": absent
		after     string
		change    txn.Change
		err       error
		fails     error
	}{
		{"store, absent", "a", "", "new", txn.Store, nil, nil},
		{"store, present", "a", "new", "newer", txn.Store, nil, nil},
		{"keep, present", "a", "newer", "newer", txn.Keep, nil, nil},
		{"keep, absent", "b", "", "", txn.Keep, nil, nil},
		{"error", "a", "newer", "newer", txn.Store, mine, mine},
		{"unknown", "a", "newer", "newer", txn.Change(9), nil, txn.ErrOptions},
		{"remove, present", "a", "newer", "", txn.Remove, nil, nil},
		{"remove, absent", "a", "", "", txn.Remove, nil, nil},
	} {
		err := db.Update(t.Context(), func(tx *txn.Tx) error {
			err := tab.Update(tx, c.key, func(v string, found bool) (string, txn.Change, error) {
				if v != c.before || found != (c.before != "") {
					t.Errorf("%s: the function gets %q, %v", c.name, v, found)
				}
				if _, _, err := tab.Lookup(tx, "another, so that buffers are used again"); err != nil {
					return "", txn.Keep, err
				}
				return c.after, c.change, c.err
			})
			if v, _, e := tab.Lookup(tx, c.key); e != nil || err == nil && v != c.after || err != nil && v != c.before {
				t.Errorf("%s: in the transaction it is %q, %v", c.name, v, e)
			}
			return err
		})
		if !errors.Is(err, c.fails) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := db.View(t.Context(), func(tx *txn.Tx) error {
			v, _, err := tab.Lookup(tx, c.key)
			if v != c.after {
				t.Errorf("%s: afterwards it is %q", c.name, v)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	store := func(string, bool) (string, txn.Change, error) { return "", txn.Store, nil }
	says(t, "in View", db.View(t.Context(), func(tx *txn.Tx) error { return tab.Update(tx, "k", store) }),
		txn.ErrReadOnly, `key "k"`)
	says(t, "a function that commits", db.Update(t.Context(), func(tx *txn.Tx) error {
		return tab.Update(tx, "k", func(string, bool) (string, txn.Change, error) {
			_ = tx.Commit()
			return "x", txn.Store, nil
		})
	}), txn.ErrManaged)
	quiet(t, db)
}

// TestPlainName: a struct of the same size and another name is refused; without a name it is not
// told.
func TestPlainName(t *testing.T) {
	type account struct{ Balance uint64 }
	type person struct{ Born uint64 }
	db := mustOpen(t, tiny())
	create(t, db, "accounts", txn.Uint64, txn.Plain[account]("account"))
	create(t, db, "any", txn.Uint64, txn.Plain[account]())
	_, err := txn.OpenTable(db, "accounts", txn.Uint64, txn.Plain[person]("person"))
	says(t, "another name", err, txn.ErrTableType, "plain:8:account", "plain:8:person")
	_, err = txn.OpenTable(db, "accounts", txn.Uint64, txn.Plain[account]())
	says(t, "no name", err, txn.ErrTableType)
	create(t, db, "any", txn.Uint64, txn.Plain[person]())
	for _, names := range [][]string{{""}, {"a", "b"}} {
		if got := panics(func() { txn.Plain[account](names...) }); !strings.HasPrefix(got, "txn.Plain: ") {
			t.Errorf("%q: %s", names, got)
		}
	}
}
