package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"txnode/benchmarks/report/published"
)

// Schema of Comparison.
const (
	ComparisonSchema  = "txnode/comparison"
	ComparisonVersion = 1
)

// Comparison sets results beside published figures, workload by workload.
type Comparison struct {
	Schema        string              `json:"schema"`
	SchemaVersion int                 `json:"schema_version"`
	Workloads     []ComparedWorkloads `json:"workloads"`
	// Caveat says what must be kept in mind.
	Caveat string `json:"caveat"`
}

// ComparedWorkloads is one workload's part.
type ComparedWorkloads struct {
	Workload string    `json:"workload"`
	Rows     []Compare `json:"rows"`
}

// Compare is one line: a published point, or one of our results.
type Compare struct {
	System              string  `json:"system"`
	Published           bool    `json:"published"`
	ID                  uint64  `json:"id,omitempty"`
	Name                string  `json:"name,omitempty"`
	Threads             int     `json:"threads"`
	Coroutines          int     `json:"coroutines"`
	CommittedPerS       float64 `json:"committed_per_s"`
	P50Ns               float64 `json:"p50_ns"`
	P99Ns               float64 `json:"p99_ns"`
	NotCommittedPercent float64 `json:"not_committed_percent"` // of attempts, for whatever reason
	VerbsPerAttempt     float64 `json:"verbs_per_attempt"`
	Setting             string  `json:"setting"`
	Hardware            string  `json:"hardware"` // what it was measured on
	What                string  `json:"what"`     // which point of a curve
	Failed              bool    `json:"failed"`   // its verification failed
	color               int     // on a page; 0 if published
}

const caveat = "These are different machines and different networks: throughput and latency compare a protocol, an " +
	"implementation and a " +
	"machine all at once, and say nothing about which protocol is faster. Verbs per attempt do not depend on the " +
	"machine and compare directly. " +
	"Published latency is of single attempts that committed; ours is of transactions, with the retries after conflicts."

// NewComparison compares results, of any workloads, with what was published.
func NewComparison(results []*Result) *Comparison {
	c := &Comparison{
		Schema: ComparisonSchema, SchemaVersion: ComparisonVersion, Workloads: []ComparedWorkloads{}, Caveat: caveat,
	}
	for k, r := range results {
		i := slices.IndexFunc(c.Workloads, func(w ComparedWorkloads) bool { return w.Workload == r.Workload })
		if i < 0 {
			c.Workloads = append(c.Workloads, ComparedWorkloads{Workload: r.Workload, Rows: publishedRows(r.Workload)})
			i = len(c.Workloads) - 1
		}
		if s := r.All(); s != nil {
			row := ourRow(r, s)
			row.color = colorOurs + k
			c.Workloads[i].Rows = append(c.Workloads[i].Rows, row)
		}
	}
	return c
}

// publishedRows are the first, the best and the last point of each curve.
func publishedRows(workload string) []Compare {
	var rows []Compare
	for _, system := range []published.System{published.FORDPlus, published.SMARTDTX} {
		curve := published.Curve(workload, system)
		if len(curve) == 0 {
			continue
		}
		best := published.Best(curve)
		add := func(p published.Point, what string) {
			rows = append(rows, Compare{
				System: string(system), Published: true, What: what,
				Threads: p.Threads, Coroutines: 8,
				CommittedPerS: p.CommittedMps * 1e6, P50Ns: p.P50us * 1e3, P99Ns: p.P99us * 1e3,
				NotCommittedPercent: 100 * p.NotCommitted, VerbsPerAttempt: p.VerbsPerAttempt,
				Setting: published.Setting, Hardware: published.Hardware,
			})
		}
		first, last := curve[0], curve[len(curve)-1]
		add(first, "one thread")
		if best != last {
			add(best, "its best")
			add(last, "all cores")
		} else {
			add(best, "its best, all cores")
		}
	}
	return rows
}

func ourRow(r *Result, s *Summary) Compare {
	// The runs' median share of attempts that committed.
	var shares []float64
	for i := range r.Runs {
		all := &r.Runs[i].All
		shares = append(shares, 100*(1-ratio(float64(all.Committed), float64(all.Attempts))))
	}
	return Compare{
		System: r.Store.Name, ID: r.ID, Name: r.Name, What: "measured " + r.Time.UTC().Format("2006-01-02 15:04"),
		Threads: r.Drive.Threads * max(r.Drive.Processes, 1), Coroutines: r.Drive.Coroutines,
		CommittedPerS: s.CommittedPerS.Median, P50Ns: s.P50Ns.Median, P99Ns: s.P99Ns.Median,
		NotCommittedPercent: newStat(shares).Median, VerbsPerAttempt: s.VerbsAttempt.Median,
		Setting: r.Load.Summary + "; " + r.driveLine() + "; " + r.Store.String(), Hardware: r.Environment.String(),
		Failed: !r.Verified,
	}
}

// WriteTable prints the comparison for people.
func (c *Comparison) WriteTable(w io.Writer, theme Theme) error {
	var b strings.Builder
	for i := range c.Workloads {
		if i > 0 {
			b.WriteString("\n")
		}
		c.Workloads[i].write(&b, theme)
	}
	b.WriteString("\n" + wrap(c.Caveat, "  ", "  "))
	_, err := io.WriteString(w, b.String())
	return err
}

// title says whether there is anything to compare with.
func (c *ComparedWorkloads) title() string {
	if len(published.Curve(c.Workload, published.FORDPlus)) == 0 {
		return c.Workload + ": nothing comparable was published"
	}
	return c.Workload + " beside published figures"
}

func (c *ComparedWorkloads) write(b *strings.Builder, theme Theme) {
	b.WriteString(theme.bold(c.title()) + "\n\n")
	g := grid{theme: theme, left: 2}
	g.column("", "system")
	g.column("", "which")
	g.column("", "threads")
	g.column("committed/s", "million")
	g.column("committed/s", "per thread")
	g.column("latency µs", "p50")
	g.column("latency µs", "p99")
	g.column("of attempts", "no commit %")
	g.column("of attempts", "verbs each")
	g.column("", "on")
	var places []string // what was measured where, numbered
	place := func(r *Compare) string {
		text := r.Hardware
		if r.Published {
			text = "published (figure 10 of the SMART paper): " + r.Hardware + "; " + r.Setting
		} else {
			text = "here: " + text + "; " + r.Setting
		}
		i := slices.Index(places, text)
		if i < 0 {
			places = append(places, text)
			i = len(places) - 1
		}
		return fmt.Sprintf("[%d]", i+1)
	}
	was := true
	for i := range c.Rows {
		r := &c.Rows[i]
		if was && !r.Published || i > 0 && r.Published && r.System != c.Rows[i-1].System {
			g.rule()
		}
		was = r.Published
		which := r.What
		if !r.Published {
			which = fmt.Sprintf("#%d", r.ID)
			if r.Name != "" {
				which += " " + r.Name
			}
			if r.Failed {
				which += theme.bad(" FAILED")
			}
		}
		g.row(r.System, which, fmt.Sprintf("%d × %d", r.Threads, r.Coroutines),
			fmt.Sprintf("%.3f", r.CommittedPerS/1e6), whole(ratio(r.CommittedPerS, float64(r.Threads))),
			micros(r.P50Ns), micros(r.P99Ns), percent(r.NotCommittedPercent, 1), dotZero(r.VerbsPerAttempt, cents),
			place(r))
		if !r.Published {
			g.embolden()
		}
	}
	b.WriteString(g.String())
	b.WriteString("\n")
	for i, p := range places {
		b.WriteString(wrap(p, fmt.Sprintf("  [%d] ", i+1), "      "))
	}
	if len(c.Rows) == 0 || c.Rows[len(c.Rows)-1].Published {
		b.WriteString("\n  no saved result of this workload: txnode bench " + c.Workload + "\n")
	}
}
