package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"txnode/memory"
	"txnode/memory/catalog/catalogtest"
	"txnode/txn"
)

// TestUnheardWorker: a process that hears nothing of the catalog meets a lock, or a log record, of
// a worker that has been registered meanwhile. It leaves both alone: no update is lost.
func TestUnheardWorker(t *testing.T) {
	o := sharedOn(t, 2)
	o.Retries = 40
	near := mustOpen(t, o)
	cat := &catalogtest.Unheard{Catalog: o.Catalog}
	o.Catalog = cat
	cut := mustOpen(t, o)
	var tables [2]*txn.Table[string, uint64]
	for i, db := range []*txn.DB{near, cut} {
		var err error
		if tables[i], err = txn.CreateTable(db, "t", txn.String, txn.Plain[uint64]()); err != nil {
			t.Fatal(err)
		}
	}
	add := func(i int, between func()) func(tx *txn.Tx) error {
		return func(tx *txn.Tx) error {
			v, err := tables[i].GetForUpdate(tx, "n")
			if err != nil && !errors.Is(err, txn.ErrNotFound) {
				return err
			}
			between()
			return tables[i].Put(tx, "n", v+1)
		}
	}
	ctx := context.Background()
	nothing := func() {}
	for i, db := range []*txn.DB{near, cut} {
		if err := db.Update(ctx, add(i, nothing)); err != nil {
			t.Fatal(err)
		}
	}
	cat.Away.Store(true)
	w, err := near.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	attempts := 0
	if err := w.Update(ctx, func(tx *txn.Tx) error {
		attempts++
		return add(0, func() {
			if attempts > 1 {
				return
			}
			if err := cut.Update(ctx, add(1, nothing)); !errors.Is(err, txn.ErrConflict) {
				t.Errorf("the record is locked, and the catalog cannot be asked by whom: %v", err)
			}
		})(tx)
	}); err != nil {
		t.Error(err)
	}
	cat.Away.Store(false)
	if err := cut.Update(ctx, add(1, nothing)); err != nil {
		t.Error(err)
	}
	var n uint64
	if err := near.View(ctx, func(tx *txn.Tx) (err error) {
		n, err = tables[0].Get(tx, "n")
		return err
	}); err != nil || n != 4 || attempts != 1 {
		t.Errorf("after 4 commits the counter is %d, %v; the holder of the lock began %d times", n, err, attempts)
	}
}

// TestUnheardTables: what a process has not heard of is not absent.
func TestUnheardTables(t *testing.T) {
	o := sharedOn(t, 2)
	near := mustOpen(t, o)
	cat := &catalogtest.Unheard{Catalog: o.Catalog}
	o.Catalog = cat
	cut := mustOpen(t, o)
	cat.Away.Store(true)
	if _, err := txn.CreateTable(near, "t", txn.String, txn.Plain[uint64]()); err != nil {
		t.Fatal(err)
	}
	if _, err := txn.OpenTable(cut, "t", txn.String, txn.Plain[uint64]()); !errors.Is(err, memory.ErrAway) ||
		errors.Is(err, txn.ErrNoTable) {
		t.Errorf("a table that another process has made: %v", err)
	}
	cat.Away.Store(false)
	if _, err := txn.OpenTable(cut, "t", txn.String, txn.Plain[uint64]()); err != nil {
		t.Error(err)
	}
}

// TestUnheardSegments: a record in a segment that a process has not heard of is not damaged,
// whether it is read, written, met in a loop or looked up by an index. The error says that
// the catalog is away.
func TestUnheardSegments(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered=%v", ordered), func(t *testing.T) {
			o := sharedOn(t, 2)
			near := mustOpen(t, o)
			cat := &catalogtest.Unheard{Catalog: o.Catalog}
			o.Catalog = cat
			cut := mustOpen(t, o)
			defer cat.Away.Store(false)
			first := firstByte("first")
			nearTable, table := bytesTable(t, near, ordered, firstByte("first")), bytesTable(t, cut, ordered, first)
			key := func(i int) []byte { return fmt.Appendf(nil, "key %04d", i) }
			put := func(i int, v []byte) error {
				return near.Update(t.Context(), func(tx *txn.Tx) error { return nearTable.Put(tx, key(i), v) })
			}
			if err := put(0, []byte("a")); err != nil {
				t.Fatal(err)
			}
			ways := map[string]func(tx *txn.Tx) error{
				"Get":    func(tx *txn.Tx) error { _, err := table.Get(tx, key(0)); return err },
				"Put":    func(tx *txn.Tx) error { return table.Put(tx, key(0), []byte("b")) },
				"Delete": func(tx *txn.Tx) error { return table.Delete(tx, key(0)) },
				"All": func(tx *txn.Tx) error {
					for range table.All(tx) {
						continue
					}
					return tx.Err()
				},
				"Rows": func(tx *txn.Tx) error {
					for range first.Rows(tx, txn.Unbounded[[]byte](), txn.Unbounded[[]byte]()) {
						continue
					}
					return tx.Err()
				},
			}
			if err := cut.View(t.Context(), ways["Rows"]); err != nil {
				t.Fatal(err)
			}
			cat.Away.Store(true)
			had := len(near.Space().Layout().Segments)
			// its block is of a class that has no segment yet
			if err := put(0, bytes.Repeat([]byte("a"), 3000)); err != nil {
				t.Fatal(err)
			}
			if len(near.Space().Layout().Segments) == had {
				t.Fatal("there is no new segment")
			}
			for way, fn := range ways {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // it may wait for the catalog
				err := cut.Update(ctx, fn)
				cancel()
				if err == nil || errors.Is(err, txn.ErrCorrupt) || errors.Is(err, txn.ErrNotFound) ||
					!errors.Is(err, memory.ErrAway) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", way, err)
				}
			}
			cat.Away.Store(false)
			for _, way := range []string{"Get", "All", "Rows", "Put", "Delete"} {
				if err := cut.Update(t.Context(), ways[way]); err != nil {
					t.Errorf("%s, when the catalog is back: %v", way, err)
				}
			}
		})
	}
}

// TestAwayIsWaitedFor: while the catalog is away, for as long as a restart takes, a session
// that must rejoin and a worker that is to be made wait for it: no error reaches the program,
// unless its context ends.
func TestAwayIsWaitedFor(t *testing.T) {
	t.Run("a session that rejoins", func(t *testing.T) { awayIsWaitedFor(t, true) })
	t.Run("a new worker", func(t *testing.T) { awayIsWaitedFor(t, false) })
}

func awayIsWaitedFor(t *testing.T, rejoins bool) {
	o := sharedOn(t, 2)
	o.Workers = 1
	near := mustOpen(t, o)
	cat := &catalogtest.Unheard{Catalog: o.Catalog}
	o.Catalog = cat
	cut := mustOpen(t, o)
	defer cat.Away.Store(false)
	table, err := txn.CreateTable(cut, "t", txn.String, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	put := func(tx *txn.Tx) error { return table.Put(tx, "n", 1) }
	ctx := t.Context()
	if rejoins {
		if err := cut.Update(ctx, put); err != nil {
			t.Fatal(err)
		}
		if err := near.Space().Follow(); err != nil {
			t.Fatal(err)
		}
		if _, err := near.Recover(ctx); err != nil { // as if its lease had expired
			t.Fatal(err)
		}
	}
	cat.Away.Store(true)
	ended, cancel := context.WithCancel(ctx)
	errs := make(chan error, 2)
	go func() { errs <- cut.Update(ended, put) }()
	select {
	case err := <-errs:
		t.Fatalf("it does not wait for the catalog: %v", err)
	case <-time.After(50 * time.Millisecond): // what fails at once has failed
	}
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Errorf("without the catalog: %v", err)
	}
	go func() { errs <- cut.Update(context.Background(), put) }()
	go func() { errs <- cut.Update(ctx, put) }()
	select {
	case err := <-errs:
		t.Errorf("it does not wait for the catalog: %v", err)
		errs <- nil
	case <-time.After(20 * time.Millisecond):
	}
	cat.Away.Store(false)
	for range 2 {
		if err := <-errs; err != nil {
			t.Errorf("when the catalog is back: %v", err)
		}
	}
}
