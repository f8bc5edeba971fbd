package report_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"txnode/benchmarks/report"
	"txnode/benchmarks/report/page/pagetest"
	"txnode/benchmarks/runner"
	"txnode/benchmarks/runner/runnertest"
)

// Colors of what was published, and of the first run, on white and on dark ground; the ground
// itself.
var (
	light = map[string]string{"published": "#c0392b", "ours": "#2471a3", "paper": "#ffffff"}
	dark  = map[string]string{"published": "#ff6f60", "ours": "#5dade2", "paper": "#16181c"}
)

// stalled is a result in which nothing commits from 0.5 s to 0.7 s, and most transactions take some
// 2 µs, but few of them half a second.
func stalled(t *testing.T) *report.Result {
	r := measured(t, "smallbank", runnertest.Options{TxnNs: 2000, ConflictEvery: 50},
		runner.Config{Duration: 10 * time.Millisecond})
	run := &r.Runs[0]
	run.Throughput = &report.Throughput{IntervalNs: 1e8, Committed: []uint64{
		100, 100, 100, 100, 100, 0, 0, 100, 100, 100, 50,
	}}
	run.Histogram = &report.Histogram{UpToNs: []int64{1000, 2000, 4000, 1e6, 5e8}, Count: []uint64{10, 70, 15, 0, 5}}
	run.Percentiles = []report.Percentile{
		{Percent: 0, Ns: 1000}, {Percent: 50, Ns: 2000}, {Percent: 90, Ns: 4000},
		{Percent: 99, Ns: 1e6}, {Percent: 99.9, Ns: 5e8}, {Percent: 100, Ns: 6e8},
	}
	return r
}

// Where package page draws: pixels of the inner plot.
const (
	left, right = 56.0, 628.0
	top, bottom = 10.0, 292.0
)

// Numbers of the figures of a result's page.
const (
	throughputAt = iota
	latencyAt
	percentilesAt
	conflictsAt
	phasesAt
	verbsAt
	committedAt
	medianAt
	figures
)

// near reports whether a pixel is within three of where it should be.
func near(got int, want float64) bool { return got >= 0 && math.Abs(float64(got)-want) <= 3 }

// TestPageIsDrawn looks at the plots of a result's page as a browser draws them: every plot has its
// data where that belongs, on white and on dark ground.
func TestPageIsDrawn(t *testing.T) {
	r := stalled(t)
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	for name, colors := range map[string]map[string]string{"light": light, "dark": dark} {
		if name == "dark" && testing.Short() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			drawn := pagetest.Figures(t, b.Bytes(), figures, name == "dark")
			ours, theirs := colors["ours"], colors["published"]
			if got := drawn[0].At(630, 3); got != colors["paper"] {
				t.Errorf("the ground is %s", got)
			}

			// Throughput: 1,000/s is the largest label, and the stall lies on the axis.
			run := r.Runs[0].Throughput
			for i, n := range run.Committed {
				x := left + (float64(i)+0.5)/(float64(len(run.Committed))-0.5)*(right-left)
				y := bottom - float64(n)/100*(bottom-top)
				if up, down := drawn[throughputAt].Rows(int(math.Round(x)), ours); !near((up+down)/2, y) ||
					down-up > 12 {
					t.Errorf("throughput of interval %d is drawn in rows %d to %d of column %.0f instead of %.0f",
						i, up, down, x, y)
				}
			}

			// The histogram: five bars, as high as their shares of 80 percent.
			for i, percent := range []float64{10, 70, 15, 0, 5} {
				x := int(left + (float64(i)+0.5)/5*(right-left))
				up, down := drawn[latencyAt].Rows(x, ours)
				if percent == 0 && up >= 0 || percent > 0 && (!near(up, bottom-percent/80*(bottom-top)) ||
					!near(down, bottom-1)) {
					t.Errorf("bar %d of the histogram is in rows %d to %d", i, up, down)
				}
			}

			// Percentiles, on two logarithmic axes: 1 to 1,000 of x, 1 to 1,000,000 µs of y.
			for i, p := range []struct{ in, micros float64 }{{1, 1}, {2, 2}, {10, 4}, {100, 1000}, {1000, 500_000}} {
				x := left + math.Log10(p.in)/3*(right-left)
				y := bottom - math.Log10(p.micros)/6*(bottom-top)
				if up, down := drawn[percentilesAt].Rows(int(math.Round(x)), ours); !near((up+down)/2, y) {
					t.Errorf("percentile %d is drawn in rows %d to %d of column %.0f instead of %.0f",
						i, up, down, x, y)
				}
			}

			// Bars of other plots: in proportion.
			s := r.All()
			bars(t, "conflicts", drawn[conflictsAt], ours, s.ByReason[:])
			var verbs []float64
			for _, p := range r.Runs[0].Phases {
				verbs = append(verbs, p.Verbs)
			}
			bars(t, "phases", drawn[phasesAt], ours, verbs)
			for _, i := range []int{verbsAt, committedAt, medianAt} {
				if drawn[i].Count(theirs) < 100 {
					t.Errorf("plot %d has no bars of what was published", i)
				}
			}
			for _, i := range []int{verbsAt, committedAt} {
				if drawn[i].Count(ours) < 50 {
					t.Errorf("plot %d has no bar of ours", i)
				}
			}
		})
	}
}

// bars checks that a plot has a bar for each value that is large enough, and that their heights are
// as the values are.
func bars(t *testing.T, what string, f pagetest.Figure, of string, values []float64) {
	t.Helper()
	most := slices.Max(values)
	if most == 0 {
		t.Fatalf("%s: there is nothing to draw", what)
	}
	highest := 0.0
	heights := make([]float64, len(values))
	for i := range values {
		x := int(left + (float64(i)+0.5)/float64(len(values))*(right-left))
		if up, down := f.Rows(x, of); up >= 0 {
			heights[i] = float64(down - up + 1)
			highest = max(highest, heights[i])
		}
	}
	if highest < (bottom-top)/3 {
		t.Errorf("%s: the highest bar has %.0f pixels", what, highest)
	}
	for i, v := range values {
		if want := v / most * highest; math.Abs(heights[i]-want) > 4 {
			t.Errorf("%s: bar %d of %g has %.0f pixels instead of %.0f", what, i, v, heights[i], want)
		}
	}
}

// TestPages: what pages say of results and comparisons, in words; they load nothing and have no
// script.
func TestPages(t *testing.T) {
	r := stalled(t)
	r.ID, r.Name, r.Command = 7, "a <b>", []string{"txnode bench smallbank", "--runs=1"}
	empty := &report.Result{Workload: "tatp"} // as an older version has kept it, or none
	old := *measured(t, "tatp", runnertest.Options{TxnNs: 2000}, runner.Config{Duration: 5 * time.Millisecond})
	old.Runs = slices.Clone(old.Runs)
	old.Runs[0].Throughput, old.Runs[0].Histogram, old.Runs[0].Percentiles, old.Runs[0].Phases = nil, nil, nil, nil
	results := []*report.Result{r, empty, &old}
	for name, c := range map[string]struct {
		write func(b *bytes.Buffer) error
		says  []string
	}{
		"result": {func(b *bytes.Buffer) error { return r.WriteHTML(b) }, []string{
			"txnode bench smallbank", "Imaginary 9000", "run 1", "published", "Amalgamate", "read-locked", "read+lock",
			"FORD+", "SMART-DTX", "--accounts", "figure 10 of the SMART paper", "--runs=1",
		}},
		"without plots": {func(b *bytes.Buffer) error { return old.WriteHTML(b) }, []string{"GetSubscriberData"}},
		"nothing": {
			func(b *bytes.Buffer) error { return empty.WriteHTML(b) }, []string{"FAILED, or was not reached"},
		},
		"comparison": {func(b *bytes.Buffer) error {
			return report.NewComparison(results).WriteHTML(b, results)
		}, []string{
			"#7 smallbank a &lt;b&gt;", "smallbank beside", "tatp beside", "do not depend on the machine",
			"Environment of #7",
		}},
	} {
		var b bytes.Buffer
		if err := c.write(&b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, want := range c.says {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s does not say %q", name, want)
			}
		}
		for _, not := range []string{"http:", "https:", "src=", "<script", "NaN", "Inf", "<b>"} {
			if not != "<b>" && strings.Contains(b.String(), not) || not == "<b>" &&
				strings.Contains(b.String(), "a <b>") {
				t.Errorf("%s has %q", name, not)
			}
		}
	}
}

// TestThroughputOfLongRuns: the intervals of a long run are put together, and a stall of one of
// them stays visible.
func TestThroughputOfLongRuns(t *testing.T) {
	const stall = int64(time.Second) + int64(90*time.Second)
	r := measured(t, "smallbank", runnertest.Options{
		TxnNs: 10_000_000, StallAt: stall, StallNs: int64(150 * time.Millisecond),
	}, runner.Config{Duration: 180 * time.Second})
	x := r.Runs[0].Throughput
	if x == nil || len(x.Committed) != 600 || x.IntervalNs != 3e8 || x.LeastNs != 1e8 || len(x.Least) != 600 {
		t.Fatalf("%+v", x)
	}
	sum, still := uint64(0), 0
	for i, n := range x.Committed {
		sum += n
		if x.Least[i] == 0 {
			still++
		}
	}
	if all := r.Runs[0].All.Committed; sum > all || all-sum > 100 || still != 1 {
		t.Errorf("%d commits in intervals, %d in all; %d with a stall", sum, all, still)
	}
}

// TestLatencyHistogram: the bars hold all latencies, within their bounds.
func TestLatencyHistogram(t *testing.T) {
	r := measured(t, "smallbank", runnertest.Options{TxnNs: 3000, ConflictEvery: 3, StallAt: 1e9 + 5e6, StallNs: 1e6},
		runner.Config{Duration: 20 * time.Millisecond, LatencySample: 1})
	run := &r.Runs[0]
	h, l := run.Histogram, &run.All.LatencyNs
	sum, last := uint64(0), int64(0)
	for i, n := range h.Count {
		if h.UpToNs[i] <= last {
			t.Errorf("bound %d is %d, after %d", i, h.UpToNs[i], last)
		}
		sum, last = sum+n, h.UpToNs[i]
	}
	n := len(h.Count)
	if sum != uint64(l.Samples) || h.Count[0] == 0 || h.Count[n-1] == 0 || last < l.Max || h.UpToNs[n-2] >= l.Max ||
		float64(h.UpToNs[0]) > 1.2*float64(l.Min) {
		t.Errorf("%d in bars of %+v, %+v", sum, h, l)
	}
	p := run.Percentiles
	if first, end := p[0], p[len(p)-1]; first.Ns != l.Min || end.Percent != 100 || end.Ns != l.Max {
		t.Errorf("percentiles %+v of %+v", p, l)
	}
	for i := 1; i < len(p); i++ {
		if p[i].Ns < p[i-1].Ns || p[i].Percent <= p[i-1].Percent {
			t.Errorf("percentiles %+v", p)
		}
	}
}
