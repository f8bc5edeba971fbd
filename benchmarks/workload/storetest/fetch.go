package storetest

import (
	"bytes"
	"context"
	"fmt"

	"txnode/benchmarks/workload"
)

// checkFetch: Fetch and Set do what Stage, Get and Put of each row do, however many rows
// there are, and of which keys; also with rows that an earlier transaction has fetched.
func checkFetch(ctx context.Context, s workload.Store) error {
	const keys, rounds = 40, 200
	type place struct {
		table int
		key   uint64
	}
	rng := workload.NewRand(3, 1)
	model := map[place]string{}
	see := func(tx workload.Tx, rows []workload.Row) error {
		if err := tx.Fetch(rows); err != nil {
			return err
		}
		for i := range rows {
			r := &rows[i]
			if want, has := model[place{r.Table, r.Key}]; (r.Value != nil) != has || string(r.Value) != want {
				return fmt.Errorf("row %d of %d, table %d key %d, is %q; it must be %q (there: %v)", i, len(rows), r.Table, r.Key, r.Value, want, has)
			}
		}
		return nil
	}
	return single(ctx, s, func(ctx context.Context, w workload.Worker) error {
		rows := make([]workload.Row, 0, 24)
		for round := range rounds {
			err := w.Update(ctx, func(tx workload.Tx) error {
				if stale := rows[:cap(rows)]; round%3 == 1 { // of the last transaction, as it has left them
					r := &stale[rng.Intn(len(stale))]
					if err := tx.Set(r, []byte("stale row")); err != nil {
						return err
					}
					model[place{r.Table, r.Key}] = "stale row"
				}
				rows = rows[:rng.Intn(cap(rows)+1)]
				for i := range rows {
					r := &rows[i]
					r.Table, r.Key, r.Mode = rng.Intn(2), uint64(rng.Intn(keys)), workload.Mode(rng.Intn(2))
				}
				if err := see(tx, rows); err != nil {
					return err
				}
				for i := range rows {
					if r := &rows[i]; r.Mode == workload.Update && rng.Intn(2) == 0 {
						value := bytes.Repeat([]byte{byte('a' + round%26)}, rng.Intn(17))
						if err := tx.Set(r, value); err != nil {
							return err
						}
						model[place{r.Table, r.Key}] = string(value)
					}
				}
				return see(tx, rows)
			})
			if err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		return w.View(ctx, func(tx workload.Tx) error {
			rows = rows[:cap(rows)]
			for i := range rows {
				rows[i] = workload.Row{Table: i % 2, Key: uint64(i)}
			}
			return see(tx, rows)
		})
	})
}
