package txn_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"txnode/internal/raced"
	"txnode/memory/layout"
	"txnode/txn"
)

// TestInterruptedCalls: while epochs begin all the time, as when copies have moved, tables and
// indexes are made, read, built and dropped, workers come and go, and so do processes, and backups
// are made. No call fails by that.
func TestInterruptedCalls(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			ctx := context.Background()
			o := sharedOf(t, 3, 64<<20)
			o.Shared = shared
			db := mustOpen(t, o)
			people, err := txn.CreateTable(db, "people", txn.Uint64, txn.JSON[person]())
			if err != nil {
				t.Fatal(err)
			}
			const rows = 1000
			if _, err := people.Load(ctx, func(yield func(uint64, person) bool) {
				for k := range uint64(rows) {
					if !yield(k, person{Name: fmt.Sprint(k % 10)}) {
						return
					}
				}
			}, txn.LoadOptions{}); err != nil {
				t.Fatal(err)
			}
			var most atomic.Int64
			end := db.Interrupt(&most)
			rounds := 8
			if testing.Short() || raced.Enabled {
				rounds = 4
			}
			for i := range rounds {
				most.Store(int64(3 * time.Millisecond))
				if raced.Enabled { // all takes longer
					most.Store(int64(500 * time.Millisecond))
				}
				interruptedRound(t, o, db, i, rows)
				most.Store(int64(400 * time.Millisecond)) // what was left by each is swept meanwhile
				for _, err := range []error{
					db.DropIndex(ctx, "people", fmt.Sprint("i", i)), db.DropTable(ctx, "h"), db.DropTable(ctx, "o"),
				} {
					if err != nil {
						t.Errorf("dropping: %v", err)
					}
				}
				if t.Failed() {
					break
				}
			}
			n, err := end()
			if t.Logf("%d epochs", n); err != nil || n < rounds {
				t.Errorf("%d epochs have begun: %v", n, err)
			}
			swept(t, db)
			audit(t, db)
		})
	}
}

// interruptedRound is round i of TestInterruptedCalls.
func interruptedRound(t *testing.T, o txn.Options, db *txn.DB, i, rows int) {
	t.Helper()
	ctx := context.Background()
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	byName := txn.NewIndex("by_name", txn.String, func(_ uint64, p person) []string { return []string{p.Name} })
	h, err := txn.CreateTable(db, "h", txn.Uint64, txn.JSON[person](), byName)
	ok("creating a table", err)
	x, err := txn.CreateOrderedTable(db, "o", txn.Uint64, txn.JSON[person]())
	ok("creating an ordered table", err)
	if t.Failed() {
		return
	}
	w, err := db.NewWorker()
	ok("making a worker", err)
	for k := range uint64(100) {
		put := func(tx *txn.Tx) error {
			p := person{Name: fmt.Sprint(k)}
			if err := h.Put(tx, k, p); err != nil {
				return err
			}
			return x.Put(tx, k, p)
		}
		if k%2 == 0 {
			ok("putting", w.Update(ctx, put))
		} else {
			ok("putting", db.Update(ctx, put))
		}
	}
	ok("maintenance", w.Maintain())
	ok("closing a worker", w.Close())
	for _, name := range []string{"h", "o"} {
		raw, err := txn.OpenAnyTable(db, name)
		ok("opening a table", err)
		st, err := raw.Stats(ctx)
		if ok("reading a table", err); st.Rows != 100 {
			t.Errorf("table %q has %d rows", name, st.Rows)
		}
	}
	if !t.Failed() && o.Shared {
		other, err := txn.Open(ctx, o)
		if ok("opening the database", err); err == nil {
			_, err = txn.CreateOrderedTable(other, fmt.Sprintf("of another %d", i), txn.Uint64, txn.JSON[person]())
			ok("creating a table in another process", err)
			ok("closing the database", other.Close(ctx))
		}
		ro := o
		ro.ReadOnly = true
		reader, err := txn.Open(ctx, ro)
		if ok("opening the database to read", err); err == nil {
			same := txn.NewIndex("by_name", txn.String, func(_ uint64, p person) []string { return []string{p.Name} })
			y, err := txn.OpenTable(reader, "h", txn.Uint64, txn.JSON[person](), same)
			ok("opening a table to read", err)
			ok("reading", reader.View(ctx, func(tx *txn.Tx) error {
				n := 0
				for range y.Keys(tx) {
					n++
				}
				if n != 100 {
					return fmt.Errorf("%d keys", n)
				}
				return nil
			}))
			ok("closing the database that was read", reader.Close(ctx))
		}
	}
	index := txn.NewIndex(fmt.Sprint("i", i), txn.String, func(_ uint64, p person) []string { return []string{p.Name} })
	_, err = txn.CreateTable(db, "people", txn.Uint64, txn.JSON[person](), index)
	ok("adding an index", err)
	ok("building it", index.Build(ctx, nil))
	found := 0
	ok("reading it", db.View(ctx, func(tx *txn.Tx) error {
		found = 0
		for range index.Range(tx, txn.Bound[string]{}, txn.Bound[string]{}) {
			found++
		}
		return nil
	}))
	if found != rows {
		t.Errorf("the index has %d rows; want %d", found, rows)
	}
	info, err := db.Backup(ctx, io.Discard, txn.BackupOptions{})
	if ok("making a backup", err); info.Records < uint64(rows) {
		t.Errorf("the backup has %d records", info.Records)
	}
}

// TestDropAfterEpoch: an epoch begins in which all transactions were decided, and a table
// is dropped while workers are at rest that do not know of it. The table is gone for good
// when that returns.
func TestDropAfterEpoch(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		db := mustOpen(t, txn.Options{Blades: 2, BladeSize: 64 << 20, Workers: 3})
		x := makeLedger(t, db, "t", ordered)
		x.fill(t, db, 0, 100, 100, 1)
		var open []*txn.Tx
		for range 3 { // each worker has begun a transaction
			tx, err := db.Begin(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, tx)
		}
		for _, tx := range open {
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.InterruptOnce(); err != nil {
			t.Fatal(err)
		}
		if err := db.DropTable(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		ts, err := db.Space().Tables()
		if err != nil {
			t.Fatal(err)
		}
		if s := ts[0].State; s != layout.TableDropped {
			t.Errorf("ordered: %v, the state of the table is %v", ordered, s)
		}
	}
}
