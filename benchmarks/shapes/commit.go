package main

import (
	"context"
	"fmt"
	"time"

	"txnode/txn"
)

// commit measures durable commits of many goroutines, by the number of workers.
func (b *bench) commit(ctx context.Context) error {
	for _, workers := range []int{1, 8, 64, 128} {
		if err := b.commitDurably(ctx, b.goroutines/2, workers); err != nil {
			return fmt.Errorf("%d workers: %w", workers, err)
		}
	}
	return nil
}

func (b *bench) commitDurably(ctx context.Context, goroutines, workers int) error {
	const keys = 1000 // of each goroutine, in turn
	dir, remove, err := b.temporary()
	if err != nil {
		return err
	}
	defer remove()
	var took time.Duration
	total := 0
	o := txn.Options{Dir: dir, Durability: txn.DurabilityPower, Workers: workers}
	_, err = with(ctx, o, func(db *txn.DB, t *table) error {
		commits := make([]uint64, goroutines)
		key := func(g int, i uint64) uint64 { return uint64(g)<<32 | i%keys }
		start := time.Now()
		err := together(goroutines, func(g int) error {
			for time.Since(start) < b.time {
				i := commits[g]
				if err := db.Update(ctx,
					func(tx *txn.Tx) error { return t.Put(tx, key(g, i), [2]uint64{i}) }); err != nil {
					return err
				}
				commits[g]++
			}
			return nil
		})
		took = time.Since(start)
		for g, n := range commits {
			if err != nil {
				break
			}
			total += int(n)
			if n > 0 {
				err = expect(ctx, db, t, key(g, n-1), n-1, true)
			}
		}
		return err
	})
	if err == nil {
		b.line("commit", fmt.Sprintf("%d goroutines, %d workers", goroutines, workers), "%6.0f/s",
			float64(total)/took.Seconds())
	}
	return err
}
