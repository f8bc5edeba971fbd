package workload_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
)

func TestScanVisitsEveryUnitOnce(t *testing.T) {
	store := reference.Open(reference.Options{})
	for _, total := range []int{0, 1, 9, 10, 11, 1000} {
		var mu sync.Mutex
		visits := make([]int, total)
		last := 0
		err := workload.Scan(t.Context(), store, total, 10,
			func(done, of int) {
				if of != total || done <= last || done > total {
					t.Errorf("progress %d of %d after %d of %d", done, of, last, total)
				}
				last = done
			},
			func(workload.Worker) func(context.Context, int, int) error {
				return func(_ context.Context, lo, hi int) error {
					mu.Lock()
					defer mu.Unlock()
					if hi-lo > 10 || hi <= lo {
						t.Errorf("range %d..%d", lo, hi)
					}
					for i := lo; i < hi; i++ {
						visits[i]++
					}
					return nil
				}
			})
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range visits {
			if n != 1 {
				t.Errorf("unit %d of %d is visited %d times", i, total, n)
			}
		}
		if last != total {
			t.Errorf("progress ends at %d of %d", last, total)
		}
	}
}

func TestScanStopsAtAnError(t *testing.T) {
	store := reference.Open(reference.Options{})
	failure := errors.New("unit 50 fails")
	var mu sync.Mutex
	begun := 0
	err := workload.Scan(t.Context(), store, 1_000_000, 1, nil,
		func(workload.Worker) func(context.Context, int, int) error {
			return func(_ context.Context, lo, _ int) error {
				mu.Lock()
				defer mu.Unlock()
				begun++
				if lo >= 50 { // everybody fails sooner or later
					return failure
				}
				return nil
			}
		})
	if !errors.Is(err, failure) {
		t.Errorf("Scan returned %v", err)
	}
	if begun > 50+8 {
		t.Errorf("%d units are begun; after an error no worker may begin another", begun)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = workload.Scan(ctx, store, 10, 1, nil, func(workload.Worker) func(context.Context, int, int) error {
		return func(context.Context, int, int) error { return nil }
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Scan with a cancelled context returned %v", err)
	}
}

func TestVerifyReport(t *testing.T) {
	var r workload.VerifyReport
	r.Add("first rule", true, "%d rows", 3)
	if err := r.Err(); err != nil {
		t.Errorf("nothing is broken: %v", err)
	}
	r.Add("second rule", false, "%d too many", 7)
	r.Add("third rule", false, "gone")
	err := r.Err()
	if !errors.Is(err, workload.ErrInconsistent) {
		t.Fatalf("broken rules give %v", err)
	}
	if want := workload.ErrInconsistent.Error() + ": second rule (7 too many); third rule (gone)"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}
