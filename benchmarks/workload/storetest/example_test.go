package storetest_test

import (
	"context"
	"fmt"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/workload/storetest"
)

// Watch what a transaction asks of its store.
func ExampleIntercept() {
	ctx := context.Background()
	store := storetest.Intercept(reference.Open(reference.Options{}),
		func(worker int, op storetest.Op) storetest.Verdict {
			fmt.Println(op.Kind, op.Table, op.Key)
			return storetest.Verdict{}
		})
	if _, err := store.Tables(ctx, []workload.Table{{Name: "t", MaxValue: 8}}); err != nil {
		fmt.Println(err)
		return
	}
	err := store.Run(ctx, 1, 1, func(ctx context.Context, _ int, w workload.Worker) error {
		return w.Update(ctx, func(tx workload.Tx) error {
			tx.Stage(0, 5, workload.Update)
			return tx.Insert(0, 5, []byte("five"))
		})
	})
	fmt.Println(err)
	// Output:
	// begin 0 0
	// Stage 0 5
	// Insert 0 5
	// end 0 0
	// <nil>
}
