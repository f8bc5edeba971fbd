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

// TestPowerAfterBuilding loses a blade, has copies built while transactions write, loses
// another blade, and takes the power while transactions are decided: copies that were built
// are the only ones then, and what a checkpoint has covered meanwhile is on them.
func TestPowerAfterBuilding(t *testing.T) {
	seeds := uint64(6)
	if testing.Short() {
		seeds = 1
	}
	for lost := range 6 {
		first := rdma.BladeID(lost / 2)
		next := (first + 1 + rdma.BladeID(lost%2)) % 3
		for _, again := range []bool{false, true} {
			for seed := range seeds {
				for left := 10; left <= 30; left += 10 {
					if err := afterBuilding(first, next, again, left, seed); err != nil {
						t.Fatalf("blade %d and then %d are lost, the power %d requests later, seed %d, the copier is interrupted: %v: %v", first, next, left, seed, again, err)
					}
				}
			}
		}
	}
}

// afterBuilding loses the blade first, and next when everything has all of its copies again, and
// the power left requests later.
// interrupted: a FLUSH of the copier fails, and it compares everything once more.
func afterBuilding(first, next rdma.BladeID, interrupted bool, left int, seed uint64) error {
	const keys = 12
	ctx := context.Background()
	l := &life{Blades: 3, Backups: 1, Workers: 2, Seed: 1}
	armed, down, run := false, false, 1<<30
	fail := func(w *rdma.WR) rdma.Status {
		if armed && w.Op == rdma.OpFlush {
			armed = false
			return rdma.StatusIO
		}
		if run--; run < 0 {
			down = true
			return rdma.StatusNoBlade
		}
		return rdma.StatusOK
	}
	f := rdmatest.New(rdmatest.Options{Blades: 3, Size: 4 << 20, Seed: 1 + seed, Volatile: true, Fail: fail,
		Caps: rdma.Caps{Synchronous: true, Placed: true, OrderedLine: true, MaskedCAS: true}})
	cat := &powered{down: &down}
	db, err := txn.Open(ctx, l.onFabric(f, cat))
	if err != nil {
		return err
	}
	table, err := txn.CreateTable(db, "records", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		return err
	}
	put := func(w *txn.Worker, from, v uint64) error {
		return w.Update(ctx, func(tx *txn.Tx) error {
			for k := range uint64(keys) {
				if err := table.Put(tx, from+k, v); err != nil {
					return err
				}
			}
			return nil
		})
	}
	w, err := db.NewWorker()
	if err != nil {
		return err
	}
	if err := errors.Join(put(w, 0, 1), f.StopBlade(first), put(w, 100, 1)); err != nil {
		return err
	}
	if r := db.Redundancy(); r.Building == 0 {
		return fmt.Errorf("no copies are being built: %+v", r)
	}
	if err := put(w, 0, 2); err != nil {
		return err
	}
	other, err := db.NewWorker()
	if err != nil {
		return err
	}
	if err := other.Close(); err != nil { // with a checkpoint
		return err
	}
	armed = interrupted
	for n := 0; db.Redundancy().Missing > 0; n++ {
		if err := w.Maintain(); err != nil && !errors.Is(err, txn.ErrFenced) {
			return err
		}
		if n == 10_000 {
			return fmt.Errorf("copies are still missing: %+v", db.Redundancy())
		}
	}
	armed = false
	if err := f.StopBlade(next); err != nil {
		return err
	}
	run = left
	if put(w, 100, 1) == nil {
		return errors.New("the power has not gone")
	}
	down = false
	f = f.LosePower(seed)
	if db, err = txn.Open(ctx, l.onFabric(f, cat)); err != nil {
		return fmt.Errorf("opening it: %w", err)
	}
	if table, err = txn.OpenTable(db, "records", txn.Uint64, txn.Plain[uint64]()); err != nil {
		return err
	}
	err = db.View(ctx, func(tx *txn.Tx) error {
		for k := range uint64(keys) {
			for _, x := range [...]struct{ from, want uint64 }{{0, 2}, {100, 1}} {
				got, err := table.Get(tx, x.from+k)
				if err != nil {
					return fmt.Errorf("key %d: %w", x.from+k, err)
				}
				if got != x.want {
					return fmt.Errorf("key %d is %d, not %d", x.from+k, got, x.want)
				}
			}
		}
		return nil
	})
	return errors.Join(err, db.Close(ctx))
}
