package runner_test

import (
	"testing"
	"time"

	"txnode/benchmarks/runner"
	"txnode/benchmarks/runner/runnertest"
	"txnode/benchmarks/workload"
)

// TestSeries: commits are in the intervals in which they happened, whoever asks, and a stall is
// seen where it was.
func TestSeries(t *testing.T) {
	for _, c := range []runner.Config{
		{Duration: 2 * time.Second, Threads: 2},
		{Duration: 2 * time.Second, Warmup: 300 * time.Millisecond, Threads: 2, LatencySample: 3},
		{Duration: 2 * time.Second, Threads: 2, Rate: 5000},
		{Duration: 2 * time.Second, Threads: 2, Verify: true, VerifyWindow: 2500},
	} {
		const txn = 100_000 // ns: 10,000 attempts a second
		// The clock begins at 1 s, and loading takes hardly anything.
		stall := int64(1e9) + int64(c.Warmup) + int64(850*time.Millisecond)
		s := runnertest.New(runnertest.Options{TxnNs: txn, StallAt: stall, StallNs: int64(500 * time.Millisecond)})
		run := &bench(t, s, &counters{keys: 4, types: 1}, c).Runs[0]
		series := run.Series
		if series.Interval != runner.SeriesInterval || len(series.Commits) != 20 && len(series.Commits) != 21 {
			t.Fatalf("%+v: %d intervals of %v", c, len(series.Commits), series.Interval)
		}
		sum := uint64(0)
		for i, n := range series.Commits {
			sum += n
			switch {
			case i >= 9 && i < 13: // in the stall
				if n > 16 {
					t.Errorf("%+v: %d commits in interval %d, in the stall", c, n, i)
				}
			case i < 8 || i > 13 && i < 20:
				if n < 300 {
					t.Errorf("%+v: %d commits in interval %d", c, n, i)
				}
			}
		}
		total := run.Total()
		committed := total.Outcomes[workload.Committed]
		if sum > committed || committed-sum > 1100 { // the last interval is not over
			t.Errorf("%+v: %d commits in intervals, %d in all", c, sum, committed)
		}
	}
}
