package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"txnode/benchmarks/workload"
)

// entrant is a contender with its store open and loaded.
type entrant struct {
	contender
	store  workload.Store
	driver workload.Driver
	rounds []round
}

// round is one run of one store.
type round struct {
	seconds  float64
	outcomes [workload.NumOutcomes]uint64
	aborts   uint64 // conflicts, retried
}

// rate returns committed transactions per second.
func (r *round) rate() float64 { return float64(r.outcomes[workload.Committed]) / r.seconds }

// compete runs a workload on all stores and returns them with their rounds. The
// stores are closed. Lines about the progress go to stderr.
func compete(ctx context.Context, o *options, name string, stderr io.Writer) (_ []*entrant, err error) {
	var entrants []*entrant
	defer func() {
		for _, e := range entrants {
			if cerr := e.store.Close(context.WithoutCancel(ctx)); cerr != nil && err == nil {
				err = fmt.Errorf("%s: closing: %w", e.name, cerr)
			}
		}
	}()
	for _, c := range o.stores {
		if c.coroutines == 0 {
			c.coroutines = o.coroutines
		}
		driver, err := drivers[name](o)
		if err != nil {
			return nil, err
		}
		store, err := c.open(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("%s: opening: %w", c.name, err)
		}
		entrants = append(entrants, &entrant{contender: c, store: store, driver: driver})
		loaded, err := driver.Load(ctx, store, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Fprintf(stderr, "%s: %s: %s\n", name, c.name, loaded.Summary)
	}
	for n := range o.rounds + 1 { // the first one warms up
		for i := range entrants {
			e := entrants[(i+n)%len(entrants)]
			r, err := e.measure(ctx, o, uint64(n))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e.name, err)
			}
			if n == 0 {
				continue
			}
			e.rounds = append(e.rounds, r)
			fmt.Fprintf(stderr, "%s: round %d of %d: %s: %.0f committed/s\n", name, n, o.rounds, e.name, r.rate())
		}
	}
	for _, e := range entrants {
		if _, err := e.driver.Verify(ctx, e.store); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return entrants, nil
}

// settle is how long the stores' background work may go on before the next
// round begins.
const settle = 200 * time.Millisecond

// measure runs one round.
func (e *entrant) measure(ctx context.Context, o *options, n uint64) (round, error) {
	time.Sleep(settle)
	runtime.GC()
	var (
		stop  atomic.Bool
		timer sync.Once
		mu    sync.Mutex // guards the rest
		total round
		first = int64(math.MaxInt64)
		last  = int64(math.MinInt64)
	)
	defer context.AfterFunc(ctx, func() { stop.Store(true) })()
	err := e.store.Run(ctx, o.threads, e.coroutines, func(ctx context.Context, id int, w workload.Worker) error {
		client := e.driver.NewClient(id, o.seed+n, w)
		var outcomes [workload.NumOutcomes]uint64
		timer.Do(func() { time.AfterFunc(o.duration, func() { stop.Store(true) }) })
		before, start := w.Counters(), e.store.Now()
		for !stop.Load() {
			client.Next()
			outcome, err := client.Run(ctx)
			if err != nil {
				stop.Store(true)
				return err
			}
			outcomes[outcome]++
		}
		end, counters := e.store.Now(), w.Counters().Sub(before)
		mu.Lock()
		defer mu.Unlock()
		first, last = min(first, start), max(last, end)
		for i, count := range outcomes {
			total.outcomes[i] += count
		}
		for _, count := range counters.Aborts {
			total.aborts += count
		}
		return nil
	})
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && total.outcomes[workload.Committed] == 0 {
		err = fmt.Errorf("nothing was committed in %v; give it more with --duration", o.duration)
	}
	total.seconds = float64(last-first) / 1e9
	return total, err
}
