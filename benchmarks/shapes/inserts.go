package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"txnode/txn"
)

// spread is an odd number: with it the keys come in no order, and each once.
const spread = 0x9E3779B97F4A7C15

// load inserts n keys, the multiples of step, and returns how long each hundredth of
// them has taken.
func load(ctx context.Context, db *txn.DB, t *table, n, batch int, step uint64,
	done *atomic.Int64) (hundredths []time.Duration, err error) {
	start := time.Now()
	for i := 0; i < n; i += batch {
		err := db.Update(ctx, func(tx *txn.Tx) error {
			for j := i; j < min(i+batch, n); j++ {
				if err := insert(t, tx, uint64(j)*step); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		d := min(i+batch, n)
		done.Store(int64(d))
		if d*100/n > len(hundredths) {
			hundredths = append(hundredths, time.Since(start))
			start = time.Now()
		}
	}
	return hundredths, nil
}

// loaded fails unless a thousand of the keys of load are there, and the next one is not.
func loaded(ctx context.Context, db *txn.DB, t *table, n int, step uint64) error {
	for i := range 1000 {
		k := uint64(n-1-i*(n/1000)) * step
		if err := expect(ctx, db, t, k, k, true); err != nil {
			return err
		}
	}
	return expect(ctx, db, t, uint64(n)*step, 0, false)
}

// inserts measures time and memory of inserts, of one goroutine.
func (b *bench) inserts(ctx context.Context) error {
	for _, c := range []struct {
		order string
		step  uint64
		batch int
	}{
		{"in order", 1, 1},
		{"in no order", spread, 1},
		{"in order", 1, 100},
		{"in no order", spread, 100},
	} {
		var hundredths []time.Duration
		var took, busy time.Duration
		var memory float64
		closing, err := with(ctx, txn.Options{}, func(db *txn.DB, t *table) error {
			var done atomic.Int64
			defer b.watch("inserts", &done, b.keys)()
			had, start := resident(), time.Now()
			before, err := processor()
			if err != nil {
				return err
			}
			if hundredths, err = load(ctx, db, t, b.keys, c.batch, c.step, &done); err != nil {
				return err
			}
			after, err := processor()
			if err != nil {
				return err
			}
			took, busy, memory = time.Since(start), after-before, resident()-had
			return loaded(ctx, db, t, b.keys, c.step)
		})
		if err != nil {
			return err
		}
		slices.Sort(hundredths)
		b.line("inserts", fmt.Sprintf("%d keys %s, %d in a transaction", b.keys, c.order, c.batch),
			"%.1f us each, %.1f of a processor; slowest hundredth %.1f x the median; %.0f bytes of memory a key; "+
				"closed in %v",
			each(took, b.keys), each(busy, b.keys),
			float64(hundredths[len(hundredths)-1])/float64(hundredths[len(hundredths)/2]),
			memory/float64(b.keys), closing.Round(time.Millisecond))
	}
	return nil
}

// churn measures one goroutine that inserts a key and deletes an old one, again and
// again: neither time nor memory may grow.
func (b *bench) churn(ctx context.Context) error {
	live := min(10_000, b.keys)
	pairs := 0
	var took time.Duration
	var memory float64
	var heap runtime.MemStats
	closing, err := with(ctx, txn.Options{}, func(db *txn.DB, t *table) error {
		for start := time.Now(); took < 6*b.time || pairs < live; took = time.Since(start) {
			k := uint64(pairs)
			err := db.Update(ctx, func(tx *txn.Tx) error { return insert(t, tx, k) })
			if err == nil && pairs >= live {
				err = db.Update(ctx, func(tx *txn.Tx) error { return t.Delete(tx, k-uint64(live)) })
			}
			if err != nil {
				return err
			}
			pairs++
		}
		memory = resident()
		runtime.GC()
		runtime.ReadMemStats(&heap)
		for k := max(0, pairs-2*live); k < pairs; k++ {
			if err := expect(ctx, db, t, uint64(k), uint64(k), k >= pairs-live); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.line("churn", fmt.Sprintf("%d keys, the oldest replaced for %v", live, took.Round(time.Second)),
		"%.0f pairs/s; process %.0f MiB, Go heap %.0f MiB; closed in %v",
		float64(pairs)/took.Seconds(), memory/mib, float64(heap.HeapAlloc)/mib, closing.Round(time.Millisecond))
	return nil
}
