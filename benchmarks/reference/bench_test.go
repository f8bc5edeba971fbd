package reference_test

import (
	"context"
	"testing"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/tatp"
	"txnode/benchmarks/workload"
)

// One operation is a transaction of the mix, on GOMAXPROCS threads.
func BenchmarkWorkload(b *testing.B) {
	bank, err := smallbank.New(smallbank.DefaultOptions())
	if err != nil {
		b.Fatal(err)
	}
	telecom, err := tatp.New(tatp.DefaultOptions())
	if err != nil {
		b.Fatal(err)
	}
	for _, d := range []workload.Driver{bank, telecom} {
		for _, threads := range []int{1, 2} {
			b.Run(d.Name()+map[int]string{1: "/threads=1", 2: "/threads=2"}[threads], func(b *testing.B) {
				s := reference.Open(reference.Options{})
				if _, err := d.Load(b.Context(), s, nil); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				b.ResetTimer()
				err := s.Run(b.Context(), threads, 1, func(ctx context.Context, id int, w workload.Worker) error {
					c := d.NewClient(id, 1, w)
					for range (b.N + threads - 1) / threads {
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
