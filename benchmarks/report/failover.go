package report

import (
	"fmt"
	"strings"
	"time"

	"txnode/benchmarks/runner"
)

// Failover is what a run shows in which blades were stopped. Times are of the time
// measured, in ns.
type Failover struct {
	Events []Event `json:"events"`
	// EndNs is when the measurement ended.
	EndNs int64 `json:"end_ns"`
	// The longest time without a commit, of the run, and of those that begin within
	// 100 ms of the first event; those that last until the end included.
	GapNs      int64 `json:"longest_gap_ns"`
	GapAtNs    int64 `json:"longest_gap_at_ns"`
	EventGapNs int64 `json:"event_gap_ns"`
	EventGapAt int64 `json:"event_gap_at_ns"`
	// Rates of commits: in the two seconds before the first event, between the gap and
	// the next event or the end, and in the last two seconds.
	BeforePerS   float64 `json:"before_per_s"`
	DegradedPerS float64 `json:"degraded_per_s"`
	EndPerS      float64 `json:"end_per_s"`
	// Commits by interval.
	IntervalNs int64    `json:"interval_ns"`
	Committed  []uint64 `json:"committed"`
	// Outages are what the engine tells of the blades.
	Outages []Outage `json:"outages"`
}

// Event is something that was done to the store.
type Event struct {
	Name   string `json:"name"`
	AtNs   int64  `json:"at_ns"`
	TookNs int64  `json:"took_ns"`
	Error  string `json:"error,omitempty"`
}

// Outage is the story of a blade that was lost. Times that have not come are -1.
type Outage struct {
	Blade      int    `json:"blade"`
	LostNs     int64  `json:"noticed_at_ns"`     // a verb had failed
	PromotedNs int64  `json:"promoted_at_ns"`    // its backups were primaries
	DecidedNs  int64  `json:"decided_at_ns"`     // transactions could go on
	BackNs     int64  `json:"taken_in_at_ns"`    // it took part again
	WholeNs    int64  `json:"all_copies_at_ns"`  // every segment had all its copies again
	Segments   int    `json:"segments_promoted"` // whose primary it had
	Built      int    `json:"segments_rebuilt"`  // of which new copies were built
	Bytes      uint64 `json:"bytes_copied"`      // of records
	Finished   int    `json:"finished"`          // transactions that were found committed, and completed
	Undone     int    `json:"undone"`            // and that were taken back
}

const failoverInterval = 100 * time.Millisecond

// failoverOf describes a timeline; nil without one.
func failoverOf(t *runner.Timeline) *Failover {
	if t == nil {
		return nil
	}
	const around = 2 * time.Second
	gap, at := t.Gap()
	end := time.Duration(len(t.Commits)) * t.Bucket
	f := &Failover{EndNs: int64(end), GapNs: int64(gap), GapAtNs: int64(at), IntervalNs: int64(failoverInterval),
		Committed: t.Each(failoverInterval),
		Events:    []Event{}, Outages: []Outage{}, EndPerS: t.PerSecond(max(end-around, 0), end)}
	for _, e := range t.Events {
		x := Event{Name: e.Name, AtNs: int64(e.At), TookNs: int64(e.Took)}
		if e.Err != nil {
			x.Error = e.Err.Error()
		}
		f.Events = append(f.Events, x)
	}
	if len(t.Events) > 0 {
		first := t.Events[0].At
		f.BeforePerS = t.PerSecond(max(first-around, 0), first)
		until := end
		if len(t.Events) > 1 {
			until = t.Events[1].At
		}
		gap, at := t.GapAfter(first, 100*time.Millisecond)
		f.EventGapNs, f.EventGapAt = int64(gap), int64(at)
		gap, at = t.GapIn(first, until)
		f.DegradedPerS = t.PerSecond(max(first, at+gap), until)
	}
	return f
}

// lines tell the story.
func (f *Failover) lines() []string {
	var out []string
	at := func(ns int64) string { return fmt.Sprintf("%.3f s", float64(ns)/1e9) }
	since := func(ns, from int64) string {
		if ns < 0 {
			return "not by the end"
		}
		return duration(ns - from)
	}
	for _, e := range f.Events {
		s := fmt.Sprintf("%s at %s", e.Name, at(e.AtNs))
		if e.Error != "" {
			s += ": " + e.Error
		}
		out = append(out, s)
	}
	if len(f.Events) == 0 {
		return append(out, "the run has ended before any was stopped")
	}
	lasts := ""
	if f.EndNs > 0 && f.EventGapNs > 0 && f.EventGapAt+f.EventGapNs >= f.EndNs { // results of before EndNs have none
		lasts = ", until the end"
	}
	out = append(out, fmt.Sprintf("no commit for %s, at %s%s; longest time without one in the whole run: %s, at %s",
		duration(f.EventGapNs), at(f.EventGapAt), lasts, duration(f.GapNs), at(f.GapAtNs)),
		fmt.Sprintf("committed per second: %s before, %s with a blade missing, %s at the end",
			groups(int64(f.BeforePerS)), groups(int64(f.DegradedPerS)), groups(int64(f.EndPerS))))
	for _, o := range f.Outages {
		out = append(out,
			fmt.Sprintf("blade %d: backups promoted %s after the first failed verb, transactions decided (%d "+
				"finished, %d undone) after %s",
				o.Blade, since(o.PromotedNs, o.LostNs), o.Finished, o.Undone, since(o.DecidedNs, o.LostNs)))
		s := fmt.Sprintf("blade %d: all copies there again %s after that", o.Blade, since(o.WholeNs, o.LostNs))
		if o.WholeNs < 0 {
			s = fmt.Sprintf("blade %d: not all copies were there again by the end", o.Blade)
		}
		s += fmt.Sprintf("; copies of %s built", plural(int64(o.Built), "segment"))
		if o.BackNs >= 0 {
			s += fmt.Sprintf("; the blade was taken in again at %s", at(o.BackNs))
		}
		out = append(out, s)
	}
	return out
}

func (r *Result) failoverTable(theme Theme) string {
	var b strings.Builder
	for i := range r.Runs {
		if f := r.Runs[i].Failover; f != nil {
			b.WriteString("\n" + theme.bold("blades") + "\n")
			for _, l := range f.lines() {
				b.WriteString("  " + l + "\n")
			}
		}
	}
	return b.String()
}
