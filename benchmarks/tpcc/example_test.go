package tpcc_test

import (
	"context"
	"fmt"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/tpcc"
	"txnode/benchmarks/workload"
)

// Load a store, run one transaction of each type, and check all rows.
func Example() {
	ctx := context.Background()
	store := reference.Open(reference.Options{})
	defer store.Close(ctx)

	options := tpcc.DefaultOptions()
	options.Customers, options.Items = 30, 1000
	bench, err := tpcc.New(options)
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
	fmt.Println("rules:", len(report.Checks), "kept:", err == nil)
	// Output:
	// NewOrder: committed
	// Payment: committed
	// OrderStatus: committed
	// Delivery: committed
	// StockLevel: committed
	// rules: 20 kept: true
}
