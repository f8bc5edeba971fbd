package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"txnode/benchmarks/workload"
)

// WriteTable prints a result for people.
func (r *Result) WriteTable(w io.Writer, theme Theme) error {
	var b strings.Builder
	b.WriteString(theme.bold(r.title()) + "\n")
	for _, l := range r.settings() {
		if l[1] != "" {
			b.WriteString(labelled(theme, l[0], l[1]))
		}
	}
	if len(r.Summary) > 0 {
		b.WriteString("\n" + r.outcomeTable(theme))
		b.WriteString("\n" + r.costTable(theme))
		if len(r.Runs) > 1 {
			b.WriteString("\n" + r.runTable(theme))
		}
		b.WriteString(r.failoverTable(theme))
	}
	if notes := r.notes(theme); len(notes) > 0 {
		b.WriteString("\n")
		for _, n := range notes {
			b.WriteString(n)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Result) title() string {
	s := r.Workload + " on " + r.Store.Name
	if r.ID != 0 {
		s += fmt.Sprintf(" · #%d", r.ID)
	}
	if r.Name != "" {
		s += fmt.Sprintf(" %q", r.Name)
	}
	return s + " · " + r.Time.UTC().Format("2006-01-02 15:04 MST")
}

// settings are the lines under the title, with their labels.
func (r *Result) settings() [][2]string {
	return [][2]string{
		{"load", r.driveLine()},
		{"data", r.dataLine()},
		{"options", parameters(r.Parameters)},
		{"store", r.Store.String()},
		{"machine", r.Environment.String()},
	}
}

// labelled wraps a text with a label in front of its first line.
func labelled(theme Theme, label, text string) string {
	first := fmt.Sprintf("  %-8s ", label)
	indent := strings.Repeat(" ", len(first))
	return strings.Replace(wrap(text, first, indent), label, theme.faint(label), 1)
}

// rate writes a rate, without decimals when it has none.
func rate(perS float64) string {
	if perS == math.Trunc(perS) {
		return groups(int64(perS))
	}
	return strconv.FormatFloat(perS, 'f', -1, 64)
}

func (r *Result) driveLine() string {
	d := &r.Drive
	s := ""
	if d.Processes > 1 {
		s = fmt.Sprintf("%d processes × ", d.Processes)
	}
	s += fmt.Sprintf("%s × %s, ", plural(int64(d.Threads), "thread"), plural(int64(d.Coroutines), "coroutine"))
	if d.RatePerS > 0 {
		s += fmt.Sprintf("open loop of %s arrivals/s, ", rate(d.RatePerS))
	} else {
		s += "closed loop, "
	}
	var length []string
	if d.DurationNs > 0 {
		length = append(length, duration(d.DurationNs))
	}
	if d.Txns > 0 {
		length = append(length, plural(d.Txns, "transaction"))
	}
	s += strings.Join(length, " or ")
	if d.WarmupNs > 0 {
		s += " after " + duration(d.WarmupNs) + " of warm-up"
	}
	if d.Runs > 1 {
		s += fmt.Sprintf(", %d runs", d.Runs)
	}
	return s + fmt.Sprintf(", seed %d", d.Seed)
}

func (r *Result) dataLine() string {
	s := r.Load.Summary
	if r.Load.Existed {
		s += " (found in the database)"
	} else if r.Load.TimeNs > 0 {
		s += ", loaded in " + duration(r.Load.TimeNs)
	}
	return s
}

// String describes the store in a line.
func (st *Store) String() string {
	techniques := strings.Join(st.Techniques, "+")
	switch len(st.Techniques) {
	case 0:
		techniques = "none"
	case len(Techniques):
		techniques = "all"
	}
	s := plural(int64(st.Blades), "blade")
	if st.BladeBytes > 0 {
		s += " of " + bytesSize(st.BladeBytes)
	}
	s += fmt.Sprintf(", %s per record, policy %s, techniques %s", plural(int64(st.Replicas), "backup"),
		st.Policy, techniques)
	if st.ReadBackups {
		s += ", reads from backups"
	}
	if st.HugePages {
		s += ", explicit huge pages"
	}
	if st.Directory != "" {
		s += ", in " + st.Directory
		if st.Power {
			s += ", flushed before a commit is acknowledged"
		}
	}
	return s + "; " + st.Fabric
}

// String describes the machine and the program in a line.
func (e *Environment) String() string {
	parts := []string{e.CPU, plural(int64(e.Cores), "core")}
	if e.GOMAXPROCS != e.Cores {
		parts = append(parts, fmt.Sprintf("GOMAXPROCS %d", e.GOMAXPROCS))
	}
	if e.MemoryMiB > 0 {
		parts = append(parts, bytesSize(int64(e.MemoryMiB)<<20))
	}
	if e.HugePages != "" {
		parts = append(parts, "huge pages "+e.HugePages)
	}
	parts = append(parts, strings.TrimSpace(e.OS+" "+e.Kernel), e.Go)
	if e.Revision != "" {
		parts = append(parts, "revision "+e.Revision)
	}
	return strings.Join(parts, ", ")
}

// outcomeTable shows how transactions ended, and the conflicts by reason, in a
// table of their own if the page is not wide enough. What has not happened at
// all has no column.
func (r *Result) outcomeTable(theme Theme) string {
	all := r.All()
	var reasons []workload.AbortReason
	for reason := range workload.NumAbortReasons {
		if slices.ContainsFunc(r.Summary, func(s Summary) bool { return s.ByReason[reason] > 0 }) {
			reasons = append(reasons, reason)
		}
	}
	rolled, absent, conflicted := all.RolledBackPercent.Max > 0, all.RowAbsentPercent.Max > 0,
		all.ConflictPercent.Max > 0
	build := func(outcomes bool, reasons []workload.AbortReason) *grid {
		const ended, conflicts = "ended, %", "attempts in conflict, %"
		g := &grid{theme: theme}
		g.column("", "transaction")
		if outcomes {
			g.column("", "mix %")
			g.column("", "committed/s")
			g.column(ended, "committed")
			if rolled {
				g.column(ended, "rolled back")
			}
			if absent {
				g.column(ended, "row absent")
			}
		}
		switch {
		case !conflicted:
		case reasons == nil:
			g.column("", "conflict %")
		default:
			g.column(conflicts, "all")
		}
		for _, reason := range reasons {
			g.column(conflicts, reason.String())
		}
		for i := range r.Summary {
			s := &r.Summary[i]
			cells := []string{s.Name}
			if outcomes {
				cells = append(cells, exact(s.SharePercent), whole(s.CommittedPerS.Median),
					percent(s.CommittedPercent.Median, 1))
				if rolled {
					cells = append(cells, percent(s.RolledBackPercent.Median, 1))
				}
				if absent {
					cells = append(cells, percent(s.RowAbsentPercent.Median, 1))
				}
			}
			if conflicted {
				cells = append(cells, percent(s.ConflictPercent.Median, 2))
			}
			for _, reason := range reasons {
				cells = append(cells, percent(s.ByReason[reason], 2))
			}
			r.appendRow(g, i, cells)
		}
		return g
	}
	one := build(true, reasons)
	if one.width() <= pageWidth {
		return one.String()
	}
	return build(true, nil).String() + "\n" + build(false, reasons).String()
}

// costTable shows latency and what a committed transaction has cost.
func (r *Result) costTable(theme Theme) string {
	const lat, per = "latency of committed, µs", "per committed transaction"
	g := grid{theme: theme}
	g.column("", "transaction")
	for _, h := range []string{"p50", "p90", "p99", "p99.9", "max"} {
		g.column(lat, h)
	}
	for _, h := range []string{"verbs", "round trips", "B read", "B written"} {
		g.column(per, h)
	}
	g.column("", "verbs/try")
	for i := range r.Summary {
		s := &r.Summary[i]
		r.appendRow(&g, i, []string{
			s.Name,
			micros(s.P50Ns.Median), micros(s.P90Ns.Median), micros(s.P99Ns.Median), micros(s.P999Ns.Median),
			micros(s.MaxNs.Median),
			dotZero(s.Verbs.Median, cents), dotZero(s.RoundTrips.Median, cents),
			dotZero(s.BytesRead.Median, whole), dotZero(s.BytesWritten.Median, whole),
			dotZero(s.VerbsAttempt.Median, cents),
		})
	}
	return g.String()
}

// appendRow adds the row of summary i, the last of which is the total.
func (r *Result) appendRow(g *grid, i int, cells []string) {
	last := i == len(r.Summary)-1
	if last {
		g.rule()
	}
	g.row(cells...)
	if last {
		g.embolden()
	}
}

// runTable shows each run, and the median with the range.
func (r *Result) runTable(theme Theme) string {
	g := grid{theme: theme}
	for _, h := range []string{"run", "seed", "measured", "committed/s"} {
		g.column("", h)
	}
	for _, h := range []string{"p50", "p99", "max"} {
		g.column("latency, µs", h)
	}
	g.column("", "conflict %")
	for i := range r.Runs {
		x := &r.Runs[i]
		name := fmt.Sprint(i + 1)
		if x.Interrupted {
			name += " (cut short)"
		}
		g.row(name, fmt.Sprint(x.Seed), duration(x.ElapsedNs), whole(x.All.CommittedPerS),
			micros(float64(x.All.LatencyNs.P50)), micros(float64(x.All.LatencyNs.P99)),
			micros(float64(x.All.LatencyNs.Max)),
			percent(100*ratio(float64(x.All.Conflicts.Total()), float64(x.All.Attempts)), 2))
	}
	s := r.All()
	g.rule()
	g.row("median", "", "", whole(s.CommittedPerS.Median),
		micros(s.P50Ns.Median), micros(s.P99Ns.Median), micros(s.MaxNs.Median), percent(s.ConflictPercent.Median, 2))
	g.embolden()
	spread := func(s Stat) string { return fmt.Sprintf("%.1f %%", 100*s.Spread()) }
	g.row("spread", "", "", spread(s.CommittedPerS), spread(s.P50Ns), spread(s.P99Ns), spread(s.MaxNs), "")
	return g.String()
}

// notes are the lines under the tables: verdicts first.
func (r *Result) notes(theme Theme) []string {
	var out []string
	yes := func(s string) { out = append(out, theme.good("✓")+wrap(s, " ", "  ")) }
	no := func(s string) { out = append(out, theme.bad("✗")+wrap(s, " ", "  ")) }
	say := func(s string) { out = append(out, wrap(s, "  ", "  ")) }

	balanced := 0
	for i := range r.Runs {
		books := &r.Runs[i].Books
		if books.Balance {
			balanced++
			continue
		}
		no(fmt.Sprintf("THE BOOKS DO NOT BALANCE after run %d: %s", i+1, books.Error))
	}
	if n := len(r.Runs); n > 0 && balanced == n {
		books := &r.Runs[n-1].Books
		when := "after every run"
		if n == 1 {
			when = "after the run"
		}
		yes(fmt.Sprintf("the books balance %s: %s over %s", when,
			plural(int64(len(books.Checks)), "rule"), plural(int64(books.Records), "record")))
		if c := books.Checks; len(c) > 0 {
			last := c[len(c)-1]
			say(last.Rule + ": " + last.Detail)
		}
	}
	for i := range r.Runs {
		h := r.Runs[i].History
		if h != nil && !h.Serializable {
			no(fmt.Sprintf("NOT SERIALIZABLE, run %d:", i+1))
			for line := range strings.Lines(h.Violation) {
				indent := "  " + line[:len(line)-len(strings.TrimLeft(line, " "))]
				out = append(out, wrap(line, indent, indent+"  "))
			}
		}
	}
	if t := r.verifiedHistory(); t != "" {
		yes(t)
	}
	for _, l := range r.LostBlades {
		then := "and its backups took over"
		if r.Store.Replicas == 0 {
			then = "with what it had"
		}
		s := fmt.Sprintf("blade %d was lost meanwhile, %s: %s; ", l.Blade, then, l.Cause)
		switch {
		case l.Vacant:
			s += "its place is vacant"
		case !l.Back:
			s += "it is not back"
		case r.CopiesMissing+r.SegmentsLost+r.SegmentsUnavailable == 0:
			s += "it is back, and all copies are there"
		default:
			s += "it is back"
		}
		no(s)
	}
	for _, x := range []struct {
		n    int
		text string
	}{
		{r.SegmentsLost, "%s segments have no copy at the end: their data is lost"},
		{r.SegmentsUnavailable, "%s segments have copies only on blades that are away at the end"},
		{r.CopiesMissing, "%s of the segments' copies are missing at the end"},
	} {
		if x.n > 0 {
			no(fmt.Sprintf(x.text, groups(int64(x.n))))
		}
	}
	if !r.Drive.Verify && len(r.Runs) > 0 {
		say("the history was not recorded; --verify does that, and checks that it is strictly serializable")
	}
	if len(r.Summary) > 0 && r.Drive.LatencySample > 1 {
		say(fmt.Sprintf("latency: one transaction in %d was measured; max is the largest of those",
			r.Drive.LatencySample))
	}
	if r.Drive.RatePerS > 0 {
		out = append(out, r.openLoopNote(theme))
	}
	if r.Interrupted {
		say("interrupted: these are the results until then")
	}
	if r.Error != "" {
		no("ended early: " + r.Error)
	}
	return out
}

// verifiedHistory says what was checked, if it was and holds.
func (r *Result) verifiedHistory() string {
	var txns, ops, edges, ambiguous, windows int64
	for i := range r.Runs {
		h := r.Runs[i].History
		if h == nil || !h.Serializable {
			return ""
		}
		txns += int64(h.Txns)
		ops += int64(h.Ops)
		edges += int64(h.Edges)
		ambiguous += int64(h.Ambiguous)
		windows += int64(h.Windows)
	}
	if txns == 0 {
		return ""
	}
	s := fmt.Sprintf("strictly serializable: %s with %s, %s in the dependency graph, no cycle (%s)",
		plural(txns, "transaction"), plural(ops, "operation"), plural(edges, "edge"), plural(windows, "window"))
	if ambiguous > 0 {
		s += fmt.Sprintf("; %s could not be ordered, so the verdict is not exact",
			plural(ambiguous, "observation of an absent key"))
	}
	return s
}

func (r *Result) openLoopNote(theme Theme) string {
	var arrivals, backlog int64
	for i := range r.Runs {
		arrivals += r.Runs[i].Arrivals
		backlog += r.Runs[i].Backlog
	}
	served := plural(arrivals, "arrival")
	if backlog*overloadShare <= arrivals {
		waiting := "none of them waited at the end"
		if backlog > 0 {
			waiting = groups(backlog) + " of them waited at the end"
		}
		return wrap(fmt.Sprintf("open loop: %s, %s; latency is from the intended start", served, waiting), "  ", "  ")
	}
	return theme.bad("✗") + wrap(fmt.Sprintf(
		"OVERLOAD: %s of %s were still waiting at the end, %s %%; the latencies are those of the others, and "+
			"lower bounds",
		groups(backlog), served, percent(100*ratio(float64(backlog), float64(arrivals)), 1)), " ", "  ")
}

// overloadShare: a backlog of more than one arrival in so many says that the
// store did not keep up; a few can always be under way.
const overloadShare = 1000
