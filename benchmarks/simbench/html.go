package simbench

import (
	"fmt"
	"io"
	"math"

	"txnode/benchmarks/report/page"
	"txnode/benchmarks/report/published"
	"txnode/rdma/sim"
)

// WriteHTML writes one page with the curves, ours and theirs, the errors, and the
// constants of the model and of the programs. It needs no network and no script.
func WriteHTML(w io.Writer, p sim.Profile, curves []Curve, programs ...sim.Program) error {
	idle := len(curves) > 0 && curves[0].idles()
	source, below := "figure 10", "threads, of 8 coroutines each unless told otherwise"
	if idle {
		source, below = "figure 11", "microseconds that each coroutine waits after a committed transaction"
	}
	out := page.Page{Constants: page.Constants(p, programs...)}
	if len(curves) > 0 {
		out.Title = curves[0].Workload + " on the simulated RNIC"
	}
	out.Text = []string{fmt.Sprintf("Solid lines: the engine on the simulator, machine %s. Dashed lines: published "+
		"measurements (SMART, %s) on %s; %s.",
		p.Name, source, published.Hardware, published.Setting)}
	if m := MedianError(curves); !math.IsNaN(m) {
		e := Errors(curves)
		out.Text = append(out.Text,
			fmt.Sprintf("Committed transactions: absolute error over %d points: median %.1f %%, largest %.1f %%.",
				len(e), 100*m, 100*e[len(e)-1]))
	}
	for _, f := range []struct {
		title  string
		ours   func(Point) float64
		theirs func(published.Point) float64
	}{
		{
			"Committed transactions, million per second", func(p Point) float64 { return p.CommittedMps },
			func(p published.Point) float64 { return p.CommittedMps },
		},
		{
			"Median latency of committed transactions, us", func(p Point) float64 { return p.P50us },
			func(p published.Point) float64 { return p.P50us },
		},
		{"99th percentile of latency, us", func(p Point) float64 { return p.P99us }, func(p published.Point) float64 {
			return p.P99us
		}},
		{
			"Attempts that do not commit, percent", func(p Point) float64 { return 100 * p.NotCommitted },
			func(p published.Point) float64 { return 100 * p.NotCommitted },
		},
		{"Work requests per attempt", func(p Point) float64 { return p.VerbsCounted }, func(p published.Point) float64 {
			return p.VerbsPerAttempt
		}},
	} {
		fig := page.Figure{Title: f.title, Below: below, Even: idle}
		for i := range curves {
			ours, theirs := page.Line{Color: i}, page.Line{Color: i, Dashed: true}
			for j, p := range curves[i].Points {
				ours.X, ours.Y = append(ours.X, curves[i].At(j)), append(ours.Y, f.ours(p))
				if x := curves[i].Figure[j]; curves[i].Published != "" && x.Threads != 0 {
					theirs.X, theirs.Y = append(theirs.X, curves[i].At(j)), append(theirs.Y, f.theirs(x))
				}
			}
			fig.Lines = append(fig.Lines, ours, theirs)
		}
		out.Figures = append(out.Figures, fig)
	}
	for i := range curves {
		out.Legend = append(out.Legend, curves[i].Name)
		out.Tables = append(out.Tables, curves[i].table())
	}
	return out.Write(w)
}

// table is the table of a curve on the page.
func (c *Curve) table() page.Table {
	t := page.Table{Title: c.Name, Head: []string{
		c.Axis(), "M txn/s", "published", "error", "p50 us", "published", "p99 us", "published", "not committed",
		"published", "verbs/attempt", "published",
	}}
	if c.Published == "" {
		t.Note = "Beside it, SMART-DTX as published, which counts differently: the errors are not told."
	}
	for i := range c.Points {
		p, f := &c.Points[i], &c.Figure[i]
		row := []string{fmt.Sprint(c.At(i))}
		add := func(format string, ours, theirs float64) {
			row = append(row, fmt.Sprintf(format, ours))
			if f.Threads == 0 {
				row = append(row, "")
			} else {
				row = append(row, fmt.Sprintf(format, theirs))
			}
		}
		add("%.3f", p.CommittedMps, f.CommittedMps)
		off := "–"
		if e := c.Error(i); !math.IsNaN(e) {
			off = fmt.Sprintf("%+.1f %%", 100*e)
		}
		row = append(row, off)
		add("%.1f", p.P50us, f.P50us)
		add("%.1f", p.P99us, f.P99us)
		add("%.1f %%", 100*p.NotCommitted, 100*f.NotCommitted)
		add("%.2f", p.VerbsCounted, f.VerbsPerAttempt)
		t.Rows = append(t.Rows, row)
	}
	return t
}
