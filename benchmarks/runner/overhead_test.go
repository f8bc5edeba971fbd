package runner

import (
	"context"
	"testing"
	"time"

	"txnode/benchmarks/workload"
)

// idle is a store, worker, driver and client that do nothing.
type idle struct{ counters workload.Counters }

func (*idle) Name() string                { return "idle" }
func (*idle) Schema() []workload.Table    { return nil }
func (*idle) Types() []string             { return []string{"a", "b"} }
func (*idle) Mix() []float64              { return []float64{50, 50} }
func (*idle) Close(context.Context) error { return nil }
func (*idle) Now() int64 {
	return int64(time.Since(start))
}
func (*idle) Next() int { return 1 }
func (*idle) Draw(int)  {}
func (*idle) Run(context.Context) (workload.Outcome, error) {
	return workload.Committed, nil
}
func (*idle) Update(context.Context, func(workload.Tx) error) error { return nil }
func (*idle) View(context.Context, func(workload.Tx) error) error   { return nil }
func (*idle) Prepare([]workload.Use) workload.Plan                  { return nil }
func (i *idle) Counters() workload.Counters {
	i.counters.Verbs++
	return i.counters
}
func (i *idle) NewClient(int, uint64, workload.Worker) workload.Client                    { return i }
func (*idle) Tables(context.Context, []workload.Table) (bool, error)                      { return false, nil }
func (*idle) Verify(context.Context, workload.Store) (r workload.VerifyReport, err error) { return }
func (*idle) Load(context.Context, workload.Store, func(done, total int)) (r workload.LoadReport, err error) {
	return
}

type idleStore struct{ idle }

func (*idleStore) Run(ctx context.Context, threads, coroutines int, fn func(context.Context, int,
	workload.Worker) error) error {
	return fn(ctx, 0, &idle{})
}

var start = time.Now()

// TestLoopAllocatesNothing compares the allocations of a short run with those
// of a long one.
func TestLoopAllocatesNothing(t *testing.T) {
	for _, rate := range []float64{0, 1e9} {
		allocs := func(txns int64) float64 {
			return testing.AllocsPerRun(3, func() {
				if _, err := Bench(context.Background(), &idleStore{}, &idle{},
					Config{Txns: txns, Rate: rate}); err != nil {
					t.Fatal(err)
				}
			})
		}
		if short, long := allocs(100), allocs(20_000); long > short+20 {
			t.Errorf("rate %v: %v allocations in 20000 transactions, %v in 100", rate, long, short)
		}
	}
}

// BenchmarkLoop is what the runner adds to a transaction.
func BenchmarkLoop(b *testing.B) {
	for _, every := range []int{1, DefaultLatencySample} {
		b.Run(map[bool]string{true: "measure all", false: "measure one in 8"}[every == 1], func(b *testing.B) {
			_, err := Bench(context.Background(), &idleStore{}, &idle{}, Config{Txns: int64(b.N), LatencySample: every})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
