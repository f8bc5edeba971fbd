package txn_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"txnode/internal/raced"
	"txnode/memory/layout"
	"txnode/txn"
)

func rawTable(t testing.TB, db *txn.DB, name string) *txn.RawTable {
	t.Helper()
	tab, err := txn.CreateRawTable(db, name)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// TestRows: Fetch of keys of several tables, of every length, present or not, some of
// them twice, is one round trip and finds what Get finds; what Put of the rows has set is
// what another transaction reads.
func TestRows(t *testing.T) {
	db := mustOpen(t, tiny())
	a, b := rawTable(t, db, "a"), rawTable(t, db, "b")
	keys := [][]byte{val(1), val(2), []byte("a long key, longer than a word"), []byte("k"), val(3), val(4), val(1)}
	rows := make([]txn.Row, len(keys))
	for i := range rows {
		rows[i] = txn.Row{Table: a, Key: keys[i], Mode: txn.ForUpdate}
		if i%2 == 1 {
			rows[i].Table = b
		}
	}
	rows[4].Mode = txn.ForRead
	want := map[string]string{}
	put := func(tx *txn.Tx, i int, v string) {
		t.Helper()
		if err := rows[i].Put(tx, []byte(v)); err != nil {
			t.Error(err)
		}
		want[rows[i].Table.Name()+string(rows[i].Key)] = v
	}
	look := func(tx *txn.Tx, rows []txn.Row) {
		t.Helper()
		if err := tx.Fetch(rows); err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			r := &rows[i]
			if w, has := want[r.Table.Name()+string(r.Key)]; string(r.Value) != w || (r.Value != nil) != has {
				t.Errorf("row %d is %q, want %q (there: %v)", i, r.Value, w, has)
			}
		}
	}
	for round := range 4 {
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			look(tx, rows)
			for i := range rows {
				if i != 5 { // stays absent
					put(tx, i, fmt.Sprint(strings.Repeat("v", 10*round), i)) // 0 and 6 are one key
				}
			}
			look(tx, rows)
			put(tx, 0, "") // once more; and no value is not an empty one
			look(tx, rows[:1])
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := db.View(t.Context(), func(tx *txn.Tx) error {
			for _, r := range rows {
				v, err := r.Table.Get(tx, r.Key)
				if w, has := want[r.Table.Name()+string(r.Key)]; string(v) != w || has != (err == nil) {
					t.Errorf("%q is %q, %v; want %q", r.Key, v, err, w)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorker(t, db)
	defer w.Close()
	two := []txn.Row{{Table: a, Key: val(1)}, {Table: b, Key: val(2), Mode: txn.ForUpdate}}
	for warm := range 2 {
		before := w.Metrics().Verbs.RoundTrips
		if err := w.Update(t.Context(), func(tx *txn.Tx) error {
			look(tx, two)
			return two[1].Put(tx, []byte("w"))
		}); err != nil {
			t.Fatal(err)
		}
		want["b"+string(val(2))] = "w"
		// Lock and read, validate what is only read, commit.
		if n := w.Metrics().Verbs.RoundTrips - before; warm == 1 && n != 3 {
			t.Errorf("%d round trips", n)
		}
	}
	// Rows that another transaction has filled, in another order.
	swapped := []txn.Row{{Table: b, Key: val(2), Mode: txn.ForUpdate}, {Table: a, Key: val(1), Mode: txn.ForUpdate}}
	if err := w.Update(t.Context(), func(tx *txn.Tx) error {
		look(tx, swapped)
		return two[0].Put(tx, []byte("stale"))
	}); err != nil {
		t.Fatal(err)
	}
	want["a"+string(val(1))] = "stale"
	if err := w.View(t.Context(), func(tx *txn.Tx) error {
		look(tx, []txn.Row{{Table: a, Key: val(1)}, {Table: b, Key: val(2)}})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	quiet(t, db)
}

// TestRowErrors: Fetch and Put of rows are refused as Get and Put of their keys are.
func TestRowErrors(t *testing.T) {
	raced.Skip(t)
	db, other := mustOpen(t, tiny()), mustOpen(t, tiny())
	tab, foreign := rawTable(t, db, "t"), rawTable(t, other, "t")
	of := func(tab *txn.RawTable, key []byte, m txn.Mode) []txn.Row {
		return []txn.Row{{Table: tab, Key: key, Mode: m}}
	}
	fetch := func(rows []txn.Row) func(tx *txn.Tx) error {
		return func(tx *txn.Tx) error { return tx.Fetch(rows) }
	}
	put := func(tab *txn.RawTable) func(tx *txn.Tx) error {
		return func(tx *txn.Tx) error { return (&txn.Row{Table: tab, Key: val(1)}).Put(tx, val(1)) }
	}
	says(t, "a long key", as(t, db, fetch(of(tab, make([]byte, 1025), txn.ForRead))), txn.ErrTooLarge, "key", "1025")
	says(t, "Fetch for update in View", db.View(t.Context(), fetch(of(tab, val(1), txn.ForUpdate))), txn.ErrReadOnly)
	says(t, "Put in View", db.View(t.Context(), put(tab)), txn.ErrReadOnly)
	says(t, "Fetch of another database", db.Update(t.Context(), fetch(of(foreign, val(1), txn.ForRead))),
		txn.ErrOtherDatabase)
	says(t, "Put of another database", db.Update(t.Context(), put(foreign)), txn.ErrOtherDatabase)
	ctx, cancel := context.WithCancel(t.Context())
	says(t, "Fetch with a canceled context", db.Update(ctx, func(tx *txn.Tx) error {
		cancel()
		return tx.Fetch(of(tab, val(1), txn.ForUpdate))
	}), context.Canceled)
	if err := db.Update(t.Context(), put(tab)); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	rows := of(tab, val(1), txn.ForUpdate)
	if err := tx.Fetch(rows); err != nil {
		t.Fatal(err)
	}
	says(t, "Update of a row that is fetched for update", db.Update(t.Context(), put(tab)), txn.ErrConflict)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	says(t, "Fetch after the end", tx.Fetch(rows), txn.ErrTxDone)
	says(t, "Fetch of nothing after the end", tx.Fetch(nil), txn.ErrTxDone)
	says(t, "Put after the end", rows[0].Put(tx, val(2)), txn.ErrTxDone)
	quiet(t, db)
}

// TestRowsAllocateNothing, once warm.
func TestRowsAllocateNothing(t *testing.T) {
	for _, p := range policies(t) {
		db := mustOpen(t, txn.Options{Policy: p, Seed: 1, BladeSize: 1 << 30, SegmentSize: layout.MaxSegmentSize})
		a, b := rawTable(t, db, "a"), rawTable(t, db, "b")
		rows := []txn.Row{{Table: a, Key: val(0), Mode: txn.ForUpdate}, {Table: b, Key: val(0)}}
		value := val(7)
		ctx := context.Background()
		move := func(tx *txn.Tx) error {
			if err := tx.Fetch(rows); err != nil {
				return err
			}
			return rows[0].Put(tx, value)
		}
		k := byte(0)
		once := func() {
			k = (k + 1) % 16
			rows[0].Key[0], rows[1].Key[0] = k, k
			if err := db.Update(ctx, move); err != nil {
				t.Fatal(err)
			}
		}
		for range 256 { // past maintenance, too
			once()
		}
		if n := testing.AllocsPerRun(500, once); n != 0 {
			t.Errorf("policy %v: %v allocations", p, n)
		}
	}
}
