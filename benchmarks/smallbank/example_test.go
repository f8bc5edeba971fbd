package smallbank_test

import (
	"context"
	"fmt"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/workload"
)

// Load a store, run two clients, and check the books.
func Example() {
	ctx := context.Background()
	store := reference.Open(reference.Options{})
	defer store.Close(ctx)

	options := smallbank.DefaultOptions()
	options.Accounts, options.HotAccounts = 1000, 40
	bank, err := smallbank.New(options)
	if err != nil {
		fmt.Println(err)
		return
	}
	loaded, err := bank.Load(ctx, store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(loaded.Summary)

	err = store.Run(ctx, 2, 1, func(ctx context.Context, id int, w workload.Worker) error {
		client := bank.NewClient(id, 1, w)
		for range 1000 {
			client.Next()
			if _, err := client.Run(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := bank.Verify(ctx, store)
	for _, check := range report.Checks {
		fmt.Println(check.Rule, check.Holds)
	}
	fmt.Println(err)
	// Output:
	// 1000 accounts, 20000000.0000 in all
	// every account has a savings and a checking record true
	// records have their length and padding true
	// no savings balance is negative true
	// money is conserved true
	// <nil>
}
