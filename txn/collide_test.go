package txn_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/internal/raced"
	"txnode/occ"
	"txnode/txn"
)

// TestInsertsShareBuckets: a transaction that inserts many keys, or looks for keys that
// are not there and inserts others, does not take its own blocks, in the buckets that
// it has seen, for somebody else's. It would do so again in every attempt.
func TestInsertsShareBuckets(t *testing.T) {
	raced.Skip(t)
	for _, p := range policies(t) {
		t.Run(p.String(), func(t *testing.T) { insertsShareBuckets(t, p) })
	}
}

func insertsShareBuckets(t *testing.T, p occ.Policy) {
	db := mustOpen(t, txn.Options{Retries: 3, IndexGroups: 16, Policy: p})
	for n := range 30 {
		table := must(txn.CreateTable(db, fmt.Sprint("t", n), txn.Uint64, txn.Plain[uint64]()))
		for lo := uint64(0); lo < 1024; lo += 64 {
			insert := func(tx *txn.Tx) error {
				for k := lo; k < lo+64; k++ {
					if err := table.Stage(tx, k, txn.ForUpdate); err != nil {
						return err
					}
				}
				for k := lo; k < lo+64; k++ {
					if k%8 == 7 { // stays absent, and is validated
						continue
					}
					if err := table.Insert(tx, k, k); err != nil {
						return err
					}
				}
				return nil
			}
			// One that changes its mind is validated too, without the key that it never fetched.
			stop := errors.New("stop")
			if err := db.Update(t.Context(), func(tx *txn.Tx) error {
				if err := insert(tx); err != nil {
					return err
				}
				if err := table.Stage(tx, 1<<40, txn.ForRead); err != nil {
					return err
				}
				return stop
			}); !errors.Is(err, stop) {
				t.Fatalf("table %d, keys from %d: %v", n, lo, err)
			}
			if err := db.Update(t.Context(), insert); err != nil {
				t.Fatalf("table %d, keys from %d: %v", n, lo, err)
			}
		}
	}
}
