package channelbench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"txnode/benchmarks/report/page"
	"txnode/rdma/sim"
)

// Report is what was measured, and how it compares with the paper.
type Report struct {
	Machine string  `json:"machine"`
	Seed    uint64  `json:"seed"`
	Points  []Point `json:"points"`
	Claims  []Claim `json:"claims"`

	profile sim.Profile
}

// Claim is a sentence of the paper beside what came out here.
type Claim struct {
	Experiment string `json:"experiment"`
	What       string `json:"what"`
	Published  string `json:"published"` // or "-": our prediction, not the paper's
	Model      string `json:"model"`
	Holds      bool   `json:"holds"`
}

// titles of experiments.
var titles = map[string]string{
	"barrier":  "A round of a barrier, a thread a node",
	"lock":     "One lock, a read-modify-write under it, a thread a node",
	"handover": "One lock of 4 nodes, with more coroutines on each",
	"transfer": "Two of 341 locks, a transfer between two accounts",
	"kv":       "The map", "fence": "Updates of the map, and the fence",
	"converter": "A controller and 20 converters, by the controller's period",
	"failure":   "A member dies: until the other one goes on",
	"objects":   "Operations of objects, on memory of this process",
}

// group is the points that are compared with each other.
type group struct {
	name   string
	points []Point
}

func (r *Report) groups() (all []group) {
	for _, p := range r.Points {
		name := titles[p.Experiment]
		if p.Setting != "" {
			name += ": " + p.Setting
		}
		i := slices.IndexFunc(all, func(g group) bool { return g.name == name })
		if i < 0 {
			i = len(all)
			all = append(all, group{name: name})
		}
		all[i].points = append(all[i].points, p)
	}
	return all
}

// cells is the table of a group.
func (g *group) cells() (head []string, rows [][]string) {
	head = []string{"", g.points[0].XName}
	experiment := g.points[0].Experiment
	switch experiment {
	case "converter":
		head = append(head, "deviation", "peak", "loop us", "verbs/loop")
	case "failure":
		head = append(head, "us", "verbs", "round trips")
	default:
		head = append(head, "k op/s", "mean us", "p50 us", "p99 us", "verbs/op", "round trips/op", "least served")
	}
	for i := range g.points {
		p := &g.points[i]
		f := func(x float64, digits int) string { return strconv.FormatFloat(x, 'f', digits, 64) }
		row := []string{p.Variant, f(p.X, 0)}
		switch experiment {
		case "converter":
			row = append(row, f(100*p.Deviation, 1)+" %", f(100*p.Peak, 0)+" %", f(p.MeanUs, 1), f(p.VerbsOp, 1))
		case "failure":
			row = append(row, f(p.MeanUs, 1), f(p.VerbsOp, 0), f(p.TripsOp, 0))
		default:
			row = append(row, f(p.Kops, 1), f(p.MeanUs, 1), f(p.P50Us, 1), f(p.P99Us, 1), f(p.VerbsOp, 2),
				f(p.TripsOp, 2), f(p.Least, 2))
		}
		rows = append(rows, row)
	}
	return head, rows
}

var claimHead = []string{"experiment", "what", "published", "here", "holds"}

func (c *Claim) row() []string {
	return []string{c.Experiment, c.What, c.Published, c.Model, map[bool]string{true: "yes", false: "no"}[c.Holds]}
}

// WriteTable prints a table for each group, and the claims.
func (r *Report) WriteTable(w io.Writer) error {
	for _, g := range r.groups() {
		head, rows := g.cells()
		if err := writeTable(w, g.name, 1, head, rows); err != nil {
			return err
		}
	}
	var rows [][]string
	for i := range r.Claims {
		rows = append(rows, r.Claims[i].row())
	}
	if len(rows) == 0 {
		return nil
	}
	return writeTable(w, fmt.Sprintf("What the paper says, and the simulator (%s); - is a prediction of ours",
		r.Machine), len(claimHead), claimHead, rows)
}

// writeTable prints a table whose first columns are words.
func writeTable(w io.Writer, title string, words int, head []string, rows [][]string) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Options.SeparateRows = false
	t.Style().Format.Header = text.FormatDefault
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
	for i := words; i < len(head); i++ {
		right = append(right, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	_, err := fmt.Fprintf(w, "%s\n%s\n\n", title, t.Render())
	return err
}

// WriteJSON writes everything.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteCSV writes a line for each point.
func (r *Report) WriteCSV(w io.Writer) error {
	rows := [][]string{{
		"experiment", "setting", "variant", "x_name", "x", "ops", "kops", "mean_us", "p50_us", "p99_us", "verbs_per_op",
		"round_trips_per_op", "least", "deviation", "peak",
	}}
	f := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	for i := range r.Points {
		p := &r.Points[i]
		rows = append(rows, []string{
			p.Experiment, p.Setting, p.Variant, p.XName, f(p.X), strconv.FormatUint(p.Ops, 10), f(p.Kops), f(p.MeanUs),
			f(p.P50Us), f(p.P99Us),
			f(p.VerbsOp), f(p.TripsOp), f(p.Least), f(p.Deviation), f(p.Peak),
		})
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// WriteHTML writes one page with a figure and a table for each group, the claims, and the constants
// of the model. It needs no network and no script.
func (r *Report) WriteHTML(w io.Writer) error {
	out := page.Page{
		Title: "Channel objects on the simulated RNIC",
		Text: []string{
			fmt.Sprintf("Objects of package channel, and what LOCO's paper describes, made of the same verbs, on the "+
				"simulator, machine %s. The paper gives no latencies: orders and ratios count, not absolute values.",
				r.Machine),
		},
		Constants: page.Constants(r.profile),
	}
	colors := map[string]int{}
	for _, g := range r.groups() {
		title, y := g.name+": thousand operations per second", func(p *Point) float64 { return p.Kops }
		switch g.points[0].Experiment {
		case "barrier":
			title, y = g.name+": us", func(p *Point) float64 { return p.MeanUs }
		case "converter":
			title, y = g.name+": deviation of the output, %", func(p *Point) float64 { return 100 * p.Deviation }
		}
		fig := page.Figure{Title: title, Below: g.points[0].XName}
		lines := map[string]int{}
		for i := range g.points {
			p := &g.points[i]
			if _, ok := colors[p.Variant]; !ok {
				colors[p.Variant] = len(colors)
				out.Legend = append(out.Legend, p.Variant)
			}
			n, ok := lines[p.Variant]
			if !ok {
				n = len(fig.Lines)
				lines[p.Variant] = n
				fig.Lines = append(fig.Lines, page.Line{Color: colors[p.Variant]})
			}
			l := &fig.Lines[n]
			l.X, l.Y = append(l.X, p.X), append(l.Y, y(p))
		}
		if g.points[0].Experiment != "failure" {
			out.Figures = append(out.Figures, fig)
		}
		head, rows := g.cells()
		out.Tables = append(out.Tables, page.Table{Title: g.name, Head: head, Rows: rows, Named: true})
	}
	if len(r.Claims) > 0 {
		t := page.Table{
			Title: "What the paper says", Head: claimHead, Named: true, Note: "A dash is a prediction of ours.",
		}
		for i := range r.Claims {
			t.Rows = append(t.Rows, r.Claims[i].row())
		}
		out.Tables = append(out.Tables, t)
	}
	return out.Write(w)
}
