package report

import (
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"txnode/benchmarks/runner"
	"txnode/benchmarks/workload"
)

// FromRunner converts what a runner has measured. The caller fills in the
// rest: time, name, command, store, parameters and environment.
func FromRunner(name string, res *runner.Result) *Result {
	c := &res.Config
	out := &Result{
		Schema:        ResultSchema,
		SchemaVersion: ResultVersion,
		Workload:      name,
		Drive: Drive{
			Processes:     c.Processes,
			Threads:       c.Threads,
			Coroutines:    c.Coroutines,
			WarmupNs:      int64(c.Warmup),
			DurationNs:    int64(c.Duration),
			Txns:          c.Txns,
			Runs:          c.Runs,
			RatePerS:      c.Rate,
			Seed:          c.Seed,
			LatencySample: c.LatencySample,
			Verify:        c.Verify,
		},
		Load: Load{
			Existed: res.Load.Existed,
			Records: res.Load.Records,
			Summary: res.Load.Summary,
			TimeNs:  int64(res.LoadTime),
		},
		Parameters:  []Parameter{},
		Runs:        []Run{},
		Summary:     []Summary{},
		Interrupted: res.Interrupted,
		Verified:    len(res.Runs) > 0,
	}
	for i := range res.Runs {
		r := convertRun(&res.Runs[i])
		out.Verified = out.Verified && r.Books.Balance && (r.History == nil || r.History.Serializable)
		out.Runs = append(out.Runs, r)
	}
	out.summarize()
	return out
}

// FromEnvironment converts an environment.
func FromEnvironment(e runner.Environment) Environment {
	return Environment(e)
}

func convertRun(r *runner.Run) Run {
	out := Run{
		Seed:        r.Seed,
		ElapsedNs:   int64(r.Elapsed),
		Interrupted: r.Interrupted,
		Arrivals:    r.Arrivals,
		Backlog:     r.Backlog,
		Types:       []Measure{},
		Books:       Books{Balance: r.BooksErr == nil, Records: r.Books.Records, Checks: []Check{}},
	}
	out.Failover = failoverOf(r.Timeline)
	for i := range r.Types {
		out.Types = append(out.Types, measure(&r.Types[i], r.Elapsed.Seconds()))
	}
	total := r.Total()
	out.All = measure(&total, r.Elapsed.Seconds())
	out.Throughput = throughput(r.Series)
	out.Histogram, out.Percentiles = histogramOf(total.Latency), percentilesOf(total.Latency)
	out.Phases = phaseCosts(r.Phases, out.All.Committed)
	for _, c := range r.Books.Checks {
		out.Books.Checks = append(out.Books.Checks, Check(c))
	}
	if r.BooksErr != nil {
		out.Books.Error = r.BooksErr.Error()
	}
	if h := r.History; h != nil {
		out.History = &History{
			Serializable: h.Err == nil,
			Txns:         h.Txns,
			Ops:          h.Ops,
			Edges:        h.Edges.WW + h.Edges.WR + h.Edges.RW + h.Edges.RT,
			Windows:      h.Windows,
			Ambiguous:    h.Ambiguous,
			CheckNs:      int64(h.CheckTime),
		}
		if h.Err != nil {
			out.History.Violation = h.Err.Error()
		}
	}
	return out
}

func measure(t *runner.Type, seconds float64) Measure {
	total := t.TotalCost()
	m := Measure{
		Name:         t.Name,
		SharePercent: t.Share,
		Committed:    t.Outcomes[workload.Committed],
		RolledBack:   t.Outcomes[workload.RolledBack],
		RowAbsent:    t.Outcomes[workload.RowAbsent],
		Conflicts:    total.Aborts,
		Attempts:     t.Ended() + t.Conflicts(),
		LatencyNs:    latency(t.Latency),
	}
	m.CommittedPerS = ratio(float64(m.Committed), seconds)
	m.PerCommitted = costPer(t.Cost[workload.Committed], m.Committed)
	m.PerAttempt = costPer(total, m.Attempts)
	return m
}

func latency(h *hdrhistogram.Histogram) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	return Latency{
		Samples: h.TotalCount(),
		Min:     h.Min(),
		Mean:    h.Mean(),
		P50:     h.ValueAtQuantile(50),
		P90:     h.ValueAtQuantile(90),
		P99:     h.ValueAtQuantile(99),
		P999:    h.ValueAtQuantile(99.9),
		Max:     h.Max(),
	}
}

func costPer(c workload.Counters, n uint64) Cost {
	d := float64(n)
	return Cost{
		Verbs:        ratio(float64(c.Verbs), d),
		RoundTrips:   ratio(float64(c.RoundTrips), d),
		BytesRead:    ratio(float64(c.BytesRead), d),
		BytesWritten: ratio(float64(c.BytesWrite), d),
	}
}

// ratio is a / b, and 0 where there is nothing to divide by.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// summarize fills Summary in. Runs that were cut short count only if there is
// no other.
func (r *Result) summarize() {
	whole := slices.DeleteFunc(slices.Clone(r.Runs), func(x Run) bool { return x.Interrupted })
	if len(whole) == 0 {
		whole = r.Runs
	}
	if len(whole) == 0 {
		return
	}
	for i := range whole[0].Types {
		r.Summary = append(r.Summary, summary(whole, func(x *Run) *Measure { return &x.Types[i] }))
	}
	r.Summary = append(r.Summary, summary(whole, func(x *Run) *Measure { return &x.All }))
}

func summary(runs []Run, of func(*Run) *Measure) Summary {
	stat := func(metric func(*Measure) float64) Stat {
		values := make([]float64, len(runs))
		for i := range runs {
			values[i] = metric(of(&runs[i]))
		}
		return newStat(values)
	}
	percent := func(part func(*Measure) uint64, whole func(*Measure) uint64) Stat {
		return stat(func(m *Measure) float64 { return 100 * ratio(float64(part(m)), float64(whole(m))) })
	}
	attempts := func(m *Measure) uint64 { return m.Attempts }
	s := Summary{
		Name:              of(&runs[0]).Name,
		SharePercent:      of(&runs[0]).SharePercent,
		CommittedPerS:     stat(func(m *Measure) float64 { return m.CommittedPerS }),
		CommittedPercent:  percent(func(m *Measure) uint64 { return m.Committed }, (*Measure).Ended),
		RolledBackPercent: percent(func(m *Measure) uint64 { return m.RolledBack }, (*Measure).Ended),
		RowAbsentPercent:  percent(func(m *Measure) uint64 { return m.RowAbsent }, (*Measure).Ended),
		ConflictPercent:   percent(func(m *Measure) uint64 { return m.Conflicts.Total() }, attempts),
		P50Ns:             stat(func(m *Measure) float64 { return float64(m.LatencyNs.P50) }),
		P90Ns:             stat(func(m *Measure) float64 { return float64(m.LatencyNs.P90) }),
		P99Ns:             stat(func(m *Measure) float64 { return float64(m.LatencyNs.P99) }),
		P999Ns:            stat(func(m *Measure) float64 { return float64(m.LatencyNs.P999) }),
		MaxNs:             stat(func(m *Measure) float64 { return float64(m.LatencyNs.Max) }),
		Verbs:             stat(func(m *Measure) float64 { return m.PerCommitted.Verbs }),
		RoundTrips:        stat(func(m *Measure) float64 { return m.PerCommitted.RoundTrips }),
		BytesRead:         stat(func(m *Measure) float64 { return m.PerCommitted.BytesRead }),
		BytesWritten:      stat(func(m *Measure) float64 { return m.PerCommitted.BytesWritten }),
		VerbsAttempt:      stat(func(m *Measure) float64 { return m.PerAttempt.Verbs }),
	}
	for r := range s.ByReason {
		s.ByReason[r] = percent(func(m *Measure) uint64 { return m.Conflicts[r] }, attempts).Median
	}
	return s
}

// newStat returns the median, which of an even number of values is the mean of
// the middle two, and the range.
func newStat(values []float64) Stat {
	slices.Sort(values)
	n := len(values)
	return Stat{
		Median: (values[(n-1)/2] + values[n/2]) / 2,
		Min:    values[0],
		Max:    values[n-1],
	}
}

// Spread is the range relative to the median.
func (s Stat) Spread() float64 { return ratio(s.Max-s.Min, s.Median) }
