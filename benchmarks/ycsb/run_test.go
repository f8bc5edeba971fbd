package ycsb

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"txnode/benchmarks/workload"
)

func runOne(t *testing.T, store workload.Store, fn func(w workload.Worker) error) error {
	t.Helper()
	return store.Run(t.Context(), 1, 1, func(_ context.Context, _ int, w workload.Worker) error { return fn(w) })
}

// runUntil runs transactions until one was spoiled. They may fail with that failure.
func runUntil(t *testing.T, d *Driver, store workload.Store, spoiled *atomic.Bool, failure error) {
	t.Helper()
	err := runOne(t, store, func(w workload.Worker) error {
		c := d.NewClient(0, 7, w)
		for !spoiled.Load() {
			c.Next()
			if _, err := c.Run(t.Context()); err != nil && !errors.Is(err, failure) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
