package seeds_test

import (
	"context"
	"errors"
	"flag"
	"runtime"
	"testing"

	"txnode/benchmarks/simbench/seeds"
)

var count = flag.Uint64("seeds", 2000, "how many seeds TestSeeds runs")

// TestSeeds holds the engine against a part of what make simulate runs.
func TestSeeds(t *testing.T) {
	n := *count
	if testing.Short() {
		n = min(n, 150)
	}
	done, err := seeds.RunMany(t.Context(), 1, n, runtime.GOMAXPROCS(0), seeds.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if done != n {
		t.Errorf("%d seeds were run, want %d", done, n)
	}
}

// The same seed is the same run, whatever ran before it.
func TestSeedsRepeat(t *testing.T) {
	hashes := map[uint64]bool{}
	for seed := range uint64(20) {
		a, err := seeds.Run(seed, seeds.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := seeds.Run(seed, seeds.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if a != b {
			t.Errorf("seed %d is two runs:\n%+v\n%+v", seed, a, b)
		}
		hashes[a.TraceHash] = true
	}
	if len(hashes) != 20 {
		t.Errorf("20 seeds are %d runs", len(hashes))
	}
}

// Every workload runs, and records transactions.
func TestWorkloads(t *testing.T) {
	for _, w := range seeds.Workloads() {
		r, err := seeds.Run(1, seeds.Options{Workload: w})
		if err != nil {
			t.Error(err)
		}
		if r.Txns < 20 || r.Verbs < 500 {
			t.Errorf("%s: %d transactions, %d verbs", w, r.Txns, r.Verbs)
		}
	}
	if _, err := seeds.Run(1, seeds.Options{Workload: "chess"}); !errors.Is(err, seeds.ErrUnknown) {
		t.Errorf("a workload that is unknown: %v", err)
	}
}

func TestRunManyStopsWhenCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done, err := seeds.RunMany(ctx, 1, 1<<40, 2, seeds.Options{}, func(n uint64) {
		if n >= 3 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || done < 3 || done > 10 {
		t.Errorf("%d seeds, %v", done, err)
	}
}
