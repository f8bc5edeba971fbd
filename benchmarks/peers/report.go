package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"txnode/benchmarks/workload"
)

// row is a line of the results.
type row struct {
	Workload   string  `json:"workload"`
	Store      string  `json:"store"`
	Threads    int     `json:"threads"`
	Coroutines int     `json:"coroutines"`      // workers per thread
	Median     float64 `json:"committed_per_s"` // of the rounds
	Lowest     float64 `json:"committed_per_s_lo"`
	Highest    float64 `json:"committed_per_s_hi"`
	NotDone    float64 `json:"not_committed"` // fraction rolled back or with a row absent
	Conflicts  float64 `json:"conflicts"`     // retries per transaction
	// Ratio is the throughput of the first store divided by this one's, the
	// median of the rounds.
	Ratio float64   `json:"first_over_this"`
	Rates []float64 `json:"rounds_committed_per_s"`
}

// rows returns the results of a workload; the first entrant is the one compared
// with the others.
func rows(o *options, name string, entrants []*entrant) []row {
	all := make([]row, len(entrants))
	for i, e := range entrants {
		r := row{Workload: name, Store: e.name, Threads: o.threads, Coroutines: e.coroutines}
		var ratios []float64
		var outcomes [workload.NumOutcomes]uint64
		var aborts uint64
		for n := range e.rounds {
			r.Rates = append(r.Rates, e.rounds[n].rate())
			ratios = append(ratios, entrants[0].rounds[n].rate()/e.rounds[n].rate())
			for k, count := range e.rounds[n].outcomes {
				outcomes[k] += count
			}
			aborts += e.rounds[n].aborts
		}
		r.Median, r.Lowest, r.Highest = median(r.Rates), slices.Min(r.Rates), slices.Max(r.Rates)
		r.Ratio = median(ratios)
		ended := float64(outcomes[workload.Committed] + outcomes[workload.RolledBack] + outcomes[workload.RowAbsent])
		r.NotDone = 1 - float64(outcomes[workload.Committed])/ended
		r.Conflicts = float64(aborts) / ended
		all[i] = r
	}
	return all
}

// median returns the middle value, or the mean of the two middle ones.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// write prints the results.
func write(w io.Writer, o *options, results []row) error {
	if o.json {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(results)
	}
	first := o.stores[0].name
	fmt.Fprintf(w, "%d threads, medians of %d rounds of %v\n\n", o.threads, o.rounds, o.duration)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "workload\tstore\tworkers/thread\tcommitted/s\tlowest\thighest\tnot committed\tconflicts\t%s is\t\n", first)
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%s\t%d\t%.0f\t%.0f\t%.0f\t%.1f %%\t%.2f %%\t%.2f x\t\n",
			r.Workload, r.Store, r.Coroutines, r.Median, r.Lowest, r.Highest, 100*r.NotDone, 100*r.Conflicts, r.Ratio)
	}
	return t.Flush()
}
