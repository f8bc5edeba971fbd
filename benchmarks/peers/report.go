package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"txnode/benchmarks/workload"
)

// row is a line of the results.
type row struct {
	Workload   string  `json:"workload"`
	Types      string  `json:"transactions"`   // the type, or the workload for its mix
	Rows       int     `json:"rows,omitempty"` // of the rows workload
	Store      string  `json:"store"`
	Threads    int     `json:"threads"`
	Coroutines int     `json:"coroutines"`      // workers per thread
	Median     float64 `json:"committed_per_s"` // of the rounds
	Lowest     float64 `json:"committed_per_s_lo"`
	Highest    float64 `json:"committed_per_s_hi"`
	Orders     float64 `json:"new_orders_per_min,omitempty"` // of TPC-C, the median of the rounds
	NotDone    float64 `json:"not_committed"`                // fraction rolled back or with a row absent
	Conflicts  float64 `json:"conflicts"`                    // retries per transaction
	Mallocs    float64 `json:"mallocs"`                      // heap objects per transaction, of the process
	// Ratio is the throughput of the first store divided by this one's, the
	// median of the rounds.
	Ratio float64   `json:"first_over_this"`
	Rates []float64 `json:"rounds_committed_per_s"`
}

// rowsOf returns the results of a contest; the first entrant is the one compared
// with the others.
func rowsOf(o *options, c *contest, entrants []*entrant) (all []row) {
	for h, heat := range c.heats(o, entrants[0].driver) {
		for _, e := range entrants {
			r := row{
				Workload: c.name, Types: heat.label(e.driver), Rows: e.size,
				Store: e.name, Threads: heat.threads, Coroutines: e.coroutines,
			}
			r.sum(entrants[0].rounds[h], e.rounds[h])
			all = append(all, r)
		}
	}
	return all
}

// sum fills in what the rounds say, beside those of the first entrant.
func (r *row) sum(first, rounds []round) {
	var ratios, orders []float64
	var outcomes [workload.NumOutcomes]uint64
	var aborts, mallocs uint64
	for n := range rounds {
		r.Rates = append(r.Rates, rounds[n].rate())
		orders = append(orders, 60*float64(rounds[n].orders)/rounds[n].seconds)
		ratios = append(ratios, first[n].rate()/rounds[n].rate())
		for k, count := range rounds[n].outcomes {
			outcomes[k] += count
		}
		aborts += rounds[n].aborts
		mallocs += rounds[n].mallocs
	}
	r.Median, r.Lowest, r.Highest = median(r.Rates), slices.Min(r.Rates), slices.Max(r.Rates)
	r.Ratio, r.Orders = median(ratios), median(orders)
	ended := float64(outcomes[workload.Committed] + outcomes[workload.RolledBack] + outcomes[workload.RowAbsent])
	r.NotDone = 1 - float64(outcomes[workload.Committed])/ended
	r.Conflicts = float64(aborts) / ended
	r.Mallocs = float64(mallocs) / ended
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
	fmt.Fprintf(w, "medians of %d rounds of %v\n\n", o.rounds, o.duration)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t,
		"workload\ttransactions\trows\tthreads\tstore\tworkers/thread\tcommitted/s\tlowest\thighest\t"+
			"NewOrder/min\tnot committed\tconflicts\tallocs\t%s is\t\n", first)
	for i := range results {
		r := &results[i]
		rows, orders := "-", "-"
		if r.Rows > 0 {
			rows = strconv.Itoa(r.Rows)
		}
		if r.Orders > 0 {
			orders = fmt.Sprintf("%.0f", r.Orders)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%d\t%.0f\t%.0f\t%.0f\t%s\t%.1f %%\t%.2f %%\t%.2f\t%.2f x\t\n",
			r.Workload, r.Types, rows, r.Threads, r.Store, r.Coroutines, r.Median, r.Lowest, r.Highest, orders,
			100*r.NotDone, 100*r.Conflicts, r.Mallocs, r.Ratio)
	}
	return t.Flush()
}
