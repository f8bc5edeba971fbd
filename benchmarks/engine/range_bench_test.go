package engine_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/workload"
	"txnode/txn"
)

// BenchmarkScan reads so many rows of 100 bytes, which were inserted in order, in one
// transaction of one worker.
func BenchmarkScan(b *testing.B) {
	const rows, size = 100_000, 100
	ctx := b.Context()
	store, err := engine.Open(ctx, txn.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close(ctx)
	if _, err := store.Tables(ctx, []workload.Table{{Name: "rows", MaxValue: size, Ordered: true}}); err != nil {
		b.Fatal(err)
	}
	value := make([]byte, size)
	err = workload.Scan(ctx, store, rows, 100, nil, func(w workload.Worker) func(context.Context, int, int) error {
		return func(ctx context.Context, lo, hi int) error {
			return w.Update(ctx, func(tx workload.Tx) error {
				for i := lo; i < hi; i++ {
					if err := tx.Insert(0, uint64(i), value); err != nil {
						return err
					}
				}
				return nil
			})
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			err := store.Run(ctx, 1, 1, func(ctx context.Context, _ int, w workload.Worker) error {
				rng := workload.NewRand(1, 1)
				for range b.N {
					from, seen := uint64(rng.Intn(rows-n+1)), 0
					err := w.View(ctx, func(tx workload.Tx) error {
						r, err := workload.RangerOf(tx)
						if err != nil {
							return err
						}
						seen = 0
						return r.Range(0, workload.Range{
							From: from, To: math.MaxUint64, Limit: n,
						}, func(uint64, []byte) bool {
							seen++
							return true
						})
					})
					if err != nil || seen != n {
						return fmt.Errorf("%d rows from %d on, not %d: %w", seen, from, n, err)
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
