package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"txnode/txn"
)

// crowd is goroutines that increment keys in db.Update, one transaction after the other.
type crowd struct {
	goroutines, keys int
	perTx            int           // keys of a transaction, drawn
	unlocked         bool          // they are read, and not locked before they are written
	hold             time.Duration // while the locks are held

	beside func(db *txn.DB, t *table) error // what ends it; nil: time
}

// outcome is what became of a crowd's transactions.
type outcome struct {
	took      time.Duration
	commits   []int           // of each goroutine, from the least
	latencies []time.Duration // of all transactions, from the shortest
	conflicts int             // that ended with ErrConflict
}

func (c crowd) String() string {
	s := fmt.Sprintf("%d goroutines, of %d keys %d ", c.goroutines, c.keys, c.perTx)
	switch {
	case c.hold > 0:
		return s + fmt.Sprintf("held for %v", c.hold)
	case c.unlocked:
		return s + "read and written"
	}
	return s + "locked and written"
}

// contention measures who waits for how long when many want the same keys.
func (b *bench) contention(ctx context.Context) error {
	for _, c := range []crowd{
		{goroutines: b.goroutines, keys: 10, perTx: 1},
		{goroutines: b.goroutines, keys: 10, perTx: 3},
		{goroutines: b.goroutines, keys: 10, perTx: 1, unlocked: true},
		{goroutines: b.goroutines, keys: 1, perTx: 1},
		{goroutines: 2, keys: 1, perTx: 1, hold: 2 * time.Millisecond},
		{goroutines: 16, keys: 1, perTx: 1, hold: 20 * time.Millisecond},
	} {
		o, err := c.run(ctx, b.time)
		if err != nil {
			return fmt.Errorf("%v: %w", c, err)
		}
		n := len(o.latencies)
		ms := func(i int) float64 { return float64(o.latencies[i]) / 1e6 }
		b.line("contention", c.String(),
			"%8.0f/s, %d to %d by each; p50 %.1f, p99 %.1f, longest %.0f ms; %d ErrConflict",
			float64(n-o.conflicts)/o.took.Seconds(), o.commits[0], o.commits[len(o.commits)-1], ms(n/2), ms(n*99/100),
			ms(n-1), o.conflicts)
	}
	return errors.Join(b.views(ctx, false), b.views(ctx, true))
}

// run has the crowd work for d, or beside what ends it.
func (c crowd) run(ctx context.Context, d time.Duration) (o outcome, err error) {
	commits, latencies := make([]int, c.goroutines), make([][]time.Duration, c.goroutines)
	var stop atomic.Bool
	var conflicts, increments atomic.Int64
	work := func(db *txn.DB, t *table, g int) error {
		read := t.GetForUpdate
		if c.unlocked {
			read = t.Get
		}
		r := rand.New(rand.NewPCG(uint64(g), 1))
		for start := time.Now(); ; {
			err := db.Update(ctx, func(tx *txn.Tx) error {
				for range c.perTx {
					k := r.Uint64N(uint64(c.keys))
					v, err := read(tx, k)
					if err != nil {
						return err
					}
					v[0]++
					if err := t.Put(tx, k, v); err != nil {
						return err
					}
				}
				if c.hold > 0 {
					time.Sleep(c.hold)
				}
				return nil
			})
			now := time.Now()
			latencies[g] = append(latencies[g], now.Sub(start))
			start = now
			switch {
			case err == nil:
				commits[g]++
			case errors.Is(err, txn.ErrConflict):
				conflicts.Add(1)
			default:
				return err
			}
			if stop.Load() {
				increments.Add(int64(commits[g] * c.perTx))
				return nil
			}
		}
	}
	_, err = with(ctx, txn.Options{}, func(db *txn.DB, t *table) error {
		err := db.Update(ctx, func(tx *txn.Tx) error {
			for k := range uint64(c.keys) {
				if err := t.Put(tx, k, [2]uint64{}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		start := time.Now()
		err = together(c.goroutines+1, func(g int) error {
			if g < c.goroutines {
				return work(db, t, g)
			}
			defer stop.Store(true)
			if c.beside != nil {
				return c.beside(db, t)
			}
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
			return nil
		})
		o.took = time.Since(start)
		if err != nil {
			return err
		}
		return db.View(ctx, func(tx *txn.Tx) error {
			n, err := sum(tx, t, c.keys)
			if want := uint64(increments.Load()); err == nil && n != want {
				err = fmt.Errorf("the keys have %d increments, and %d were committed", n, want)
			}
			return err
		})
	})
	o.commits, o.latencies, o.conflicts = slices.Sorted(slices.Values(commits)), slices.Concat(latencies...),
		int(conflicts.Load())
	slices.Sort(o.latencies)
	return o, err
}

// sum is that of the keys below n, got one after the other.
func sum(tx *txn.Tx, t *table, n int) (sum uint64, err error) {
	for k := range uint64(n) {
		v, err := t.Get(tx, k)
		if err != nil {
			return 0, err
		}
		sum += v[0]
	}
	return sum, nil
}

// views measures Views of many keys that two goroutines increment meanwhile.
func (b *bench) views(ctx context.Context, staged bool) error {
	c := crowd{goroutines: 2, keys: min(1000, b.keys/10), perTx: 1}
	var attempts []int
	var took []time.Duration
	last := uint64(0)
	c.beside = func(db *txn.DB, t *table) error {
		for range 5 {
			time.Sleep(b.time / 50) // some transactions between two Views
			start, tried, seen := time.Now(), 0, uint64(0)
			err := db.View(ctx, func(tx *txn.Tx) (err error) {
				tried++
				for k := uint64(0); staged && k < uint64(c.keys); k++ {
					if err := t.Stage(tx, k, txn.ForRead); err != nil {
						return err
					}
				}
				seen, err = sum(tx, t, c.keys)
				return err
			})
			if err == nil && seen < last {
				err = fmt.Errorf("a View has seen %d increments, and the one before it %d", seen, last)
			}
			if err != nil {
				return fmt.Errorf("after %d attempts of a View: %w", tried, err)
			}
			attempts, took, last = append(attempts, tried), append(took, time.Since(start)), seen
		}
		return nil
	}
	if _, err := c.run(ctx, 0); err != nil {
		return err
	}
	how := "got in turn"
	if staged {
		how = "staged"
	}
	b.line("contention", fmt.Sprintf("View of %d keys, %s, beside 2 writers", c.keys, how),
		"%d to %d attempts, %v to %v",
		slices.Min(attempts), slices.Max(attempts), slices.Min(took).Round(time.Millisecond),
		slices.Max(took).Round(time.Millisecond))
	return nil
}
