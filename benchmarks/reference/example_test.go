package reference_test

import (
	"context"
	"fmt"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
)

// Two workers move a number from key to key.
func Example() {
	ctx := context.Background()
	store := reference.Open(reference.Options{})
	defer store.Close(ctx)
	if _, err := store.Tables(ctx, []workload.Table{{Name: "numbers", MaxValue: 1, Expect: 2}}); err != nil {
		fmt.Println(err)
		return
	}
	err := store.Run(ctx, 2, 1, func(ctx context.Context, id int, w workload.Worker) error {
		return w.Update(ctx, func(tx workload.Tx) error {
			tx.Stage(0, 1, workload.Update)
			tx.Stage(0, 2, workload.Update)
			for key := range uint64(2) {
				value, err := tx.Get(0, key+1)
				n := byte(0)
				if err == nil {
					n = value[0]
				}
				if err := tx.Put(0, key+1, []byte{n + 1}); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = store.Run(ctx, 1, 1, func(ctx context.Context, _ int, w workload.Worker) error {
		return w.View(ctx, func(tx workload.Tx) error {
			value, err := tx.Get(0, 2)
			fmt.Println(value)
			return err
		})
	})
	fmt.Println(err)
	// Output:
	// [2]
	// <nil>
}
