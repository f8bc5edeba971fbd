package ycsb_test

import (
	"context"
	"fmt"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/ycsb"
)

// Load a store, run one operation of each type, and check all records.
func Example() {
	ctx := context.Background()
	store := reference.Open(reference.Options{})
	defer store.Close(ctx)

	options := ycsb.DefaultOptions()
	options.Workload, options.Records = "d", 1000
	bench, err := ycsb.New(options)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := bench.Load(ctx, store, nil); err != nil {
		fmt.Println(err)
		return
	}
	err = store.Run(ctx, 1, 1, func(ctx context.Context, id int, w workload.Worker) error {
		client := bench.NewClient(id, 1, w)
		for typ, name := range bench.Types() {
			client.Draw(typ)
			outcome, err := client.Run(ctx)
			if err != nil {
				return err
			}
			fmt.Printf("%s: %v\n", name, outcome)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := bench.Verify(ctx, store)
	fmt.Println("records:", report.Records, "rules kept:", err == nil)
	// Output:
	// Read: committed
	// Insert: committed
	// records: 1001 rules kept: true
}
