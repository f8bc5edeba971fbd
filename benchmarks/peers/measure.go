package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"txnode/benchmarks/workload"
)

// entrant is a contender with its store open and loaded.
type entrant struct {
	contender
	size   int // of options.rows; 0 in other workloads
	store  workload.Store
	driver workload.Driver
	rounds [][]round // by heat
}

// heat is one comparison of all entrants.
type heat struct {
	threads int
	typ     int // of the transactions; mixed: all types, by the mix
}

// mixed is heat.typ of the mix.
const mixed = -1

// heats lists the comparisons of a contest.
func (c *contest) heats(o *options, d workload.Driver) (all []heat) {
	for _, threads := range o.threads {
		if !c.each {
			all = append(all, heat{threads, mixed})
			continue
		}
		for typ, name := range d.Types() {
			if o.types == nil || slices.Contains(o.types, name) {
				all = append(all, heat{threads, typ})
			}
		}
	}
	return all
}

// label is what the heat is called in reports.
func (h heat) label(d workload.Driver) string {
	if h.typ == mixed {
		return d.Name()
	}
	return d.Types()[h.typ]
}

// round is one run of one store.
type round struct {
	seconds  float64
	outcomes [workload.NumOutcomes]uint64
	aborts   uint64 // conflicts, retried
	mallocs  uint64 // objects that the process has put on the heap
	orders   uint64 // committed transactions of TPC-C's type NewOrder
}

// orderType is the type of which TPC-C counts transactions a minute.
const orderType = "NewOrder"

// rate returns committed transactions per second.
func (r *round) rate() float64 { return float64(r.outcomes[workload.Committed]) / r.seconds }

// compete runs a workload on all stores and returns them with their rounds. The
// stores are closed. Lines about the progress go to stderr.
func compete(ctx context.Context, o *options, c *contest, stderr io.Writer) (_ []*entrant, err error) {
	var entrants []*entrant
	defer func() {
		for _, e := range entrants {
			if cerr := e.store.Close(context.WithoutCancel(ctx)); cerr != nil && err == nil {
				err = fmt.Errorf("%s: closing: %w", e.name, cerr)
			}
		}
	}()
	runtime.GOMAXPROCS(slices.Max(o.threads))
	for _, size := range c.sizes(o) {
		for _, store := range o.stores {
			e, err := enter(ctx, o, c, store, size, stderr)
			if errors.Is(err, errNotInstalled) {
				fmt.Fprintf(stderr, "%s: %s is left out: %v\n", c.name, store.name, err)
				continue
			}
			if e != nil {
				entrants = append(entrants, e)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", store.name, err)
			}
		}
	}
	if len(entrants) == 0 {
		return nil, errors.New("there is no store left")
	}
	for _, e := range entrants {
		if err := e.choose(ctx, o, c, stderr); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	stop, err := profile(o.profile)
	if err != nil {
		return nil, err
	}
	defer stop()
	for _, h := range c.heats(o, entrants[0].driver) {
		runtime.GOMAXPROCS(h.threads)
		for _, e := range entrants {
			e.rounds = append(e.rounds, nil)
		}
		for n := range o.rounds + 1 { // the first one warms up
			for i := range entrants {
				e := entrants[(i+n)%len(entrants)]
				r, err := e.measure(ctx, o, h, uint64(n))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", e.name, err)
				}
				if n == 0 {
					continue
				}
				last := len(e.rounds) - 1
				e.rounds[last] = append(e.rounds[last], r)
				fmt.Fprintf(stderr, "%s: %d threads: round %d of %d: %s: %.0f committed/s\n",
					h.label(e.driver), h.threads, n, o.rounds, e.name, r.rate())
			}
		}
	}
	stop()
	runtime.GOMAXPROCS(slices.Max(o.threads))
	for _, e := range entrants {
		if _, err := e.driver.Verify(ctx, e.store); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return entrants, nil
}

// enter opens a store and loads it. The entrant is not nil if the store is open.
func enter(ctx context.Context, o *options, c *contest, of contender, size int, stderr io.Writer) (*entrant, error) {
	if of.coroutines == 0 {
		of.coroutines = cmp.Or(o.coroutines, c.coroutines)
	}
	driver, err := c.driver(o, size)
	if err != nil {
		return nil, err
	}
	store, err := of.open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("opening: %w", err)
	}
	e := &entrant{contender: of, size: size, store: store, driver: driver}
	start := time.Now()
	loaded, err := driver.Load(ctx, store, nil)
	if err == nil {
		fmt.Fprintf(stderr, "%s: %s: %s, loaded in %v\n", c.name, e.name, loaded.Summary,
			time.Since(start).Round(time.Millisecond))
	}
	return e, err
}

// choose takes the number of workers per thread with which the store is fastest, if it has
// several to choose from.
func (e *entrant) choose(ctx context.Context, o *options, c *contest, stderr io.Writer) error {
	if o.coroutines > 0 || e.workers == nil {
		return nil
	}
	best := 0.0
	chosen := e.coroutines
	for _, e.coroutines = range e.workers {
		h := c.heats(o, e.driver)[0]
		runtime.GOMAXPROCS(h.threads)
		r, err := e.measure(ctx, o, h, 0)
		if err != nil {
			return err
		}
		fmt.Fprintf(stderr, "%s: %s: with %d workers a thread %.0f committed/s\n",
			c.name, e.name, e.coroutines, r.rate())
		if r.rate() > best {
			best, chosen = r.rate(), e.coroutines
		}
	}
	e.coroutines = chosen
	return nil
}

// measure runs one round.
func (e *entrant) measure(ctx context.Context, o *options, h heat, n uint64) (round, error) {
	time.Sleep(o.settle)
	runtime.GC()
	var (
		stop  atomic.Bool
		timer sync.Once
		mu    sync.Mutex // guards the rest
		total round
		first = int64(math.MaxInt64)
		last  = int64(math.MinInt64)
	)
	ordered := slices.Index(e.driver.Types(), orderType)
	defer context.AfterFunc(ctx, func() { stop.Store(true) })()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := e.store.Run(ctx, h.threads, e.coroutines, func(ctx context.Context, id int, w workload.Worker) error {
		client := e.driver.NewClient(id, o.seed+n, w)
		var outcomes [workload.NumOutcomes]uint64
		orders := uint64(0)
		timer.Do(func() { time.AfterFunc(o.duration, func() { stop.Store(true) }) })
		before, start := w.Counters(), e.store.Now()
		for more := true; more; more = !stop.Load() { // once at least
			typ := h.typ
			if typ == mixed {
				typ = client.Next()
			} else {
				client.Draw(h.typ)
			}
			outcome, err := client.Run(ctx)
			if err != nil {
				stop.Store(true)
				return err
			}
			if outcomes[outcome]++; outcome == workload.Committed && typ == ordered {
				orders++
			}
		}
		end, counters := e.store.Now(), w.Counters().Sub(before)
		mu.Lock()
		defer mu.Unlock()
		first, last = min(first, start), max(last, end)
		for i, count := range outcomes {
			total.outcomes[i] += count
		}
		total.orders += orders
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
	runtime.ReadMemStats(&after)
	total.mallocs = after.Mallocs - before.Mallocs
	total.seconds = float64(last-first) / 1e9
	return total, err
}

// profile begins to write a profile into a file, if it has a name, and returns what ends that. It
// may be called again.
func profile(name string) (stop func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return sync.OnceFunc(func() {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "peers: the profile:", err)
		}
	}), nil
}
