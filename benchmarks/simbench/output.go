package simbench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"txnode/benchmarks/report/published"
	"txnode/internal/mdtable"
)

// WriteTable prints the curves, each point beside the published one.
func WriteTable(w io.Writer, curves []Curve) error {
	for i := range curves {
		if err := writeCurve(w, &curves[i]); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, summary(curves))
	return err
}

// summary says how far the curves are from those published, and which points have not settled.
func summary(curves []Curve) string {
	var series []published.Series
	unsettled, points := 0, 0
	for i := range curves {
		c := &curves[i]
		s := published.Series{Name: c.Name}
		for j := range c.Points {
			was := math.NaN()
			if !math.IsNaN(c.Error(j)) {
				was = c.Figure[j].CommittedMps
			}
			s.X, s.Published, s.Model = append(s.X, c.At(j)), append(s.Published, was),
				append(s.Model, c.Points[j].CommittedMps)
			if points++; !c.Points[j].Settled {
				unsettled++
			}
		}
		series = append(series, s)
	}
	out := published.Compare(series).String()
	if unsettled > 0 {
		out += fmt.Sprintf("* %d of %d points have not settled: their thirds differ by more than %.0f %%. More "+
			"--txns, or a longer --warmup, may help.\n", unsettled, points, 100*agreeWithin)
	}
	return out
}

// WriteMarkdown writes the tables of docs/simulator-*.md: a table for each curve, its throughput
// and latencies as published/model.
func WriteMarkdown(w io.Writer, curves []Curve) error {
	for i := range curves {
		c := &curves[i]
		g := mdtable.New(c.Axis())
		for j := range c.Points {
			p, f := &c.Points[j], c.Figure[j]
			if c.Published == "" {
				f = published.Point{}
			}
			at := fmt.Sprint(c.At(j))
			g.Set(at, "M/s", mdtable.Cell(f.CommittedMps, p.CommittedMps)+p.mark())
			g.Set(at, "p50, us", mdtable.Cell(f.P50us, p.P50us))
			g.Set(at, "p99, us", mdtable.Cell(f.P99us, p.P99us))
			g.Set(at, "not committed, %", mdtable.Cell(100*f.NotCommitted, 100*p.NotCommitted))
		}
		if _, err := fmt.Fprintf(w, "\n%s, %s:\n", title(c.Workload), c.Name); err != nil {
			return err
		}
		if err := g.WriteMarkdown(w); err != nil {
			return err
		}
	}
	return mdtable.WriteText(w, summary(curves))
}

// titles are the names of workloads in sentences.
var titles = map[string]string{"smallbank": "SmallBank", "tatp": "TATP", "ycsb": "YCSB"}

func title(workload string) string { return titles[workload] }

// mark is what follows the throughput of a point that has not settled.
func (p *Point) mark() string {
	if p.Settled {
		return ""
	}
	return "*"
}

// idles reports whether the curve is one of idle times.
func (c *Curve) idles() bool {
	return len(c.Points) > 1 && c.Points[0].IdleUs != c.Points[1].IdleUs
}

// Axis names what the points of the curve differ in.
func (c *Curve) Axis() string {
	if c.idles() {
		return "idle us"
	}
	return "threads"
}

// At is where point i is on the axis.
func (c *Curve) At(i int) float64 {
	if c.idles() {
		return c.Points[i].IdleUs
	}
	return float64(c.Points[i].Threads)
}

func writeCurve(w io.Writer, c *Curve) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Options.SeparateRows = false
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{
		c.Axis(), "M txn/s", "published", "error", "p50 us", "publ.", "p99 us", "publ.",
		"not committed", "publ.", "verbs/attempt", "publ.",
	})
	cell := func(format string, v float64, there bool) string {
		if !there || math.IsNaN(v) {
			return "-"
		}
		return fmt.Sprintf(format, v)
	}
	for i := range c.Points {
		p, f := &c.Points[i], &c.Figure[i]
		has := f.Threads != 0
		t.AppendRow(table.Row{
			c.At(i),
			fmt.Sprintf("%.3f%s", p.CommittedMps, p.mark()), cell("%.3f", f.CommittedMps, has),
			cell("%+.1f %%", 100*c.Error(i), has),
			fmt.Sprintf("%.1f", p.P50us), cell("%.1f", f.P50us, has),
			fmt.Sprintf("%.1f", p.P99us), cell("%.1f", f.P99us, has),
			fmt.Sprintf("%.1f %%", 100*p.NotCommitted), cell("%.1f %%", 100*f.NotCommitted, has),
			fmt.Sprintf("%.2f", p.VerbsCounted), cell("%.2f", f.VerbsPerAttempt, has),
		})
	}
	var right []table.ColumnConfig
	for i := 1; i <= 12; i++ {
		right = append(right, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	beside := "published: " + c.Published
	switch {
	case len(published.Curve(c.Workload, published.FORDPlus)) == 0:
		beside = "nothing comparable was published"
	case c.Published == "":
		beside = "beside it SMART-DTX as published, which counts differently"
	}
	_, err := fmt.Fprintf(w, "%s, %s (%s)\n%s\n\n", c.Workload, c.Name, beside, t.Render())
	return err
}

// WriteJSON writes the curves with all their numbers.
func WriteJSON(w io.Writer, curves []Curve) error {
	out := struct {
		Curves      []Curve  `json:"curves"`
		MedianError *float64 `json:"median_error"`
	}{Curves: curves}
	if m := MedianError(curves); !math.IsNaN(m) {
		out.MedianError = &m
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

// WriteCSV writes a line per point.
func WriteCSV(w io.Writer, curves []Curve) error {
	out := csv.NewWriter(w)
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	rows := [][]string{{
		"workload", "system", "published_as", "threads", "idle_us", "attempted_mps", "committed_mps", "p50_us",
		"p99_us", "not_committed", "conflicts",
		"verbs_per_attempt", "verbs_counted", "verbs_mps", "published_committed_mps", "error", "settled", "trace_hash",
	}}
	for i := range curves {
		c := &curves[i]
		for j := range c.Points {
			p, pub, e := &c.Points[j], "", ""
			if c.Figure[j].Threads != 0 {
				pub = num(c.Figure[j].CommittedMps)
			}
			if x := c.Error(j); !math.IsNaN(x) {
				e = num(x)
			}
			rows = append(rows, []string{
				c.Workload, c.Name, c.Published, strconv.Itoa(p.Threads), num(p.IdleUs), num(p.AttemptedMps),
				num(p.CommittedMps), num(p.P50us), num(p.P99us),
				num(p.NotCommitted), num(p.Conflicts), num(p.VerbsPerAttempt), num(p.VerbsCounted), num(p.VerbsMps),
				pub, e, strconv.FormatBool(p.Settled), fmt.Sprintf("%016x", p.TraceHash),
			})
		}
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("simbench: writing CSV: %w", err)
	}
	return nil
}
