package seeds_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"txnode/memory/catalog"
	"txnode/rdma"
	"txnode/rdma/sim"
	"txnode/txn"
)

// The waits of a transaction that conflicts again and again, without backoff, are
// drawn. Were they all alike, two transactions of which each locks what the other
// reads, as those of write skew do, would meet for ever (seed 501 once).
func TestPatienceIsDrawn(t *testing.T) {
	f, err := sim.New(sim.Options{
		Profile: sim.Ideal(), Freedom: sim.FreedomNone, Seed: 1, Blades: []sim.BladeOptions{{Size: 1 << 30, Key: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	db, err := txn.Open(t.Context(), txn.Options{
		Fabric: f, Catalog: &catalog.Mem{}, Backups: txn.F(0), Techniques: &rdma.Techniques{}, Workers: 1,
		Retries: math.MaxInt32,
		Arena:   4 << 20, CacheBytes: 64 << 10, LogArea: 64 << 10, SegmentSize: 256 << 10, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := txn.CreateTable(db, "rows", txn.Uint64, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err = db.Update(t.Context(), func(tx *txn.Tx) error { return rows.Put(tx, 0, nil) }); err != nil {
		t.Fatal(err)
	}
	const tries = 600 // longer waits from the 32nd on, the longest from the 352nd on
	var last int64
	var waits []int64
	err = db.Run(t.Context(), 2, 1, func(ctx context.Context, id int, w *txn.Worker) error {
		if id == 0 {
			return w.Update(ctx, func(tx *txn.Tx) error {
				if _, err := rows.GetForUpdate(tx, 0); err != nil {
					return err
				}
				for len(waits) < tries {
					w.Sleep(1_000_000)
				}
				return nil
			})
		}
		w.Sleep(1_000_000)
		return w.Update(ctx, func(tx *txn.Tx) error {
			if last > 0 {
				waits = append(waits, w.Now()-last)
			}
			last = w.Now()
			_, err := rows.GetForUpdate(tx, 0)
			return err
		})
	})
	if err := errors.Join(err, db.Close(context.Background()), f.Close()); err != nil {
		t.Fatal(err)
	}
	longest := waits[400:tries]
	if least, most := slices.Min(longest), slices.Max(longest); most < 2*least || most > 2_000_000 {
		t.Errorf("after 400 conflicts in a row waits are from %d to %d ns", least, most)
	}
}
