package runner_test

import (
	"context"
	"fmt"
	"time"

	"txnode/benchmarks/runner"
	"txnode/benchmarks/runner/runnertest"
	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/workload"
)

// A benchmark on a store with a virtual clock, whose transactions take 2 µs
// each: 4 workers run 2 million a second.
func ExampleBench() {
	options := smallbank.DefaultOptions()
	options.Accounts, options.HotAccounts = 1000, 40
	driver, err := smallbank.New(options)
	if err != nil {
		fmt.Println(err)
		return
	}
	store := runnertest.New(runnertest.Options{TxnNs: 2000})
	res, err := runner.Bench(context.Background(), store, driver, runner.Config{
		Threads: 2, Coroutines: 2, Warmup: time.Millisecond, Duration: 50 * time.Millisecond, LatencySample: 1,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	run := &res.Runs[0]
	all := run.Total()
	fmt.Printf("%.1f M transactions/s\n", float64(all.Ended())/run.Elapsed.Seconds()/1e6)
	fmt.Println("p99:", all.Latency.ValueAtQuantile(99), "ns")
	transfer := &run.Types[smallbank.SendPayment]
	fmt.Printf("some of %s rolled back: %v\n", transfer.Name, transfer.Outcomes[workload.RolledBack] > 0)
	fmt.Println("books balance:", run.BooksErr == nil)
	// Output:
	// 2.0 M transactions/s
	// p99: 2000 ns
	// some of SendPayment rolled back: true
	// books balance: true
}
