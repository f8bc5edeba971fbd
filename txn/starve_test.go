package txn_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"txnode/txn"
)

// TestNobodyStarves: who holds a lock for long, and takes it again at once, lets others in; and
// who reads much comes to an end beside those who write a little of it.
func TestNobodyStarves(t *testing.T) {
	if testing.Short() {
		t.Skip("takes time")
	}
	t.Run("locks", func(t *testing.T) {
		db := openMemory(t, txn.Options{})
		tab := table(t, db, "t")
		fill(t, db, tab, 1, val(1))
		const each, clients = 10, 2
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var hungry atomic.Int32
		hungry.Store(clients)
		var wg sync.WaitGroup
		for c := range clients {
			wg.Go(func() {
				for n := 0; hungry.Load() > 0 && ctx.Err() == nil; n++ {
					if err := db.Update(ctx, func(tx *txn.Tx) error {
						v, err := tab.GetForUpdate(tx, 0)
						if err != nil {
							return err
						}
						time.Sleep(2 * time.Millisecond)
						return tab.Put(tx, 0, v)
					}); err != nil {
						t.Errorf("client %d, transaction %d: %v", c, n, err)
						hungry.Store(0)
					}
					if n == each {
						hungry.Add(-1)
					}
				}
			})
		}
		wg.Wait()
	})
	t.Run("reads", func(t *testing.T) {
		db := openMemory(t, txn.Options{Retries: 300})
		tab := table(t, db, "t")
		const keys = 1000
		fill(t, db, tab, keys, val(1))
		var done atomic.Bool
		var wg sync.WaitGroup
		for c := range uint64(2) {
			wg.Go(func() {
				for k := c; !done.Load(); k = (k + 389) % keys {
					if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, k, val(2)) }); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for range 3 {
			if err := db.View(t.Context(), func(tx *txn.Tx) error {
				for k := range uint64(keys) {
					if _, err := tab.Get(tx, k); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
		done.Store(true)
		wg.Wait()
	})
}
