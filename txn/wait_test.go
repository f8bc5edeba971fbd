package txn_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"txnode/txn"
)

// TestNestedWorkers: requests that begin a second transaction while their first is open.
// When all workers are held by such requests one of them gets an error that names the cause,
// and the others go on.
func TestNestedWorkers(t *testing.T) {
	const workers = 3
	db := mustOpen(t, txn.Options{Workers: workers, WorkerWait: -1})
	defer txn.OnlyDatabase()()
	tab := table(t, db, "t")
	ctx := t.Context()
	for name, inner := range map[string]func(k uint64) error{
		"View": func(k uint64) error {
			return db.View(ctx, func(tx *txn.Tx) error { _, err := tab.Has(tx, k); return err })
		},
		"Update": func(k uint64) error {
			return db.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, 100+k, nil) })
		},
		"Begin": func(uint64) error {
			tx, err := db.Begin(ctx, true)
			if err == nil {
				err = tx.Rollback()
			}
			return err
		},
	} {
		var in, all sync.WaitGroup
		in.Add(workers)
		errs := make([]error, 20*workers)
		for i := range errs {
			first := i < workers
			all.Go(func() {
				errs[i] = db.Update(ctx, func(tx *txn.Tx) error {
					if first { // each has a worker before any asks for a second one
						first = false
						in.Done()
						in.Wait()
					}
					return errors.Join(tab.Put(tx, uint64(i), nil), inner(uint64(i)))
				})
			})
			if i == workers-1 {
				in.Wait()
			}
		}
		all.Wait()
		failed := 0
		for _, err := range errs {
			if err != nil {
				failed++
				if !errors.Is(err, txn.ErrNoWorker) || !strings.Contains(err.Error(), "use the function's own tx") {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if failed == 0 || failed == len(errs) {
			t.Errorf("%s: %d of %d have failed", name, failed, len(errs))
		}
	}
}

// TestWorkerWait: what no stack tells, as of transactions of Begin, is bounded by WorkerWait,
// and by the context.
func TestWorkerWait(t *testing.T) {
	db := mustOpen(t, txn.Options{Workers: 1, WorkerWait: time.Millisecond})
	held := must(db.Begin(t.Context(), false))
	for range 2 {
		_, err := db.Begin(t.Context(), false)
		says(t, "Begin", err, txn.ErrNoWorker, "all 1 ", "WorkerWait")
		says(t, "View", db.View(t.Context(), func(*txn.Tx) error { return nil }), txn.ErrNoWorker)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	says(t, "Update", db.Update(ctx, func(*txn.Tx) error { return nil }), context.Canceled)
	if err := held.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := db.View(t.Context(), func(*txn.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
}

// TestCloseInside: Close would wait for the transaction of its caller.
func TestCloseInside(t *testing.T) {
	db := mustOpen(t, txn.Options{})
	defer txn.OnlyDatabase()()
	err := db.Update(t.Context(), func(*txn.Tx) error { return db.Close(context.Background()) })
	if err == nil || !strings.Contains(err.Error(), "outside") {
		t.Error(err)
	}
	if err := db.View(t.Context(), func(*txn.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
}

// TestKeyErrors: what is wrong with a key names the table and the key, in the words of its type.
func TestKeyErrors(t *testing.T) {
	db := mustOpen(t, txn.Options{})
	numbers := must(txn.CreateTable(db, "numbers", txn.Int64, txn.Text()))
	names := must(txn.CreateTable(db, "names", txn.String, txn.Text()))
	raw := must(txn.CreateRawTable(db, "raw"))
	long := []byte(strings.Repeat("\xff", 100))
	err := db.Update(t.Context(), func(tx *txn.Tx) error {
		_, get := numbers.Get(tx, -5)
		says(t, "Get", get, txn.ErrNotFound, `table "numbers", key -5`)
		says(t, "Delete", names.Delete(tx, "a b"), txn.ErrNotFound, `table "names", key "a b"`)
		_, get = raw.Get(tx, long)
		says(t, "raw Get", get, txn.ErrNotFound, `table "raw", key 0xffffff`)
		var e *txn.KeyError
		if !errors.As(get, &e) || e.Table != "raw" || string(e.Key) != string(long) {
			t.Errorf("%+v", e)
		}
		if err := names.Put(tx, "x", "1"); err != nil {
			return err
		}
		says(t, "Insert", names.Insert(tx, "x", "2"), txn.ErrExists, `table "names", key "x"`)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = db.View(t.Context(), func(tx *txn.Tx) error {
		_, update := names.GetForUpdate(tx, "x")
		says(t, "GetForUpdate", update, txn.ErrReadOnly, "View", `table "names", key "x"`)
		says(t, "Insert", names.Insert(tx, "y", "2"), txn.ErrReadOnly, `key "y"`)
		return names.Put(tx, "x", "2")
	})
	says(t, "Put in View", err, txn.ErrReadOnly, "View", `table "names", key "x"`)
}
