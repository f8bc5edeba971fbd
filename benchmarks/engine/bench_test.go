package engine_test

import (
	"context"
	"testing"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/reference"
	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/tatp"
	"txnode/benchmarks/workload"
	"txnode/occ"
	"txnode/txn"
)

// BenchmarkMix runs the benchmark mixes with one worker, on the engine with both
// policies and on the sharded map: nanoseconds per transaction.
func BenchmarkMix(b *testing.B) {
	drivers := []struct {
		name string
		make func() (workload.Driver, error)
	}{
		{"smallbank", func() (workload.Driver, error) { return smallbank.New(smallbank.DefaultOptions()) }},
		{"tatp", func() (workload.Driver, error) { return tatp.New(tatp.DefaultOptions()) }},
	}
	stores := []struct {
		name       string
		coroutines int
		open       func(ctx context.Context) (workload.Store, error)
	}{
		{"default", 1, func(ctx context.Context) (workload.Store, error) { return engine.Open(ctx, txn.Options{}) }},
		{"default-x8", 8, func(ctx context.Context) (workload.Store, error) { return engine.Open(ctx, txn.Options{}) }},
		{"ford", 1, func(ctx context.Context) (workload.Store, error) {
			return engine.Open(ctx, txn.Options{Policy: occ.PolicyFORD})
		}},
		{"map", 1, func(context.Context) (workload.Store, error) { return reference.Open(reference.Options{}), nil }},
	}
	for _, d := range drivers {
		for _, s := range stores {
			b.Run(d.name+"/"+s.name, func(b *testing.B) {
				ctx := b.Context()
				driver, err := d.make()
				if err != nil {
					b.Fatal(err)
				}
				store, err := s.open(ctx)
				if err != nil {
					b.Fatal(err)
				}
				defer store.Close(ctx)
				if _, err := driver.Load(ctx, store, nil); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				b.ResetTimer()
				err = store.Run(ctx, 1, s.coroutines, func(ctx context.Context, id int, w workload.Worker) error {
					c := driver.NewClient(id, 1, w)
					for range b.N / s.coroutines {
						c.Next()
						if _, err := c.Run(ctx); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
