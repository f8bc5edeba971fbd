package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"txnode/benchmarks/report/page"
	"txnode/benchmarks/report/published"
	"txnode/benchmarks/workload"
)

// Colors of a page: what was published, and the first of our runs or results, behind which
// the others follow.
const (
	_         = iota
	colorOurs // the first of them
)

// WriteHTML writes a page with everything that was measured: one file, which needs no
// network and no script.
func (r *Result) WriteHTML(w io.Writer) error {
	p := page.Page{Title: "txnode bench " + r.Workload}
	verdict := "Every run's books balance, and so does what else was verified."
	if !r.Verified {
		verdict = "Verification FAILED, or was not reached: these figures prove nothing."
	}
	p.Text = append(p.Text, r.Store.String()+"; "+r.driveLine()+". Measured "+r.Time.UTC().Format("2006-01-02 15:04")+
		" UTC.", verdict)
	if r.Error != "" {
		p.Text = append(p.Text, "The benchmark ended early: "+r.Error+".")
	}
	p.Legend = []string{"published"}
	for i := range r.Runs {
		p.Legend = append(p.Legend, fmt.Sprintf("run %d", i+1))
	}
	results := []*Result{r}
	p.Figures = append(p.Figures, throughputFigure(r.Runs), latencyFigure(r.Runs), percentileFigure(r.Runs),
		r.abortFigure(), r.phaseFigure())
	p.Tables = append(p.Tables, r.typeTable(), r.abortTable(), r.phaseTable())
	c := NewComparison(results)
	for i := range c.Workloads {
		p.Figures = append(p.Figures, c.Workloads[i].figures()...)
		p.Tables = append(p.Tables, c.Workloads[i].table(c.Caveat))
	}
	p.Tables = append(p.Tables, r.environmentTable())
	return p.Write(w)
}

// WriteHTML writes a page that sets results beside what was published: one file, which needs no
// network and no script. The results are those that the comparison was made of.
func (c *Comparison) WriteHTML(w io.Writer, results []*Result) error {
	p := page.Page{Title: "txnode beside published figures", Text: []string{c.Caveat}, Legend: []string{"published"}}
	var runs []Run // one of each result
	for _, r := range results {
		p.Legend = append(p.Legend, strings.TrimSpace(fmt.Sprintf("#%d %s %s", r.ID, r.Workload, r.Name)))
		run := Run{} // of one without, which has its place all the same
		if len(r.Runs) > 0 {
			run = r.Runs[len(r.Runs)-1]
		}
		runs = append(runs, run)
	}
	for i := range c.Workloads {
		p.Figures = append(p.Figures, c.Workloads[i].figures()...)
		p.Tables = append(p.Tables, c.Workloads[i].table(""))
	}
	if len(runs) > 0 {
		p.Text = append(p.Text, "Curves over time and of latency are of the last run of each result.")
		p.Figures = append(p.Figures, throughputFigure(runs), latencyFigure(runs), percentileFigure(runs))
	}
	for _, r := range results {
		if len(r.Runs) > 0 {
			t := r.environmentTable()
			t.Title = fmt.Sprintf("%s of #%d %s", t.Title, r.ID, r.Workload)
			p.Tables = append(p.Tables, t)
		}
	}
	return p.Write(w)
}

// throughputFigure shows what committed when, a line for each run.
func throughputFigure(runs []Run) page.Figure {
	f := page.Figure{Title: "Committed transactions per second, over time", Below: "seconds since measuring began"}
	for i := range runs {
		t := runs[i].Throughput
		if t == nil {
			continue
		}
		l := page.Line{Color: colorOurs + i}
		low := page.Line{Color: colorOurs + i, Dashed: true}
		for k, n := range t.Committed {
			at := (float64(k) + 0.5) * float64(t.IntervalNs) / 1e9
			l.X, l.Y = append(l.X, at), append(l.Y, float64(n)/(float64(t.IntervalNs)/1e9))
			if t.Least != nil {
				low.X, low.Y = append(low.X, at), append(low.Y, float64(t.Least[k])/(float64(t.LeastNs)/1e9))
			}
		}
		f.Lines = append(f.Lines, l)
		if t.Least != nil {
			f.Lines = append(f.Lines, low)
			f.Below += fmt.Sprintf("; dashed: the least of %v within each point", time.Duration(t.LeastNs))
		}
		if x := runs[i].Failover; x != nil {
			for _, e := range x.Events {
				f.Below += fmt.Sprintf("; %s at %.2f s", e.Name, float64(e.AtNs)/1e9)
			}
		}
	}
	return f
}

// latencyFigure is the histogram of latencies: bars for a single run, else a line for each.
func latencyFigure(runs []Run) page.Figure {
	f := page.Figure{
		Title: "Latency of committed transactions: how many percent took so long",
		Below: "microseconds, a quarter of an octave each", Log: true,
	}
	for i := range runs {
		h := runs[i].Histogram
		if h == nil {
			continue
		}
		total := uint64(0)
		for _, n := range h.Count {
			total += n
		}
		l := page.Line{Color: colorOurs + i}
		for k, n := range h.Count {
			l.X, l.Y = append(l.X, float64(h.UpToNs[k])/1e3), append(l.Y, 100*ratio(float64(n), float64(total)))
		}
		f.Lines = append(f.Lines, l)
		if len(runs) > 1 {
			continue
		}
		for k := range l.X {
			f.Bars = append(f.Bars, page.Bar{
				Color: colorOurs + i, Name: micros(float64(h.UpToNs[k])), Value: l.Y[k],
				Text: fmt.Sprintf("%.3g %%", l.Y[k]),
			})
		}
	}
	return f
}

// percentileFigure is latency by percentile, a line for each run.
func percentileFigure(runs []Run) page.Figure {
	f := page.Figure{
		Title: "Latency of committed transactions by percentile, microseconds",
		Below: "one transaction in so many takes longer than that: 10 is the 90th percentile, 1000 the 99.9th",
		Log:   true, LogY: true,
	}
	for i := range runs {
		l := page.Line{Color: colorOurs + i}
		for _, p := range runs[i].Percentiles {
			if p.Percent < 100 {
				l.X, l.Y = append(l.X, math.Round(1e5/(100-p.Percent))/1e3), append(l.Y, float64(max(p.Ns, 1))/1e3)
			}
		}
		if len(l.X) > 0 {
			f.Lines = append(f.Lines, l)
		}
	}
	return f
}

// abortFigure is how many of all attempts were in vain, by reason.
func (r *Result) abortFigure() page.Figure {
	f := page.Figure{Title: "Attempts that met a conflict, percent of all, by reason", Below: "median of the runs"}
	if s := r.All(); s != nil {
		for reason, v := range s.ByReason {
			f.Bars = append(f.Bars, page.Bar{
				Color: colorOurs, Name: workload.AbortReason(reason).String(), Value: v,
				Text: fmt.Sprintf("%.3g %%", v),
			})
		}
	}
	return f
}

// phaseFigure is what the phases cost in verbs.
func (r *Result) phaseFigure() page.Figure {
	f := page.Figure{
		Title: "Verbs for each committed transaction, by phase",
		Below: "of the last run; what conflicts and transactions that were rolled back have cost is in it",
	}
	if n := len(r.Runs); n > 0 {
		for _, p := range r.Runs[n-1].Phases {
			f.Bars = append(f.Bars, page.Bar{
				Color: colorOurs, Name: p.Phase, Value: p.Verbs, Text: fmt.Sprintf("%.2f", p.Verbs),
			})
		}
	}
	return f
}

// typeTable has the types of transactions, and all of them.
func (r *Result) typeTable() page.Table {
	t := page.Table{Title: "By type", Named: true, Head: []string{
		"type", "share %", "committed/s", "spread %",
		"committed %", "rolled back %", "row absent %", "conflicts %", "p50 µs", "p90 µs", "p99 µs", "p99.9 µs",
		"longest µs", "verbs", "round trips",
	}}
	for i := range r.Summary {
		s := &r.Summary[i]
		t.Rows = append(t.Rows, []string{
			s.Name, percent(s.SharePercent, 1), whole(s.CommittedPerS.Median), percent(100*s.CommittedPerS.Spread(), 1),
			percent(s.CommittedPercent.Median, 2), percent(s.RolledBackPercent.Median, 2),
			percent(s.RowAbsentPercent.Median, 2), percent(s.ConflictPercent.Median, 3), micros(s.P50Ns.Median),
			micros(s.P90Ns.Median), micros(s.P99Ns.Median), micros(s.P999Ns.Median), micros(s.MaxNs.Median),
			fmt.Sprintf("%.2f", s.Verbs.Median), fmt.Sprintf("%.2f", s.RoundTrips.Median),
		})
	}
	t.Note = fmt.Sprintf("Medians of %d runs. Latency is of committed transactions, one in %d of which was measured; "+
		"verbs and round trips are of each committed transaction, with its retries.",
		len(r.Runs), max(r.Drive.LatencySample, 1))
	return t
}

// abortTable has the conflicts of each type, by reason.
func (r *Result) abortTable() page.Table {
	t := page.Table{Title: "Conflicts, percent of attempts", Named: true, Head: []string{"type"}}
	for reason := range workload.NumAbortReasons {
		t.Head = append(t.Head, reason.String())
	}
	for i := range r.Summary {
		row := []string{r.Summary[i].Name}
		for _, v := range r.Summary[i].ByReason {
			row = append(row, percent(v, 3))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// phaseTable has what the phases cost.
func (r *Result) phaseTable() page.Table {
	t := page.Table{
		Title: "For each committed transaction, by phase",
		Named: true, Head: []string{"phase", "verbs", "round trips", "bytes read", "bytes written"},
	}
	if n := len(r.Runs); n > 0 {
		for _, p := range r.Runs[n-1].Phases {
			t.Rows = append(t.Rows, []string{
				p.Phase, fmt.Sprintf("%.3f", p.Verbs), fmt.Sprintf("%.3f", p.RoundTrips),
				fmt.Sprintf("%.1f", p.BytesRead), fmt.Sprintf("%.1f", p.BytesWritten),
			})
		}
	}
	return t
}

// environmentTable has what the result was measured on, and how.
func (r *Result) environmentTable() page.Table {
	e := &r.Environment
	t := page.Table{Title: "Environment", Named: true, Head: []string{"", ""}, Rows: [][]string{
		{"processor", e.CPU}, {"cores", fmt.Sprint(e.Cores)}, {"GOMAXPROCS", fmt.Sprint(e.GOMAXPROCS)},
		{"memory, MiB", fmt.Sprint(e.MemoryMiB)}, {"transparent huge pages", e.HugePages},
		{"system", e.OS}, {"kernel", e.Kernel}, {"Go", e.Go},
		{"txnode", strings.TrimSpace(e.Version + " " + e.Revision)},
		{"command", strings.Join(r.Command, " ")}, {"data", r.Load.Summary},
	}}
	for _, p := range r.Parameters {
		t.Rows = append(t.Rows, []string{"--" + p.Name, p.Value})
	}
	return t
}

// figures set a workload's results beside what was published.
func (c *ComparedWorkloads) figures() []page.Figure {
	draw := func(title, below string, value func(*Compare) float64, text func(float64) string) page.Figure {
		f := page.Figure{Title: c.Workload + ": " + title, Below: below}
		for i := range c.Rows {
			r := &c.Rows[i]
			v := value(r)
			f.Bars = append(f.Bars, page.Bar{
				Color: r.color, Name: r.shortName(), Below: threads(r.Threads), Value: v, Text: text(v),
			})
		}
		return f
	}
	two := func(v float64) string { return fmt.Sprintf("%.2f", v) }
	where := "published: " + published.Hardware
	return []page.Figure{
		draw("verbs for each attempt, ours beside published ones", "does not depend on the machine",
			func(r *Compare) float64 { return r.VerbsPerAttempt }, two),
		draw("committed transactions, million per second", "other machines, other networks; "+where,
			func(r *Compare) float64 { return r.CommittedPerS / 1e6 }, two),
		draw("median latency, microseconds", "other machines, other networks; "+where,
			func(r *Compare) float64 { return r.P50Ns / 1e3 }, func(v float64) string {
				return fmt.Sprintf("%.3g", v)
			}),
	}
}

// threads says how many there are.
func threads(n int) string {
	if n == 1 {
		return "1 thread"
	}
	return fmt.Sprintf("%d threads", n)
}

// shortName is what has room below a bar.
func (r *Compare) shortName() string {
	switch {
	case r.Published:
		return r.System
	case r.ID == 0:
		return "ours"
	}
	return fmt.Sprintf("#%d", r.ID)
}

// table sets a workload's results beside what was published.
func (c *ComparedWorkloads) table(note string) page.Table {
	t := page.Table{Title: c.title(), Named: true, Head: []string{
		"system", "which", "threads", "committed/s, million", "per thread", "p50 µs", "p99 µs",
		"no commit, % of attempts", "verbs each", "on",
	}}
	var places []string // what was measured where, numbered
	for i := range c.Rows {
		r := &c.Rows[i]
		which := r.What
		if r.Failed {
			which += ", FAILED"
		}
		if !r.Published && r.ID != 0 {
			which = strings.TrimSpace(fmt.Sprintf("#%d %s", r.ID, r.Name)) + ", " + which
		}
		on := "here: " + r.Hardware + "; " + r.Setting
		if r.Published {
			on = "published (figure 10 of the SMART paper): " + r.Hardware + "; " + r.Setting
		}
		at := slices.Index(places, on)
		if at < 0 {
			at, places = len(places), append(places, on)
		}
		t.Rows = append(t.Rows, []string{
			r.System, which, fmt.Sprintf("%d × %d", r.Threads, r.Coroutines), fmt.Sprintf("%.3f", r.CommittedPerS/1e6),
			whole(ratio(r.CommittedPerS, float64(r.Threads))),
			micros(r.P50Ns), micros(r.P99Ns), percent(r.NotCommittedPercent, 1), dotZero(r.VerbsPerAttempt, cents),
			fmt.Sprintf("[%d]", at+1),
		})
	}
	for i, p := range places {
		t.Note += fmt.Sprintf("[%d] %s. ", i+1, p)
	}
	t.Note += note
	return t
}
