package runner

import (
	"context"
	"errors"
	"fmt"

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

// Explanation is what Explain has counted.
type Explanation struct {
	Types  []Explained
	Mix    Explained // as many transactions, drawn by the mix
	Phased bool      // phases are known
}

// The types take turns in blocks, so that those that insert and those that
// delete keep each other going. What a store puts off (reclaiming what was
// deleted) then falls to the type that caused it, but for what reaches into the
// next block, of which the begin is not counted.
const (
	explainBlock  = 200
	explainSettle = 100
)

// Explain loads the workload and counts, with one worker and therefore without
// conflicts, what the transactions of each type cost. The error is the store's,
// ctx's when it was cancelled, or wraps ErrVerification when the books do not
// balance afterwards.
func Explain(ctx context.Context, store workload.Store, driver workload.Driver, cfg ExplainConfig) (*Explanation,
	error) {
	if cfg.Warmup == 0 {
		cfg.Warmup = DefaultExplainWarmup
	}
	if cfg.Samples == 0 {
		cfg.Samples = DefaultExplainSamples
	}
	if cfg.Warmup < 0 || cfg.Samples < 0 {
		return nil, &workload.OptionsError{
			Of: "runner",
			Faults: []string{fmt.Sprintf("%d transactions of each type after %d; both must be positive",
				cfg.Samples, cfg.Warmup)},
		}
	}
	b := &bench{store: store, driver: driver, cfg: Config{Progress: cfg.Progress, Runs: 1}, res: &Result{}}
	if err := b.load(ctx); err != nil {
		return nil, err
	}
	if b.res.Interrupted {
		return nil, ctx.Err()
	}
	out := &Explanation{Mix: newExplained("mix", 100)}
	mix := driver.Mix()
	for i, name := range driver.Types() {
		out.Types = append(out.Types, newExplained(name, mix[i]))
	}
	err := store.Run(ctx, 1, 1, func(ctx context.Context, id int, w workload.Worker) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = newPanicError(p)
			}
		}()
		x := &explainer{worker: w, client: driver.NewClient(id, cfg.Seed, w), out: out, cfg: cfg}
		x.phases, out.Phased = w.(workload.PhaseCounter)
		return x.run(ctx)
	})
	if err != nil {
		return nil, err
	}
	if _, err := driver.Verify(ctx, store); err != nil {
		if errors.Is(err, workload.ErrInconsistent) {
			err = &verificationError{err}
		}
		return nil, err
	}
	return out, nil
}

func newExplained(name string, share float64) Explained { return Explained{Name: name, Share: share} }

// explainer is the one worker of Explain.
type explainer struct {
	worker workload.Worker
	phases workload.PhaseCounter // nil if the worker is none
	client workload.Client
	out    *Explanation
	cfg    ExplainConfig
	done   int // transactions
}

func (x *explainer) run(ctx context.Context) error {
	for range x.cfg.Warmup {
		x.client.Next()
		if err := x.count(ctx, nil); err != nil {
			return err
		}
	}
	for counted := 0; counted < x.cfg.Samples; counted += explainBlock {
		for typ := range x.out.Types {
			for i := range explainSettle + min(explainBlock, x.cfg.Samples-counted) {
				x.client.Draw(typ)
				into := &x.out.Types[typ]
				if i < explainSettle {
					into = nil
				}
				if err := x.count(ctx, into); err != nil {
					return err
				}
			}
		}
	}
	for range x.cfg.Samples * len(x.out.Types) {
		x.client.Next()
		if err := x.count(ctx, &x.out.Mix); err != nil {
			return err
		}
	}
	return nil
}

// total is about how many transactions there will be.
func (x *explainer) total() int {
	return x.cfg.Warmup + len(x.out.Types)*x.cfg.Samples*(2*explainBlock+explainSettle)/explainBlock
}

// count runs the transaction that was drawn last, and counts it unless into is nil.
func (x *explainer) count(ctx context.Context, into *Explained) error {
	if err := x.pause(ctx); err != nil {
		return err
	}
	var phasesBefore [workload.NumPhases]workload.PhaseCounters
	if x.phases != nil {
		phasesBefore = x.phases.Phases()
	}
	before := x.worker.Counters()
	outcome, err := x.client.Run(ctx)
	if err != nil || into == nil {
		return err
	}
	cost := x.worker.Counters().Sub(before)
	if outcome == workload.Committed {
		if into.Outcomes[outcome] == 0 {
			into.MinVerbs, into.MinTrips = cost.Verbs, cost.RoundTrips
		}
		into.MinVerbs, into.MaxVerbs = min(into.MinVerbs, cost.Verbs), max(into.MaxVerbs, cost.Verbs)
		into.MinTrips, into.MaxTrips = min(into.MinTrips, cost.RoundTrips), max(into.MaxTrips, cost.RoundTrips)
	}
	into.Outcomes[outcome]++
	addCounters(&into.Total[outcome], &cost)
	if x.phases != nil {
		for p, c := range x.phases.Phases() {
			into.Phases[outcome][p].Add(c.Sub(phasesBefore[p]))
		}
	}
	return nil
}

// pause looks, now and then, whether to go on, and reports.
func (x *explainer) pause(ctx context.Context) error {
	const every = 1024
	x.done++
	if x.done%every != 0 {
		return nil
	}
	if x.cfg.Progress != nil {
		x.cfg.Progress(Progress{
			Stage: Measuring, Run: 1, Runs: 1, Done: int64(min(x.done, x.total())), Total: int64(x.total()),
		})
	}
	return ctx.Err()
}
