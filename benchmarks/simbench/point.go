package simbench

import (
	"context"
	"errors"
	"fmt"

	"txnode/benchmarks/runner"
	"txnode/benchmarks/workload"
)

// Point is what a run measured.
type Point struct {
	Threads         int     `json:"threads"`
	IdleUs          float64 `json:"idle_us"`       // waited after each committed transaction
	AttemptedMps    float64 `json:"attempted_mps"` // million attempts per second of virtual time
	CommittedMps    float64 `json:"committed_mps"`
	P50us           float64 `json:"p50_us"` // of committed transactions
	P99us           float64 `json:"p99_us"`
	NotCommitted    float64 `json:"not_committed"` // share of the attempts
	Conflicts       float64 `json:"conflicts"`     // of these, those that met a conflict, as a share of the attempts
	VerbsPerAttempt float64 `json:"verbs_per_attempt"`
	// VerbsCounted is that as SMART-DTX's program counts it: the verbs of its warm-up,
	// 50,000 transactions a thread, are divided by the 60 million attempts after it.
	VerbsCounted    float64 `json:"verbs_counted"`
	TripsPerAttempt float64 `json:"round_trips_per_attempt"`
	VerbsMps        float64 `json:"verbs_mps"`

	// Settled says that as much was committed a second, within 5 %, in each third of the time until
	// the first thread was through.
	Settled bool `json:"settled"`

	Attempts  uint64  `json:"attempts"`
	VirtualMs float64 `json:"virtual_ms"` // measured
	Verbs     uint64  `json:"verbs"`      // of the whole run: loading, warm-up and check
	Events    uint64  `json:"events"`     // of the simulator
	TraceHash uint64  `json:"trace_hash"`

	Types [MaxTypes]TypePoint `json:"types"` // in the workload's order; the rest empty
}

// MaxTypes is how many transaction types a workload may have.
const MaxTypes = 8

// TypePoint is what a run measured of one transaction type.
type TypePoint struct {
	Name            string  `json:"name"`
	Attempts        uint64  `json:"attempts"`
	NotCommitted    float64 `json:"not_committed"` // share of the attempts
	Conflicts       float64 `json:"conflicts"`     // of these, those that met a conflict, as a share of the attempts
	VerbsPerAttempt float64 `json:"verbs_per_attempt"`
	ReadBytes       float64 `json:"read_bytes"` // per attempt, as the engine lays out its records
	WrittenBytes    float64 `json:"written_bytes"`
}

// Run measures one point on data of the same workload, rows, blades, backups and
// accounting; nil loads it. It is deterministic: equal configurations give equal
// points, down to the trace hash.
func Run(ctx context.Context, c Config, data *Data) (Point, error) {
	if err := c.Validate(); err != nil {
		return Point{}, err
	}
	c.defaults()
	if data == nil {
		var err error
		if data, err = Load(ctx, c, nil); err != nil {
			return Point{}, err
		}
	}
	if data.shape != c.shape() {
		return Point{}, fmt.Errorf("%w: the data loaded is %+v, not %+v", ErrConfig, data.shape, c.shape())
	}
	inner, err := c.driver()
	if err != nil {
		return Point{}, err
	}
	w, err := c.open(ctx, data)
	if err != nil {
		return Point{}, err
	}
	d := &driver{Driver: inner, single: c.LikeDTX, verify: c.Verify, coros: c.Coroutines}
	d.meter = &meter{now: w.store.Now, limit: uint64(max(c.Txns*meterShare/100, 1))}
	limits := runner.Config{Txns: c.Txns}
	if c.LikeDTX {
		d.meter.quota, d.meter.open = uint64(max(c.Txns/int64(c.Threads), 1)), c.Threads
		d.meter.threads = make([]uint64, c.Threads)
		limits = runner.Config{Duration: quotaTime}
	}
	d.warmup, d.idle = c.Warmup.Nanoseconds(), c.Idle.Nanoseconds()
	d.spin = w.fabric.Spin
	if ns := c.Program.TxnNs; ns > 0 {
		d.work = func() { w.fabric.Work(ns) }
	}
	if c.Program.LineNs > 0 {
		d.line = w.fabric.TakeLine
	}
	res, err := runner.Bench(ctx, w.store, d, runner.Config{
		Threads: c.Threads, Coroutines: c.Coroutines, Warmup: c.Warmup, Txns: limits.Txns, Duration: limits.Duration,
		Seed: c.Seed, LatencySample: 1,
	})
	s := w.fabric.Stats()
	p := Point{
		Threads: c.Threads, IdleUs: float64(c.Idle.Nanoseconds()) / 1e3, Verbs: s.Verbs, Events: s.Events,
		TraceHash: w.fabric.TraceHash(),
	}
	err = errors.Join(err, w.close(context.WithoutCancel(ctx)))
	if err == nil && res.Interrupted {
		err = context.Cause(ctx)
	}
	if err == nil && d.meter.open > 0 {
		err = fmt.Errorf("simbench: after %d s of virtual time %d of %d threads have not ended %d transactions each: "+
			"measure fewer", quotaTime/1_000_000_000, d.meter.open, c.Threads, d.meter.quota)
	}
	if err != nil {
		return Point{}, err
	}
	p.fill(&res.Runs[0], c.LikeDTX, d.meter)
	return p, nil
}

// What SMART-DTX's program counts.
const (
	dtxWarmup   = 50e3
	dtxAttempts = 60e6
)

// fill takes over what the runner measured.
func (p *Point) fill(r *runner.Run, single bool, m *meter) {
	t := r.Total()
	cost := t.TotalCost()
	conflicts := t.Conflicts()
	committed := t.Outcomes[workload.Committed]
	// With single attempts a conflict is an ending of its own and among Ended; with
	// retries each is an attempt more.
	attempts := t.Ended()
	for _, n := range m.nothings {
		attempts -= n
	}
	if !single {
		attempts += conflicts
	}
	seconds := float64(m.end-m.from) / 1e9
	p.Attempts = attempts
	p.VirtualMs = seconds * 1e3
	p.NotCommitted = 1 - float64(committed)/float64(attempts)
	p.CommittedMps = float64(m.committed) / seconds / 1e6
	p.AttemptedMps = p.CommittedMps / (1 - p.NotCommitted)
	p.Settled = m.settled()
	p.P50us, p.P99us = m.quantile(0.50), m.quantile(0.99)
	p.Conflicts = float64(conflicts) / float64(attempts)
	p.VerbsPerAttempt = float64(cost.Verbs) / float64(attempts)
	p.VerbsMps = p.VerbsPerAttempt * p.AttemptedMps
	p.VerbsCounted = p.VerbsPerAttempt
	if single {
		p.VerbsCounted *= 1 + dtxWarmup*float64(p.Threads)/dtxAttempts
	}
	p.TripsPerAttempt = float64(cost.RoundTrips) / float64(attempts)
	for i := range min(len(r.Types), MaxTypes) {
		p.Types[i] = typePoint(&r.Types[i], single, m.nothings[i])
	}
}

func typePoint(t *runner.Type, single bool, nothings uint64) TypePoint {
	cost, conflicts := t.TotalCost(), t.Conflicts()
	n := t.Ended() - nothings
	if !single {
		n += conflicts
	}
	p := TypePoint{Name: t.Name, Attempts: n}
	if n == 0 {
		return p
	}
	per := func(v uint64) float64 { return float64(v) / float64(n) }
	p.NotCommitted = 1 - per(t.Outcomes[workload.Committed])
	p.Conflicts = per(conflicts)
	p.VerbsPerAttempt = per(cost.Verbs)
	p.ReadBytes, p.WrittenBytes = per(cost.BytesRead), per(cost.BytesWrite)
	return p
}
