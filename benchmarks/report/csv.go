package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// csvHead are the columns of WriteCSV. Columns are appended, never moved.
var csvHead = []string{
	"time", "id", "name", "workload", "store", "policy", "techniques", "replicas", "blades", "threads",
	"coroutines", "rate_per_s",
	"run", "seed", "elapsed_ns", "interrupted", "type", "share_percent",
	"committed", "rolled_back", "row_absent", "attempts",
	"conflicts_locked", "conflicts_read_locked", "conflicts_validation", "conflicts_phantom",
	"conflicts_stale", "conflicts_other",
	"committed_per_s", "latency_samples", "min_ns", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "max_ns",
	"verbs_per_committed", "round_trips_per_committed", "bytes_read_per_committed", "bytes_written_per_committed",
	"verbs_per_attempt",
	"backlog", "books_balance", "strictly_serializable", "error",
}

// WriteCSV writes results as CSV: a line with the names of the columns, then a
// line per run and transaction type, and one of type "all" per run. Whether it is
// strictly serializable is empty where the history was not checked; the error is that
// which has ended the benchmark.
func WriteCSV(w io.Writer, results ...*Result) error {
	c := csv.NewWriter(w)
	if err := c.Write(csvHead); err != nil {
		return err
	}
	for _, r := range results {
		for i := range r.Runs {
			run := &r.Runs[i]
			for j := range run.Types {
				if err := c.Write(r.csvLine(i, run, &run.Types[j])); err != nil {
					return err
				}
			}
			if err := c.Write(r.csvLine(i, run, &run.All)); err != nil {
				return err
			}
		}
	}
	c.Flush()
	return c.Error()
}

func (r *Result) csvLine(i int, run *Run, m *Measure) []string {
	serializable := ""
	if run.History != nil {
		serializable = strconv.FormatBool(run.History.Serializable)
	}
	values := []any{
		r.Time.UTC().Format(time.RFC3339), r.ID, r.Name, r.Workload, r.Store.Name, r.Store.Policy,
		strings.Join(r.Store.Techniques, "+"),
		r.Store.Replicas, r.Store.Blades, r.Drive.Threads, r.Drive.Coroutines, r.Drive.RatePerS,
		i + 1, run.Seed, run.ElapsedNs, run.Interrupted, m.Name, m.SharePercent,
		m.Committed, m.RolledBack, m.RowAbsent, m.Attempts,
	}
	for _, n := range m.Conflicts {
		values = append(values, n)
	}
	l, p := &m.LatencyNs, &m.PerCommitted
	values = append(values,
		m.CommittedPerS, l.Samples, l.Min, l.Mean, l.P50, l.P90, l.P99, l.P999, l.Max,
		p.Verbs, p.RoundTrips, p.BytesRead, p.BytesWritten, m.PerAttempt.Verbs,
		run.Backlog, run.Books.Balance, serializable, r.Error)
	line := make([]string, len(values))
	for k, v := range values {
		if f, ok := v.(float64); ok {
			line[k] = decimal(f)
		} else {
			line[k] = fmt.Sprint(v)
		}
	}
	return line
}

// WriteCSV writes the explanation: a line per type, phase and protocol, where
// phase "all" is the sum. The least and the most of verbs are of transactions.
func (e *Explanation) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	line := func(cells ...any) {
		text := make([]string, len(cells))
		for i, v := range cells {
			text[i] = fmt.Sprint(v)
		}
		_ = c.Write(text) // reported by Error
	}
	line("workload", "type", "share_percent", "protocol", "phase", "verbs", "round_trips", "bytes_read",
		"bytes_written", "min_verbs", "max_verbs")
	for i := range e.Types {
		t := &e.Types[i]
		put := func(protocol, phase string, cost Cost, least, most any) {
			line(e.Workload, t.Name, t.SharePercent, protocol, phase, cost.Verbs, cost.RoundTrips, cost.BytesRead,
				cost.BytesWritten, least, most)
		}
		put("ours", "all", t.PerCommitted, t.MinVerbs, t.MaxVerbs)
		for _, p := range t.Phases {
			put("ours", p.Phase, p.Cost, "", "")
		}
		if t.FORD != nil {
			put("FORD", "all", Cost{Verbs: t.FORD.MinVerbs, RoundTrips: t.FORD.RoundTrips},
				t.FORD.MinVerbs, t.FORD.MaxVerbs)
			for _, p := range t.FORD.Phases {
				put("FORD", p.Phase, p.Cost, "", "")
			}
		}
		if t.Bound != nil {
			put("bound", "all", Cost{Verbs: t.Bound.MinVerbs, RoundTrips: t.Bound.RoundTrips},
				t.Bound.MinVerbs, t.Bound.MaxVerbs)
		}
	}
	c.Flush()
	return c.Error()
}

// WriteCSV writes the comparison, a line per point or result.
func (c *Comparison) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{ // reported by Error
		"workload", "system", "published", "id", "name", "what", "threads", "coroutines",
		"committed_per_s", "p50_ns", "p99_ns",
		"not_committed_percent", "verbs_per_attempt", "setting", "hardware", "failed",
	})
	for i := range c.Workloads {
		for _, r := range c.Workloads[i].Rows {
			_ = out.Write([]string{ // reported by Error
				c.Workloads[i].Workload, r.System, strconv.FormatBool(r.Published),
				strconv.FormatUint(r.ID, 10), r.Name, r.What,
				strconv.Itoa(r.Threads), strconv.Itoa(r.Coroutines), decimal(r.CommittedPerS),
				decimal(r.P50Ns), decimal(r.P99Ns),
				decimal(r.NotCommittedPercent), decimal(r.VerbsPerAttempt), r.Setting, r.Hardware,
				strconv.FormatBool(r.Failed),
			})
		}
	}
	out.Flush()
	return out.Error()
}

// decimal writes a number for programs, with nine digits.
func decimal(x float64) string { return strconv.FormatFloat(x, 'g', 9, 64) }
