package workload

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// scanThreads bounds the threads of [Scan]: loading and checking are limited by
// memory, not by the number of cores, long before this.
const scanThreads = 8

// Scan divides the units 0..total-1 into ranges of at most batch, and hands
// them to several workers of the store, in increasing order. It calls
// newWorker once in each worker, and what that returns for each of the
// worker's ranges lo..hi-1. It returns the first error, after which no range is
// begun. progress may be nil; see Driver.Load.
func Scan(ctx context.Context, store Store, total, batch int, progress func(done, total int),
	newWorker func(w Worker) func(ctx context.Context, lo, hi int) error) error {
	var (
		next   atomic.Int64
		failed atomic.Bool
		mu     sync.Mutex // guards done, and is held while progress runs
		done   int
	)
	parts := (total + batch - 1) / batch
	threads := max(min(runtime.GOMAXPROCS(0), scanThreads, parts), 1)
	coroutines := 1
	if x, ok := store.(Overlapper); ok {
		coroutines = max(min(x.Overlap(), parts/threads), 1)
	}
	err := store.Run(ctx, threads, coroutines, func(ctx context.Context, _ int, w Worker) error {
		do := newWorker(w)
		for !failed.Load() {
			hi := int(next.Add(int64(batch)))
			lo := hi - batch
			if lo >= total {
				return nil
			}
			hi = min(hi, total)
			err := ctx.Err()
			if err == nil {
				err = do(ctx, lo, hi)
			}
			if err != nil {
				failed.Store(true)
				return err
			}
			if progress != nil {
				mu.Lock()
				done += hi - lo
				progress(done, total)
				mu.Unlock()
			}
		}
		return nil
	})
	return err
}
