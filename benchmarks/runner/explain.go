package runner

import (
	"context"
	"errors"
	"fmt"
	"math"

	"txnode/benchmarks/workload"
)

// ExplainConfig says how much to run. The zero value is usable.
type ExplainConfig struct {
	// Warmup is the number of transactions, drawn by the mix, that fill caches
	// before anything is counted. Default 200,000.
	Warmup int
	// Samples is the number of transactions of each type that are counted. Default 2,000.
	Samples int
	// Seed of all draws.
	Seed uint64
	// Progress, if not nil, is called a few times a second.
	Progress func(Progress)
}

// Defaults of ExplainConfig.
const (
	DefaultExplainWarmup  = 200_000
	DefaultExplainSamples = 2_000
)

// Explained is what one transaction type costs when nothing disturbs it.
type Explained struct {
	Name  string
	Share float64 // percent of the mix
	// Outcomes of the transactions counted.
	Outcomes [workload.NumOutcomes]uint64
	// Total and Phases of the transactions that ended so. Phases are zero when the
	// store's workers are no workload.PhaseCounter.
	Total  [workload.NumOutcomes]workload.Counters
	Phases [workload.NumOutcomes][workload.NumPhases]workload.PhaseCounters
	// Verbs of the cheapest and the dearest committed transaction; zero if none has.
	MinVerbs, MaxVerbs uint64
	MinTrips, MaxTrips uint64
}

// Explain loads the workload and counts, with one worker and therefore without
// conflicts, what the transactions of each type cost. phased says whether
// phases are known. Transactions of the types are drawn in turn, so that those
// that insert and those that delete keep each other going. When ctx is
// cancelled its error is returned.
func Explain(ctx context.Context, store workload.Store, driver workload.Driver, cfg ExplainConfig) (types []Explained, phased bool, err error) {
	if cfg.Warmup == 0 {
		cfg.Warmup = DefaultExplainWarmup
	}
	if cfg.Samples == 0 {
		cfg.Samples = DefaultExplainSamples
	}
	if cfg.Warmup < 0 || cfg.Samples < 0 {
		return nil, false, &ConfigError{[]string{fmt.Sprintf("%d transactions of each type after %d; both must be positive", cfg.Samples, cfg.Warmup)}}
	}
	b := &bench{store: store, driver: driver, cfg: Config{Progress: cfg.Progress, Runs: 1}, res: &Result{}}
	if err := b.load(ctx); err != nil {
		return nil, false, err
	}
	if b.res.Interrupted {
		return nil, false, ctx.Err()
	}
	names, mix := driver.Types(), driver.Mix()
	for i, name := range names {
		types = append(types, Explained{Name: name, Share: mix[i], MinVerbs: math.MaxUint64, MinTrips: math.MaxUint64})
	}
	err = store.Run(ctx, 1, 1, func(ctx context.Context, id int, w workload.Worker) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = newPanicError(p)
			}
		}()
		x := &explainer{worker: w, client: driver.NewClient(id, cfg.Seed, w), types: types}
		x.phases, phased = w.(workload.PhaseCounter)
		return x.run(ctx, cfg)
	})
	if err != nil {
		return nil, phased, err
	}
	for i := range types {
		if t := &types[i]; t.Outcomes[workload.Committed] == 0 {
			t.MinVerbs, t.MinTrips = 0, 0
		}
	}
	if _, err := driver.Verify(ctx, store); err != nil {
		if errors.Is(err, workload.ErrInconsistent) {
			err = &verificationError{err}
		}
		return types, phased, err
	}
	return types, phased, nil
}

// explainer is the one worker of Explain.
type explainer struct {
	worker workload.Worker
	phases workload.PhaseCounter // nil if the worker is none
	client workload.Client
	types  []Explained
}

func (x *explainer) run(ctx context.Context, cfg ExplainConfig) error {
	total := cfg.Warmup + cfg.Samples*len(x.types)
	for i := range cfg.Warmup {
		x.client.Next()
		if _, err := x.client.Run(ctx); err != nil {
			return err
		}
		if err := x.pause(ctx, cfg, i, total); err != nil {
			return err
		}
	}
	for i := range cfg.Samples {
		for typ := range x.types {
			if err := x.count(ctx, typ); err != nil {
				return err
			}
		}
		if err := x.pause(ctx, cfg, cfg.Warmup+i*len(x.types), total); err != nil {
			return err
		}
	}
	return nil
}

// pause looks, now and then, whether to go on, and reports.
func (x *explainer) pause(ctx context.Context, cfg ExplainConfig, done, total int) error {
	const every = 1024
	if done%every != 0 {
		return nil
	}
	if cfg.Progress != nil {
		cfg.Progress(Progress{Stage: Measuring, Run: 1, Runs: 1, Done: int64(done), Total: int64(total)})
	}
	return ctx.Err()
}

// count runs one transaction of a type.
func (x *explainer) count(ctx context.Context, typ int) error {
	var phasesBefore [workload.NumPhases]workload.PhaseCounters
	if x.phases != nil {
		phasesBefore = x.phases.Phases()
	}
	before := x.worker.Counters()
	x.client.Draw(typ)
	outcome, err := x.client.Run(ctx)
	if err != nil {
		return err
	}
	cost := x.worker.Counters().Sub(before)
	t := &x.types[typ]
	t.Outcomes[outcome]++
	addCounters(&t.Total[outcome], &cost)
	if outcome == workload.Committed {
		t.MinVerbs, t.MaxVerbs = min(t.MinVerbs, cost.Verbs), max(t.MaxVerbs, cost.Verbs)
		t.MinTrips, t.MaxTrips = min(t.MinTrips, cost.RoundTrips), max(t.MaxTrips, cost.RoundTrips)
	}
	if x.phases != nil {
		for p, c := range x.phases.Phases() {
			t.Phases[outcome][p].Add(c.Sub(phasesBefore[p]))
		}
	}
	return nil
}
