package crashtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// TestPowerWhileBuilding takes the power while copies are being built on a blade that has
// come back, and a transaction inserts. When the copies are full, in the next life, they are
// as the others.
func TestPowerWhileBuilding(t *testing.T) {
	seeds := uint64(24)
	if testing.Short() {
		seeds = 6
	}
	during := 0
	for seed := range seeds {
		for steps := 6; steps < 18; steps += 6 {
			building, err := whileBuilding(steps, seed)
			if err != nil {
				t.Fatalf("after %d steps, seed %d: %v", steps, seed, err)
			}
			if building {
				during++
			}
		}
	}
	if during == 0 {
		t.Error("no copy was being built")
	}
}

func whileBuilding(steps int, seed uint64) (building bool, err error) {
	ctx := context.Background()
	l := &life{Blades: 2, Backups: 1, Workers: 1, Seed: 1}
	armed, down := false, false
	fail := func(w *rdma.WR) rdma.Status {
		down = down || armed && w.Op == rdma.OpFlush
		if down {
			return rdma.StatusNoBlade
		}
		return rdma.StatusOK
	}
	f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 4 << 20, Seed: 1 + seed, Volatile: true, Fail: fail,
		Caps: rdma.Caps{Synchronous: true, Placed: true, OrderedLine: true, MaskedCAS: true}})
	cat := &powered{down: &down}
	db, err := txn.Open(ctx, l.onFabric(f, cat))
	if err != nil {
		return false, err
	}
	table, err := txn.CreateTable(db, "records", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		return false, err
	}
	w, err := db.NewWorker()
	if err != nil {
		return false, err
	}
	const keys = 12
	put := func(from uint64) error {
		return w.Update(ctx, func(tx *txn.Tx) error {
			for k := range uint64(keys) {
				if err := table.Put(tx, from+k, 1); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := put(100); err != nil {
		return false, err
	}
	if err := f.StopBlade(1); err != nil {
		return false, err
	}
	if err := put(200); err != nil {
		return false, err
	}
	if err := f.RestartBlade(1, true); err != nil {
		return false, err
	}
	for range steps {
		if err := w.Maintain(); err != nil {
			return false, err
		}
	}
	r := db.Redundancy()
	building = r.Building > 0
	armed = true
	if err := put(0); err == nil {
		return false, errors.New("it was acknowledged")
	}
	armed, down = false, false
	f = f.LosePower(seed)
	if db, err = txn.Open(ctx, l.onFabric(f, cat)); err != nil {
		return false, fmt.Errorf("opening it: %w", err)
	}
	if w, err = db.NewWorker(); err != nil {
		return false, err
	}
	for n := 0; db.Redundancy().Missing > 0 || len(db.Redundancy().Down) > 0; n++ {
		if err := w.Maintain(); err != nil {
			return false, err
		}
		if n == 10_000 {
			return false, fmt.Errorf("copies are still missing: %+v", db.Redundancy())
		}
	}
	if err := errors.Join(w.Close(), db.Close(ctx)); err != nil {
		return false, err
	}
	return building, walkFabric(f, cat)
}
