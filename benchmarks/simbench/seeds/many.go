package seeds

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// RunMany runs the seeds from, from+1, ... on several processors, until one
// violates something; it returns what they have come to, of which Runs is how many
// were run to their ends, and that violation. progress, if not nil, is called now and
// then.
func RunMany(ctx context.Context, from, count uint64, workers int, o Options,
	progress func(done uint64)) (seen Coverage, err error) {
	var (
		next, ran atomic.Uint64
		stop      atomic.Bool
		mu        sync.Mutex
		found     error
		at        uint64
		wg        sync.WaitGroup
	)
	o.Canceled = func() bool { return ctx.Err() != nil }
	for range max(workers, 1) {
		wg.Go(func() {
			for !stop.Load() && ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= count {
					return
				}
				r, err := Run(from+i, o)
				if errors.Is(err, context.Canceled) {
					return
				}
				n := ran.Add(1)
				mu.Lock()
				seen.Add(&r.Coverage)
				if err != nil && (found == nil || i < at) {
					found, at = err, i
					stop.Store(true)
				}
				if progress != nil {
					progress(n)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if found == nil {
		found = context.Cause(ctx)
	}
	return seen, found
}

// Minimize runs the seed of a violation again, with ever fewer of its faults, and
// returns the violation with the fewest that is found.
func Minimize(v *Violation) *Violation {
	v.Options.Trace, v.Options.Record, v.Options.History = nil, nil, nil // they have what the caller wanted to see
	for i := 0; i < len(v.Faults) && len(v.Faults) > 1; {
		o := v.Options
		o.Only = slices.Delete(slices.Clone(v.Faults), i, i+1)
		var less *Violation
		if _, err := Run(v.Seed, o); errors.As(err, &less) {
			v = less
			continue
		}
		i++
	}
	return v
}
