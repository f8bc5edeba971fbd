package txn_test

import (
	"errors"
	"testing"

	"txnode/txn"
)

// ledger is a table whose records come and go, all of a size.
type ledger struct {
	from   func(tx *txn.Tx, k uint64) (int, error) // how many rows there are from a key on; of an ordered one
	put    func(tx *txn.Tx, k uint64, v []byte) error
	get    func(tx *txn.Tx, k uint64) ([]byte, bool, error)
	remove func(tx *txn.Tx, k uint64) error
}

// makeLedger makes a table, or opens it.
func makeLedger(t *testing.T, db *txn.DB, name string, ordered bool) ledger {
	t.Helper()
	if ordered {
		return orderedLedger(t, db, name, txn.Uint64)
	}
	x, err := txn.CreateTable(db, name, txn.Uint64, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return ledger{nil, x.Put, x.Lookup, x.Delete}
}

func orderedLedger(t *testing.T, db *txn.DB, name string, key txn.Key[uint64]) ledger {
	t.Helper()
	x, err := txn.CreateOrderedTable(db, name, key, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	from := func(tx *txn.Tx, k uint64) (int, error) { return x.Count(tx, txn.Including(k), txn.Bound[uint64]{}) }
	return ledger{from, x.Put, x.Lookup, x.Delete}
}

// fill puts records of a size with the keys from..to, and returns the first that had no room.
func (x ledger) fill(t *testing.T, db *txn.DB, from, to uint64, size int, mark byte) uint64 {
	t.Helper()
	for k := from; k < to; {
		n := k
		err := db.Update(t.Context(), func(tx *txn.Tx) error {
			for n = k; n < min(k+16, to); n++ {
				v := make([]byte, size)
				v[0], v[size-1] = mark, byte(n)
				if err := x.put(tx, n, v); err != nil {
					return err
				}
			}
			return nil
		})
		if errors.Is(err, txn.ErrNoSpace) {
			return k
		}
		if err != nil {
			t.Fatal(err)
		}
		k = n
	}
	return to
}

// clear deletes records with the keys from..to.
func (x ledger) clear(t *testing.T, db *txn.DB, from, to uint64) {
	t.Helper()
	for k := from; k < to; k += 16 {
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			for n := k; n < min(k+16, to); n++ {
				if err := x.remove(tx, n); err != nil && !errors.Is(err, txn.ErrNotFound) {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
