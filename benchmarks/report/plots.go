package report

import (
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"

	"txnode/benchmarks/runner"
	"txnode/benchmarks/workload"
)

// Throughput is how many transactions committed in each interval of a run.
type Throughput struct {
	IntervalNs int64    `json:"interval_ns"`
	Committed  []uint64 `json:"committed"`
	// Least, of a long run, whose intervals have been put together from shorter ones of LeastNs, is
	// the least number of commits in one of these: a stall stays visible.
	LeastNs int64    `json:"least_ns,omitempty"`
	Least   []uint64 `json:"least,omitempty"`
}

// Histogram is how many committed transactions took how long: Count[i] at most UpToNs[i], and
// longer than the one before. Bounds are a quarter of an octave apart; those at the ends that
// nothing has come to are left out.
type Histogram struct {
	UpToNs []int64  `json:"up_to_ns"`
	Count  []uint64 `json:"count"`
}

// Percentile is the latency that so many percent of committed transactions did not exceed.
type Percentile struct {
	Percent float64 `json:"percent"`
	Ns      int64   `json:"ns"`
}

// MeasuredPhase is what a phase of the protocol has cost, for each transaction that has committed.
type MeasuredPhase struct {
	Phase string `json:"phase"`
	Cost
}

// maxIntervals is how many intervals a Throughput has at most: more would not be told apart on a
// page.
const maxIntervals = 600

// throughput converts a series.
func throughput(s *runner.Series) *Throughput {
	if s == nil {
		return nil
	}
	k := (len(s.Commits) + maxIntervals - 1) / maxIntervals
	if k <= 1 {
		return &Throughput{IntervalNs: int64(s.Interval), Committed: s.Commits}
	}
	t := &Throughput{IntervalNs: int64(s.Interval) * int64(k), LeastNs: int64(s.Interval)}
	for i := 0; i+k <= len(s.Commits); i += k {
		sum, least := uint64(0), uint64(math.MaxUint64)
		for _, n := range s.Commits[i : i+k] {
			sum += n
			least = min(least, n)
		}
		t.Committed, t.Least = append(t.Committed, sum), append(t.Least, least)
	}
	return t
}

// histogramOf puts the bars of a histogram together.
func histogramOf(h *hdrhistogram.Histogram) *Histogram {
	if h.TotalCount() == 0 {
		return nil
	}
	out := &Histogram{}
	first := math.Floor(4 * math.Log2(float64(max(h.Min(), 1))))
	for i, bound := first, int64(0); bound < h.Max(); i++ {
		bound = int64(math.Exp2((i + 1) / 4))
		out.UpToNs, out.Count = append(out.UpToNs, bound), append(out.Count, 0)
	}
	at := 0
	for _, bar := range h.Distribution() {
		for at < len(out.UpToNs)-1 && bar.To > out.UpToNs[at] {
			at++
		}
		out.Count[at] += uint64(bar.Count)
	}
	return out
}

// percents are those of the curve of percentiles.
var percents = []float64{0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999, 100}

func percentilesOf(h *hdrhistogram.Histogram) (out []Percentile) {
	if h.TotalCount() == 0 {
		return nil
	}
	for _, p := range percents {
		out = append(out, Percentile{p, h.ValueAtQuantile(p)})
	}
	return out
}

// phaseCosts are what the phases have cost for each committed transaction, rolled back ones and
// conflicts included.
func phaseCosts(phases *[workload.NumPhases]workload.PhaseCounters, committed uint64) (out []MeasuredPhase) {
	if phases == nil || committed == 0 {
		return nil
	}
	for p := range phases {
		c := &phases[p]
		out = append(out, MeasuredPhase{workload.Phase(p).String(), costPer(workload.Counters{
			Verbs: c.Verbs, RoundTrips: c.RoundTrips, BytesRead: c.BytesRead, BytesWrite: c.BytesWrite,
		}, committed)})
	}
	return out
}
