package storetest

import (
	"bytes"
	"context"
	"fmt"

	"txnode/benchmarks/workload"
)

// checkFetch: a plan does what Stage, Get and Put of each row do, however many rows there
// are, and of which keys, the same one twice among them; also before it fetches, with the
// rows that an earlier transaction has fetched.
func checkFetch(ctx context.Context, s workload.Store) error {
	const keys, rounds, most = 40, 200, 24
	type place struct {
		table int
		key   uint64
	}
	rng := workload.NewRand(3, 1)
	model := map[place]string{}
	see := func(tx workload.Tx, p workload.Plan, uses []workload.Use) error {
		if err := p.Fetch(tx); err != nil {
			return err
		}
		for i, r := range p.Rows() {
			if want, has := model[place{uses[i].Table, r.Key.Number()}]; (*r.Value != nil) != has ||
				string(*r.Value) != want {
				return fmt.Errorf("row %d of %d, table %d key %d, is %q; it must be %q (there: %v)",
					i, len(uses), uses[i].Table, r.Key.Number(), *r.Value, want, has)
			}
		}
		return nil
	}
	return single(ctx, s, func(ctx context.Context, w workload.Worker) error {
		var plan workload.Plan
		var uses []workload.Use
		for round := range rounds {
			err := w.Update(ctx, func(tx workload.Tx) error {
				if round%3 == 1 && len(uses) > 0 { // of the last transaction, as it has left them
					i := rng.Intn(len(uses))
					if err := plan.Set(tx, i, []byte("stale row")); err != nil {
						return err
					}
					model[place{uses[i].Table, plan.Rows()[i].Key.Number()}] = "stale row"
				}
				if round%3 != 2 { // else the plan is used again
					uses = make([]workload.Use, rng.Intn(most+1))
					for i := range uses {
						uses[i] = workload.Use{Table: rng.Intn(2), Mode: workload.Mode(rng.Intn(2))}
					}
					plan = w.Prepare(uses)
				}
				for _, r := range plan.Rows() {
					r.Key.Set(uint64(rng.Intn(keys)))
				}
				if err := see(tx, plan, uses); err != nil {
					return err
				}
				for i := range uses {
					if uses[i].Mode == workload.Update && rng.Intn(2) == 0 {
						value := bytes.Repeat([]byte{byte('a' + round%26)}, rng.Intn(17))
						if err := plan.Set(tx, i, value); err != nil {
							return err
						}
						model[place{uses[i].Table, plan.Rows()[i].Key.Number()}] = string(value)
					}
				}
				return see(tx, plan, uses)
			})
			if err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		uses = make([]workload.Use, most)
		for i := range uses {
			uses[i].Table = i % 2
		}
		plan = w.Prepare(uses)
		for i, r := range plan.Rows() {
			r.Key.Set(uint64(i))
		}
		return w.View(ctx, func(tx workload.Tx) error { return see(tx, plan, uses) })
	})
}
