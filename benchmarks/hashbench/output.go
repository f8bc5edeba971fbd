package hashbench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"txnode/benchmarks/report/published"
	"txnode/internal/mdtable"
)

// Report is what a run of several curves has found.
type Report struct {
	Figure     string      `json:"figure,omitempty"`
	Keys       uint64      `json:"keys"`
	Drawn      uint64      `json:"drawn"`
	Curves     []Curve     `json:"curves"`
	Statements []Statement `json:"statements,omitempty"`
}

// NewReport returns the report of measured curves; figure is empty when they are of none.
func NewReport(figure string, c Config, curves []Curve) *Report {
	c.defaults()
	return &Report{
		Figure: figure, Keys: c.Keys, Drawn: max(c.Keys, c.Drawn), Curves: curves,
		Statements: Statements(figure, curves),
	}
}

// published returns what was published of a point of a curve: in the figure that the
// report is of, or if it is of none in any that has the point's configuration.
func (r *Report) published(c *Curve, i int) (published.HashPoint, bool) {
	if r.Figure == "" && i < len(c.Config) {
		return c.Config[i].published()
	}
	return publishedIn(r.Figure, c, &c.Points[i])
}

// Errors returns the median and the largest absolute error of the throughputs of a
// curve against those published, and of how many points.
func (r *Report) Errors(curves ...*Curve) (median, largest float64, n int) {
	var all []float64
	for _, c := range curves {
		for i := range c.Points {
			if x, ok := r.published(c, i); ok {
				all = append(all, math.Abs(c.Points[i].Mops/x.Mops-1))
			}
		}
	}
	if len(all) == 0 {
		return 0, 0, 0
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2, all[len(all)-1], len(all)
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
		if err := r.writeCurve(w, &r.Curves[i]); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(w, r.summary()); err != nil {
		return err
	}
	if len(r.Statements) == 0 {
		return nil
	}
	t := plain()
	t.AppendHeader(table.Row{"figure " + r.Figure, "published", "model"})
	for _, s := range r.Statements {
		t.AppendRow(table.Row{s.What, s.Published, fmt.Sprintf("%.4g %s", s.Model, s.Unit)})
	}
	_, err := fmt.Fprintf(w,
		"%s\nThe published table has 100 million keys; this one has %d, drawn as if there were %d.\n",
		t.Render(), r.Keys, r.Drawn)
	return err
}

// cells is the table of a curve, and what its last columns are.
func (r *Report) cells(c *Curve) (head []string, rows [][]string, last string) {
	head = []string{
		"threads", "theta", "idle us", "M op/s", "published", "error", "p50 us", "p99 us", "verbs/op",
		"retries/update", "most",
	}
	for _, b := range bands {
		head = append(head, b.name)
	}
	for i := range c.Points {
		p := &c.Points[i]
		was, off := "-", "-"
		if x, ok := r.published(c, i); ok {
			was, off = fmt.Sprintf("%.3f", x.Mops), fmt.Sprintf("%+.0f %%", 100*(p.Mops/x.Mops-1))
		}
		row := []string{
			strconv.Itoa(p.Threads), fmt.Sprint(p.Theta), fmt.Sprint(p.IdleUs), fmt.Sprintf("%.3f%s", p.Mops, p.mark()),
			was, off,
			fmt.Sprintf("%.1f", p.P50us), fmt.Sprintf("%.1f", p.P99us), fmt.Sprintf("%.2f", p.VerbsPerOp), "-", "-",
		}
		if p.Updates > 0 {
			row[9], row[10] = fmt.Sprintf("%.2f", p.Retries), strconv.Itoa(p.MostRetries)
		}
		for _, b := range bands {
			if p.Updates == 0 {
				row = append(row, "-")
			} else {
				row = append(row, fmt.Sprintf("%.1f %%", 100*p.share(b.lo, b.hi)))
			}
		}
		rows = append(rows, row)
	}
	last = "updates by their retries"
	if len(c.Config) > 0 && c.Config[0].LikeSMART {
		last = "updates by what their thread had retried since its last one ended, as SMART's program counts; mean " +
			"and most are their own"
	}
	return head, rows, last
}

func (r *Report) writeCurve(w io.Writer, c *Curve) error {
	head, rows, last := r.cells(c)
	t := plain()
	toRow := func(cells []string) (row table.Row) {
		for _, x := range cells {
			row = append(row, x)
		}
		return row
	}
	t.AppendHeader(toRow(head))
	for _, row := range rows {
		t.AppendRow(toRow(row))
	}
	var right []table.ColumnConfig
	for i := range head {
		right = append(right, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	name := c.Name + ", " + c.group()
	if median, largest, n := r.Errors(c); n > 0 {
		name += fmt.Sprintf("; error of the throughput: median %.0f %%, largest %.0f %%", 100*median, 100*largest)
	}
	_, err := fmt.Fprintf(w, "%s\nthe last columns: %s\n%s\n\n", name, last, t.Render())
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
	head := []string{
		"curve", "mix", "threads", "theta", "idle_us", "mops", "published_mops", "p50_us", "p99_us",
		"verbs_per_op", "retries_per_update", "most_retries", "settled", "window_ms", "total_ms",
	}
	for i := range distribution {
		head = append(head, "share_"+strconv.Itoa(i))
	}
	rows := [][]string{head}
	for i := range r.Curves {
		c := &r.Curves[i]
		for j := range c.Points {
			p := &c.Points[j]
			f := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
			was := ""
			if x, ok := r.published(c, j); ok {
				was = f(x.Mops)
			}
			row := []string{
				c.Name, c.Mix, strconv.Itoa(p.Threads), f(p.Theta), f(p.IdleUs), f(p.Mops), was, f(p.P50us),
				f(p.P99us), f(p.VerbsPerOp), f(p.Retries), strconv.Itoa(p.MostRetries), strconv.FormatBool(p.Settled),
				f(p.WindowMs), f(p.TotalMs),
			}
			for k := range distribution {
				row = append(row, f(p.share(k, k)))
			}
			rows = append(rows, row)
		}
	}
	return out.WriteAll(rows)
}

// mark is what follows the throughput of a point that has not settled.
func (p *Point) mark() string {
	if p.Settled {
		return ""
	}
	return "*"
}

// axis names what the points of the curves differ in, and at is where one is.
func (r *Report) axis() (name string, at func(p *Point) float64) {
	for i := range r.Curves {
		if ps := r.Curves[i].Points; len(ps) > 1 {
			switch {
			case ps[0].Theta != ps[1].Theta:
				return "theta", func(p *Point) float64 { return p.Theta }
			case ps[0].IdleUs != ps[1].IdleUs:
				return "idle us", func(p *Point) float64 { return p.IdleUs }
			}
		}
	}
	return "threads", func(p *Point) float64 { return float64(p.Threads) }
}

// summary says how far the curves are from those published, and which points have not settled.
func (r *Report) summary() string {
	_, at := r.axis()
	var out strings.Builder
	byGroup := map[string][]published.Series{}
	var groups []string
	unsettled, points := 0, 0
	for i := range r.Curves {
		c := &r.Curves[i]
		s := published.Series{Name: c.Name}
		for j := range c.Points {
			p := &c.Points[j]
			was := math.NaN()
			if x, ok := r.published(c, j); ok {
				was = x.Mops
			}
			s.X, s.Published, s.Model = append(s.X, at(p)), append(s.Published, was), append(s.Model, p.Mops)
			if points++; !p.Settled {
				unsettled++
			}
		}
		g := c.group()
		if byGroup[g] == nil {
			groups = append(groups, g)
		}
		byGroup[g] = append(byGroup[g], s)
	}
	for _, g := range groups {
		if text := published.Compare(byGroup[g]).String(); text != "" {
			if len(groups) > 1 {
				fmt.Fprintf(&out, "%s: ", sentence(g))
			}
			out.WriteString(text)
		}
	}
	if unsettled > 0 {
		fmt.Fprintf(&out,
			"* %d of %d points have not settled: their last windows differ by more than %.0f %%. A longer "+
				"--limit may help.\n", unsettled, points, 100*agreeWithin)
	}
	return out.String()
}

// sentence begins with a capital letter.
func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// WriteMarkdown writes the tables of the pages docs/simulator-*.md about the hash table:
// throughput of the curves of each mix and machine, then what else was measured of the last
// point of each curve.
func (r *Report) WriteMarkdown(w io.Writer) error {
	name, at := r.axis()
	tables := map[string][2]*mdtable.Table{}
	var groups []string
	for i := range r.Curves {
		c := &r.Curves[i]
		g, ok := tables[c.group()]
		if !ok {
			groups = append(groups, c.group())
			g = [2]*mdtable.Table{mdtable.New(name), mdtable.New("of the last row")}
			tables[c.group()] = g
		}
		for j := range c.Points {
			x, _ := r.published(c, j)
			p := &c.Points[j]
			g[0].Set(fmt.Sprint(at(p)), c.Name, mdtable.Cell(x.Mops, p.Mops)+p.mark())
			if j < len(c.Points)-1 {
				continue
			}
			g[1].Set("p50, us", c.Name, mdtable.Cell(x.P50us, p.P50us))
			g[1].Set("p99, us", c.Name, mdtable.Cell(x.P99us, p.P99us))
			if p.Updates > 0 {
				g[1].Set("attempts an update", c.Name, mdtable.Cell(x.Attempts, 1+p.Retries))
				g[1].Set("without retries, %", c.Name, mdtable.Cell(100*x.NotFollowed, 100*p.share(0, 0)))
			}
		}
	}
	for _, group := range groups {
		if len(groups) > 1 {
			if _, err := fmt.Fprintf(w, "\n%s:\n", sentence(group)); err != nil {
				return err
			}
		}
		for _, g := range tables[group] {
			if err := g.WriteMarkdown(w); err != nil {
				return err
			}
		}
	}
	return mdtable.WriteText(w, r.summary())
}
