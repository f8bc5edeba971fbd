package txn_test

import (
	"math"
	"testing"
	"time"

	"txnode/txn"
)

// TestKeysOneByOne: what a key costs that is locked when it is fetched does not grow with the
// number of those that were fetched before.
func TestKeysOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("takes time")
	}
	db := openMemory(t, txn.Options{BladeSize: 256 << 20, Arena: 64 << 20})
	tab, err := txn.CreateTable(db, "t", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	const few, many = 1000, 16000
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		for k := range uint64(many) {
			if err := tab.Put(tx, k, k); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	each := func(n uint64) float64 {
		start := time.Now()
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			for k := range n {
				v, err := tab.GetForUpdate(tx, k)
				if err != nil {
					return err
				}
				if err := tab.Put(tx, k, v+1); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return float64(time.Since(start)) / float64(n)
	}
	lo, hi := math.Inf(1), math.Inf(1)
	for range 5 {
		lo, hi = min(lo, each(few)), min(hi, each(many))
	}
	if hi > 5*lo {
		t.Errorf("a key of %d costs %.0f ns, one of %d %.0f", many, hi, few, lo)
	}
}
