package runner

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"txnode/benchmarks/workload"
	"txnode/check"
)

// Result is what Bench has measured, as far as it got.
type Result struct {
	Config   Config // with defaults filled in
	Load     workload.LoadReport
	LoadTime time.Duration // of the store's clock
	Runs     []Run
	// Interrupted: the context was cancelled; the last run is shorter than asked for.
	Interrupted bool
}

// Run is one measured run.
type Run struct {
	Seed uint64
	// Elapsed is the time measured, from the first begin of a transaction to the
	// last end, over all workers; with windows, the sum over them. Of the store's clock.
	Elapsed time.Duration
	Types   []Type // in the order of the driver's types
	// Arrivals of the open loop that were due in the time measured, and how many
	// of them had not begun when it was over.
	Arrivals int64
	Backlog  int64
	// Interrupted: the run was cut short.
	Interrupted bool
	Books       workload.VerifyReport
	BooksErr    error     // wraps workload.ErrInconsistent, or says why nothing could be verified
	History     *History  // nil without Config.Verify
	Timeline    *Timeline // nil without Config.Events
	Series      *Series
	// Phases is what the phases of all transactions have cost; nil: the store does not tell.
	Phases *[workload.NumPhases]workload.PhaseCounters
}

// Type is what was measured of one transaction type.
type Type struct {
	Name  string
	Share float64 // percent of the mix
	// Outcomes counts transactions by how they ended.
	Outcomes [workload.NumOutcomes]uint64
	// Cost is what the worker's Counters say about the transactions that ended
	// so, with their retries. Aborts are the retries.
	Cost [workload.NumOutcomes]workload.Counters
	// Latency of committed transactions in ns, of those that were sampled.
	Latency *hdrhistogram.Histogram
}

// Ended is the number of transactions that have ended, in whatever way.
func (t *Type) Ended() uint64 {
	var n uint64
	for _, v := range t.Outcomes {
		n += v
	}
	return n
}

// TotalCost is the cost of all outcomes.
func (t *Type) TotalCost() workload.Counters {
	var sum workload.Counters
	for i := range t.Cost {
		addCounters(&sum, &t.Cost[i])
	}
	return sum
}

// Conflicts is the number of attempts that ended in a conflict.
func (t *Type) Conflicts() uint64 {
	var n uint64
	for i := range t.Cost {
		for _, v := range t.Cost[i].Aborts {
			n += v
		}
	}
	return n
}

// Total sums the types of a run up, under the name "all".
func (r *Run) Total() Type {
	sum := Type{Name: "all", Latency: newHistogram()}
	for i := range r.Types {
		t := &r.Types[i]
		sum.Share += t.Share
		sum.merge(t)
	}
	return sum
}

// merge adds the measurements of u to t.
func (t *Type) merge(u *Type) {
	for o := range t.Outcomes {
		t.Outcomes[o] += u.Outcomes[o]
		addCounters(&t.Cost[o], &u.Cost[o])
	}
	t.Latency.Merge(u.Latency)
}

// History is what checking the recorded history has found.
type History struct {
	Txns      int // in the graphs
	Ops       int
	Windows   int
	Edges     check.EdgeCounts
	Ambiguous int           // observations whose place is not known; zero: the verdict is exact
	CheckTime time.Duration // wall time
	Err       error         // matches check.ErrViolation; nil: strictly serializable
}

// addCounters adds d to c.
func addCounters(c, d *workload.Counters) {
	c.Committed += d.Committed
	for i := range c.Aborts {
		c.Aborts[i] += d.Aborts[i]
	}
	c.Verbs += d.Verbs
	c.RoundTrips += d.RoundTrips
	c.BytesRead += d.BytesRead
	c.BytesWrite += d.BytesWrite
}
