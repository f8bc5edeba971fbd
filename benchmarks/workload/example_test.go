package workload_test

import (
	"context"
	"errors"
	"fmt"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
)

// A transaction on any Store: announce the keys, read, write.
func Example() {
	ctx := context.Background()
	var store workload.Store = reference.Open(reference.Options{})
	defer store.Close(ctx)
	if _, err := store.Tables(ctx, []workload.Table{{Name: "stock", MaxValue: 8, Expect: 10}}); err != nil {
		fmt.Println(err)
		return
	}
	err := store.Run(ctx, 1, 1, func(ctx context.Context, _ int, w workload.Worker) error {
		return w.Update(ctx, func(tx workload.Tx) error {
			tx.Stage(0, 7, workload.Update)
			tx.Stage(0, 8, workload.Update)
			if _, err := tx.Get(0, 8); !errors.Is(err, workload.ErrNotFound) {
				return err
			}
			if err := tx.Put(0, 7, []byte("apples")); err != nil {
				return err
			}
			value, err := tx.Get(0, 7)
			fmt.Printf("%s\n", value)
			return err
		})
	})
	fmt.Println(err)
	// Output:
	// apples
	// <nil>
}
