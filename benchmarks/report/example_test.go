package report_test

import (
	"fmt"

	"txnode/benchmarks/report"
)

// The published figures of a workload, without a result of ours beside them.
func ExampleNewComparison() {
	c := report.NewComparison([]*report.Result{{Workload: "smallbank"}})
	for _, row := range c.Workloads[0].Rows {
		fmt.Printf("%-9s %2d threads  %.2f M/s  %.1f verbs per attempt\n",
			row.System, row.Threads, row.CommittedPerS/1e6, row.VerbsPerAttempt)
	}
	// Output:
	// FORD+      1 threads  0.21 M/s  13.1 verbs per attempt
	// FORD+     24 threads  2.12 M/s  13.0 verbs per attempt
	// FORD+     96 threads  0.80 M/s  13.0 verbs per attempt
	// SMART-DTX  1 threads  0.20 M/s  13.1 verbs per attempt
	// SMART-DTX 72 threads  4.65 M/s  12.8 verbs per attempt
	// SMART-DTX 96 threads  4.63 M/s  12.7 verbs per attempt
}
