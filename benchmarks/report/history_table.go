package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// WriteList prints a line per result, for people.
func WriteList(w io.Writer, theme Theme, results []*Result) error {
	g := grid{theme: theme, left: 4}
	for _, h := range []string{
		"id", "ended (UTC)", "name", "workload", "threads", "runs", "committed/s", "spread",
		"p99 µs", "verbs", "verified",
	} {
		g.column("", h)
	}
	for _, r := range results {
		cells := []string{
			fmt.Sprintf("#%d", r.ID), r.Time.UTC().Format("2006-01-02 15:04"), r.Name,
			r.Workload + "/" + r.Store.Policy,
			fmt.Sprintf("%d × %d", r.Drive.Threads, r.Drive.Coroutines), strconv.Itoa(len(r.Runs)),
		}
		if s := r.All(); s != nil {
			spread := none
			if len(r.Runs) > 1 {
				spread = percent(100*s.CommittedPerS.Spread(), 1) + " %"
			}
			cells = append(cells, whole(s.CommittedPerS.Median), spread, micros(s.P99Ns.Median),
				dotZero(s.Verbs.Median, cents))
		} else {
			cells = append(cells, none, none, none, none)
		}
		g.row(append(cells, r.verdict(theme))...)
	}
	_, err := io.WriteString(w, g.String())
	return err
}

// verdict says in a word or two what was verified.
func (r *Result) verdict(theme Theme) string {
	what := "books"
	if r.Drive.Verify {
		what = "books+history"
	}
	switch {
	case len(r.Runs) == 0:
		return none
	case !r.Verified:
		return theme.bad("FAILED")
	case r.Interrupted:
		return what + " (cut short)"
	}
	return what
}

// WriteListCSV writes a line per result.
func WriteListCSV(w io.Writer, results []*Result) error {
	c := csv.NewWriter(w)
	_ = c.Write(strings.Split("id,time,name,workload,policy,threads,coroutines,runs,committed_per_s,"+
		// reported by Error
		"min_committed_per_s,max_committed_per_s,p50_ns,p99_ns,verbs_per_committed,verified,interrupted,error", ","))
	for _, r := range results {
		var s Summary
		if all := r.All(); all != nil {
			s = *all
		}
		_ = c.Write([]string{ // reported by Error
			strconv.FormatUint(r.ID, 10), r.Time.UTC().Format(time.RFC3339), r.Name, r.Workload, r.Store.Policy,
			strconv.Itoa(r.Drive.Threads), strconv.Itoa(r.Drive.Coroutines), strconv.Itoa(len(r.Runs)),
			decimal(s.CommittedPerS.Median), decimal(s.CommittedPerS.Min), decimal(s.CommittedPerS.Max),
			decimal(s.P50Ns.Median), decimal(s.P99Ns.Median), decimal(s.Verbs.Median),
			strconv.FormatBool(r.Verified), strconv.FormatBool(r.Interrupted), r.Error,
		})
	}
	c.Flush()
	return c.Error()
}
