package main

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"txnode/benchmarks/workload"
)

// runWorkers is Store.Run for stores whose workers are goroutines.
func runWorkers(ctx context.Context, n int, newWorker func() workload.Worker,
	fn func(ctx context.Context, id int, w workload.Worker) error) error {
	var (
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for id := range n {
		wg.Go(func() {
			if err := fn(ctx, id, newWorker()); err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	wg.Wait()
	return first
}

// clock is the time of a store since it was opened.
type clock struct{ start time.Time }

func newClock() clock { return clock{time.Now()} }

// Now implements workload.Store.
func (c clock) Now() int64 { return int64(time.Since(c.start)) }

// keySpace is what stores with one key space have in common. A table is the first byte of a key, so
// there is nothing to create.
type keySpace struct {
	clock
	existed bool
}

func newKeySpace() keySpace { return keySpace{clock: newClock()} }

// Tables implements workload.Store.
//
//nolint:unparam // the interface has an error
func (s *keySpace) Tables(context.Context, []workload.Table) (bool, error) {
	existed := s.existed
	s.existed = true
	return existed, nil
}

// oneByOne is what workers have in common that read and write keys one by one, so that it does not
// help to be told of them before.
type oneByOne struct{ counters workload.Counters }

// Counters implements workload.Worker.
func (w *oneByOne) Counters() workload.Counters { return w.counters }

// Prepare implements workload.Worker.
func (*oneByOne) Prepare(uses []workload.Use) workload.Plan { return workload.PlanEach(uses) }

// Stage implements workload.Tx.
func (*oneByOne) Stage(int, uint64, workload.Mode) {}

// keyBytes is the length of a key of a store with one key space.
const keyBytes = 9

// appendKey appends the key of a row in a store with one key space: the table,
// then the key in the order of numbers.
func appendKey(b []byte, table int, key uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, byte(table)), key)
}

// arena holds the keys and values of one transaction.
type arena struct{ free []byte }

// arenaBytes is the size of a chunk, which holds many transactions' keys and
// values; larger transactions get more chunks.
const arenaBytes = 1 << 14

// take returns an empty slice with room for n bytes, valid until reset.
func (a *arena) take(n int) []byte {
	if cap(a.free)-len(a.free) < n {
		a.free = make([]byte, 0, max(n, arenaBytes))
	}
	from := len(a.free)
	a.free = a.free[:from+n]
	return a.free[from:from:len(a.free)]
}

// reset takes everything back.
func (a *arena) reset() { a.free = a.free[:0] }
