package hashbench

import (
	"fmt"
	"io"
	"math"
	"slices"

	"txnode/benchmarks/report/page"
	"txnode/benchmarks/report/published"
	"txnode/rdma/sim"
)

// WriteHTML writes one page with the curves, ours and theirs, the errors, the statements,
// and the constants of the model and of SMART's program. It needs no network and no script.
func (r *Report) WriteHTML(w io.Writer, p sim.Profile) error {
	out := page.Page{Title: "The hash table on the simulated RNIC"}
	if r.Figure != "" {
		out.Title += fmt.Sprintf(": figure %s of the SMART paper", r.Figure)
	}
	out.Text = []string{fmt.Sprintf("Solid lines: the index on the simulator, machine %s, with %d keys, drawn as if "+
		"there were %d. Dashed lines: published measurements (SMART), with 100 million keys, on %s.",
		p.Name, r.Keys, r.Drawn, published.Hardware)}
	var all []*Curve
	var groups []string // in order; each has figures of its own
	var programs []sim.Program
	colors := map[string]int{}
	byTheta := false
	for i := range r.Curves {
		c := &r.Curves[i]
		all = append(all, c)
		if _, ok := colors[c.Name]; !ok {
			colors[c.Name] = len(colors)
			out.Legend = append(out.Legend, c.Name)
		}
		if !slices.Contains(groups, c.group()) {
			groups = append(groups, c.group())
		}
		if len(c.Config) > 0 && c.Config[0].LikeSMART && programs == nil {
			programs = []sim.Program{c.Config[0].program()}
		}
		byTheta = byTheta || len(c.Points) > 1 && c.Points[0].Theta != c.Points[1].Theta
	}
	out.Constants = page.Constants(p, programs...)
	if median, largest, n := r.Errors(all...); n > 0 {
		out.Text = append(out.Text,
			fmt.Sprintf("Absolute error of the throughput over %d points: median %.0f %%, largest %.0f %%.",
				n, 100*median, 100*largest))
	}
	below := "threads"
	if byTheta {
		below = "parameter of the Zipf distribution"
	}
	for _, group := range groups {
		for _, f := range []struct {
			title   string
			updates bool // of updates alone
			ours    func(*Point) float64
			theirs  func(published.HashPoint) float64
		}{
			{
				"million operations per second", false, func(p *Point) float64 { return p.Mops },
				func(p published.HashPoint) float64 { return p.Mops },
			},
			{
				"median latency, us", false, func(p *Point) float64 { return p.P50us },
				func(p published.HashPoint) float64 { return known(p.P50us) },
			},
			{
				"99th percentile of latency, us", false, func(p *Point) float64 { return p.P99us },
				func(p published.HashPoint) float64 { return known(p.P99us) },
			},
			{
				"retries of an update", true, func(p *Point) float64 { return p.Retries },
				func(p published.HashPoint) float64 { return known(p.Attempts) - 1 },
			},
		} {
			fig := page.Figure{Title: fmt.Sprintf("%s: %s", sentence(group), f.title), Below: below}
			for _, c := range all {
				if c.group() != group || f.updates && c.Mix == "c" {
					continue
				}
				ours, theirs := page.Line{Color: colors[c.Name]}, page.Line{Color: colors[c.Name], Dashed: true}
				for i := range c.Points {
					at := float64(c.Points[i].Threads)
					if byTheta {
						at = c.Points[i].Theta
					}
					ours.X, ours.Y = append(ours.X, at), append(ours.Y, f.ours(&c.Points[i]))
					if x, ok := r.published(c, i); ok {
						theirs.X, theirs.Y = append(theirs.X, at), append(theirs.Y, f.theirs(x))
					}
				}
				fig.Lines = append(fig.Lines, ours, theirs)
			}
			if len(fig.Lines) > 0 {
				out.Figures = append(out.Figures, fig)
			}
		}
	}
	for _, c := range all {
		head, rows, last := r.cells(c)
		out.Tables = append(out.Tables, page.Table{
			Title: c.Name + ", " + c.group(), Head: head, Rows: rows, Note: "The last columns: " + last + ".",
		})
	}
	if len(r.Statements) > 0 {
		t := page.Table{Title: "What the paper says of figure " + r.Figure, Head: []string{"", "published", "model"}}
		for _, s := range r.Statements {
			t.Rows = append(t.Rows, []string{s.What, s.Published, fmt.Sprintf("%.4g %s", s.Model, s.Unit)})
		}
		out.Tables = append(out.Tables, t)
	}
	return out.Write(w)
}

// known is a published value, which is 0 where a figure does not have it.
func known(v float64) float64 {
	if v == 0 {
		return math.NaN()
	}
	return v
}
