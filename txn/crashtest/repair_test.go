package crashtest

import (
	"context"
	"errors"
	"testing"

	"txnode/memory"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
	"txnode/verify"
)

// TestRepairBeforeRecovery has a database repaired that has lost its power in the middle of
// a commit, before anybody has opened it. A backup may have the image of an insert whose log
// is lost, and the primary half of a placeholder: no copy proves anything then. The
// transaction shows nowhere after recovery, or everywhere.
func TestRepairBeforeRecovery(t *testing.T) {
	const keys = 12
	ctx := context.Background()
	l := &life{Blades: 2, Backups: 1, Workers: 1, Seed: 1}
	some := false
	for seed := range uint64(20) {
		armed, down := false, false
		fail := func(w *rdma.WR) rdma.Status {
			down = down || armed && w.Op == rdma.OpFlush
			if down {
				return rdma.StatusNoBlade
			}
			return rdma.StatusOK
		}
		f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 4 << 20, Seed: 1, Volatile: true, Fail: fail,
			Caps: rdma.Caps{Synchronous: true, Placed: true, OrderedLine: true, MaskedCAS: true}})
		cat := &powered{down: &down}
		db, err := txn.Open(ctx, l.onFabric(f, cat))
		if err != nil {
			t.Fatal(err)
		}
		table, err := txn.CreateTable(db, "records", txn.Uint64, txn.Plain[uint64]())
		if err != nil {
			t.Fatal(err)
		}
		put := func(from uint64) error {
			return db.Update(ctx, func(tx *txn.Tx) error {
				for k := range uint64(keys) {
					if err := table.Put(tx, from+k, 1); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := put(100); err != nil {
			t.Fatal(err)
		}
		armed = true
		if err := put(0); err == nil {
			t.Fatal("it was acknowledged")
		}
		armed, down = false, false
		f = f.LosePower(seed)
		layout, err := memory.LoadLayout(cat)
		if err != nil {
			t.Fatal(err)
		}
		d, err := verify.Attach(f, layout)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := d.Check(ctx, verify.Options{Repair: true})
		if err = errors.Join(err, d.Close()); err != nil {
			t.Fatal(err)
		}
		some = some || sum.Findings > 0
		if sum.Repaired > 0 || !sum.Unrecovered {
			t.Errorf("seed %d: %d repaired, unrecovered: %v", seed, sum.Repaired, sum.Unrecovered)
		}
		if db, err = txn.Open(ctx, l.onFabric(f, cat)); err != nil {
			t.Fatalf("seed %d: opening it: %v", seed, err)
		}
		if table, err = txn.OpenTable(db, "records", txn.Uint64, txn.Plain[uint64]()); err != nil {
			t.Fatal(err)
		}
		there := 0
		err = db.View(ctx, func(tx *txn.Tx) error {
			there = 0
			for k := range uint64(keys) {
				switch _, err := table.Get(tx, k); {
				case err == nil:
					there++
				case !errors.Is(err, txn.ErrNotFound):
					return err
				}
				if _, err := table.Get(tx, 100+k); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if there != 0 && there != keys {
			t.Errorf("seed %d: %d of the %d records of a transaction are there", seed, there, keys)
		}
		if err := db.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if !some {
		t.Error("the check has found nothing that a repair would have been tempted by")
	}
}
