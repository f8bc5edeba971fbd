package txn_test

import (
	"context"
	"encoding/binary"
	"testing"

	"txnode/internal/raced"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// TestIDsUsedUp: the transaction ids of a coordinator are used up while the coroutines of its
// thread are at work. The session goes on as another one, and nobody is told.
func TestIDsUsedUp(t *testing.T) {
	raced.Skip(t)
	for _, d := range []txn.Durability{txn.DurabilityProcess, txn.DurabilityPower} {
		for _, coroutines := range []int{1, 4} {
			for left := range uint64(12) {
				f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 32 << 20, Caps: later, Seed: left})
				o := onFabric(f, txn.PolicyDefault)
				o.Durability, o.Retries = d, 1000
				db := reopen(t, o)
				tab := table(t, db, "t")
				fill(t, db, tab, 4, val(0))
				const each = 20
				err := db.Run(t.Context(), 2, coroutines, func(ctx context.Context, id int, w *txn.Worker) error {
					if id == 0 {
						w.SpendIDs(left)
					}
					for range each {
						err := w.Update(ctx, func(tx *txn.Tx) error {
							v, err := tab.GetForUpdate(tx, 1)
							if err != nil {
								return err
							}
							return tab.Put(tx, 1, val(binary.LittleEndian.Uint64(v)+1))
						})
						if err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Errorf("durability %v, %d coroutines, %d ids left: %v", d, coroutines, left, err)
				}
				if got, want := binary.LittleEndian.Uint64(contents(t, db, tab, 2)[1]),
					uint64(2*each*coroutines); got != want && err == nil {
					t.Errorf("durability %v, %d coroutines, %d ids left: %d updates are counted, of %d",
						d, coroutines, left, got, want)
				}
				close1(t, db)
			}
		}
	}
}

// TestIDsUsedUpBesideUnwound: and somebody has died in the middle of a commit.
func TestIDsUsedUpBesideUnwound(t *testing.T) {
	raced.Skip(t)
	for k := range 40 {
		f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 32 << 20, Caps: later, Seed: uint64(k)})
		o := onFabric(f, txn.PolicyDefault)
		o.Durability = txn.DurabilityPower
		db := reopen(t, o)
		tab := table(t, db, "t")
		fill(t, db, tab, 20, val(0))
		w := newWorker(t, db)
		w.SpendIDs(2)
		dieCommitting(t, db, tab, k)
		for i := range 4 {
			if err := w.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 1, val(3)) }); err != nil {
				t.Fatalf("after %d us: update %d: %v", k, i, err)
			}
		}
		if err := w.Close(); err != nil {
			t.Errorf("after %d us: %v", k, err)
		}
		close1(t, db)
	}
}
