package txn_test

import (
	"slices"
	"testing"

	"txnode/txn"
)

// TestIndexAgain: an index whose table was dropped, or that was dropped itself, makes the next
// table of that kind; one that is in use does not.
func TestIndexAgain(t *testing.T) {
	ctx := t.Context()
	db := mustOpen(t, tiny())
	byValue := txn.NewIndex("value", txn.Uint64, func(_ string, v uint64) []uint64 { return []uint64{v} })
	create := func() (*txn.Table[string, uint64], error) {
		return txn.CreateTable(db, "words", txn.String, txn.Plain[uint64](), byValue)
	}
	for _, drop := range []func() error{
		func() error { return db.DropTable(ctx, "words") }, func() error { return db.DropIndex(ctx, "words", "value") },
		func() error { return db.DropTable(ctx, "words") },
	} {
		words := must(create())
		_, err := create()
		says(t, "an index in use", err, txn.ErrOptions, "belongs to a table already")
		if err := byValue.Build(ctx, nil); err != nil { // after DropIndex the table has a record
			t.Fatal(err)
		}
		if err := db.Update(ctx, func(tx *txn.Tx) error { return words.Put(tx, "one", 1) }); err != nil {
			t.Fatal(err)
		}
		if err := db.View(ctx, func(tx *txn.Tx) error {
			n := 0
			for v, k := range byValue.Range(tx, txn.Unbounded[uint64](), txn.Unbounded[uint64]()) {
				if n++; v != 1 || k != "one" {
					t.Errorf("%d leads to %q", v, k)
				}
			}
			if n != 1 {
				t.Errorf("%d entries", n)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := drop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPrefixNeedsParts: a prefix of a tuple says how many parts count, since a whole key is not
// meant. All takes the options of Range.
func TestPrefixNeedsParts(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := must(txn.CreateOrderedTable(db, "t", txn.Tuple2Key(txn.String, txn.Uint64), txn.Plain[uint64]()))
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		for n := range uint64(3) {
			if err := tab.Put(tx, txn.T2("a", n), n); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	err := db.View(t.Context(), func(tx *txn.Tx) error {
		for k := range tab.Prefix(tx, txn.T2("a", uint64(0))) {
			t.Errorf("%v", k)
		}
		return nil
	})
	says(t, "without Parts", err, txn.ErrOptions, "needs Parts", "tuple(string,uint64)")
	var got []uint64
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		got = nil
		for _, v := range tab.Prefix(tx, txn.T2("a", uint64(0)), txn.Parts(1)) {
			got = append(got, v)
		}
		for _, v := range tab.All(tx, txn.Descending(), txn.Limit(2)) {
			got = append(got, v)
		}
		for _, v := range tab.All(tx) {
			got = append(got, v)
		}
		return nil
	}); err != nil || !slices.Equal(got, []uint64{0, 1, 2, 2, 1, 0, 1, 2}) {
		t.Errorf("%v, %v", got, err)
	}
}
