package hashbench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Report is what a run of several curves has found.
type Report struct {
	Figure     string      `json:"figure,omitempty"`
	Keys       uint64      `json:"keys"`
	Curves     []Curve     `json:"curves"`
	Statements []Statement `json:"statements,omitempty"`
}

// share is the part of the updates that had from lo to hi retries.
func (p *Point) share(lo, hi int) float64 {
	sum := 0.0
	for i := lo; i <= hi && i < len(p.Distribution); i++ {
		sum += p.Distribution[i]
	}
	return sum
}

// bands are the columns of the distribution of retries.
var bands = []struct {
	name   string
	lo, hi int
}{
	{"0", 0, 0}, {"1", 1, 1}, {"2-4", 2, 4}, {"5-8", 5, 8}, {"9-16", 9, 16}, {"17+", 17, distribution},
}

// WriteTable prints the curves, with the distribution of retries, and the statements.
func (r *Report) WriteTable(w io.Writer) error {
	for i := range r.Curves {
		if err := r.Curves[i].writeTable(w); err != nil {
			return err
		}
	}
	if len(r.Statements) == 0 {
		return nil
	}
	t := plain()
	t.AppendHeader(table.Row{"figure " + r.Figure, "published", "model"})
	for _, s := range r.Statements {
		t.AppendRow(table.Row{s.What, s.Published, fmt.Sprintf("%.4g %s", s.Model, s.Unit)})
	}
	_, err := fmt.Fprintf(w, "%s\nThe published table has 100 million keys, this one %d.\n", t.Render(), r.Keys)
	return err
}

func (c *Curve) writeTable(w io.Writer) error {
	t := plain()
	head := table.Row{"threads", "theta", "M op/s", "p50 us", "p99 us", "verbs/op", "retries/update", "most"}
	for _, b := range bands {
		head = append(head, b.name)
	}
	t.AppendHeader(head)
	for i := range c.Points {
		p := &c.Points[i]
		row := table.Row{p.Threads, p.Theta, fmt.Sprintf("%.3f", p.Mops), fmt.Sprintf("%.1f", p.P50us), fmt.Sprintf("%.1f", p.P99us), fmt.Sprintf("%.2f", p.VerbsPerOp)}
		if p.Updates == 0 {
			row = append(row, "-", "-")
		} else {
			row = append(row, fmt.Sprintf("%.2f", p.Retries), p.MostRetries)
		}
		for _, b := range bands {
			if p.Updates == 0 {
				row = append(row, "-")
			} else {
				row = append(row, fmt.Sprintf("%.1f %%", 100*p.share(b.lo, b.hi)))
			}
		}
		t.AppendRow(row)
	}
	var right []table.ColumnConfig
	for i := range head {
		right = append(right, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	_, err := fmt.Fprintf(w, "%s, mix %s; the last columns: updates by their retries\n%s\n\n", c.Name, c.Mix, t.Render())
	return err
}

func plain() table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Options.SeparateRows = false
	t.Style().Format.Header = text.FormatDefault
	return t
}

// WriteJSON writes everything.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteCSV writes a line for each point.
func (r *Report) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	head := []string{"curve", "mix", "threads", "theta", "mops", "p50_us", "p99_us", "verbs_per_op", "retries_per_update", "most_retries"}
	for i := range distribution {
		head = append(head, "share_"+strconv.Itoa(i))
	}
	rows := [][]string{head}
	for i := range r.Curves {
		c := &r.Curves[i]
		for j := range c.Points {
			p := &c.Points[j]
			f := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
			row := []string{c.Name, c.Mix, strconv.Itoa(p.Threads), f(p.Theta), f(p.Mops), f(p.P50us), f(p.P99us), f(p.VerbsPerOp), f(p.Retries), strconv.Itoa(p.MostRetries)}
			for k := range distribution {
				row = append(row, f(p.share(k, k)))
			}
			rows = append(rows, row)
		}
	}
	return out.WriteAll(rows)
}
