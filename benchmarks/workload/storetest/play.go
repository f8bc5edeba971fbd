package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"txnode/benchmarks/workload"
)

// Outcomes counts transactions by type and outcome.
type Outcomes [][workload.NumOutcomes]uint64

// Total counts them by outcome.
func (o Outcomes) Total() (total [workload.NumOutcomes]uint64) {
	for _, of := range o {
		for i, n := range of {
			total[i] += n
		}
	}
	return total
}

// Play runs n transactions of a workload in each of 8 workers and returns their outcomes, but
// for those of which nobody was told what they are.
func Play(t *testing.T, d workload.Driver, store workload.Store, n int) Outcomes {
	t.Helper()
	counts := make([][workload.NumOutcomes]atomic.Uint64, len(d.Types()))
	err := store.Run(t.Context(), 2, 4, func(ctx context.Context, id int, w workload.Worker) error {
		c := d.NewClient(id, 7, w)
		for range n {
			typ := c.Next()
			o, err := c.Run(ctx)
			if errors.Is(err, workload.ErrUncertain) {
				continue
			}
			if err != nil {
				return err
			}
			counts[typ][o].Add(1)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	out := make(Outcomes, len(counts))
	for typ := range counts {
		for o := range counts[typ] {
			out[typ][o] = counts[typ][o].Load()
		}
	}
	return out
}

// Load loads a workload.
func Load(t *testing.T, d workload.Driver, store workload.Store) workload.LoadReport {
	t.Helper()
	r, err := d.Load(t.Context(), store, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// AnySchema is a store that accepts any schema once it has one, like a database whose catalog
// knows only names.
func AnySchema(store workload.Store) workload.Store { return &anySchema{Store: store} }

type anySchema struct {
	workload.Store
	existed bool
}

func (s *anySchema) Tables(ctx context.Context, tables []workload.Table) (bool, error) {
	if s.existed {
		return true, nil
	}
	s.existed = true
	return s.Store.Tables(ctx, tables)
}
