package crashtest

import (
	"context"
	"errors"
	"testing"

	"txnode/internal/raced"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/txn"
	"txnode/verify"
)

// TestRepairBeforeRecovery has a database repaired that has lost its power in the middle of
// a commit, before anybody has opened it. A backup may have the image of an insert whose log
// is lost, and the primary half of a placeholder: no copy proves anything then. The
// transaction shows nowhere after recovery, or everywhere.
func TestRepairBeforeRecovery(t *testing.T) {
	raced.Skip(t)
	ctx := context.Background()
	some := false
	for seed := range uint64(20) {
		armed := false
		v, err := newVolatile(&life{
			Blades: 2, Backups: 1, Workers: 1, Seed: 1,
		}, 1, func(v *volatile, w *rdma.WR) rdma.Status {
			v.down = v.down || armed && w.Op == rdma.OpFlush
			return rdma.StatusOK
		})
		if err == nil {
			err = v.put(v.db.Update, 100, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		armed = true
		if err := v.put(v.db.Update, 0, 1); err == nil {
			t.Fatal("it was acknowledged")
		}
		v.losePower(seed)
		stored, err := layout.LoadLayout(v.cat)
		if err != nil {
			t.Fatal(err)
		}
		d, err := verify.Attach(v.f, stored)
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
		if err := v.open(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		there := 0
		err = v.db.View(ctx, func(tx *txn.Tx) error {
			there = 0
			for k := range uint64(someKeys) {
				switch _, err := v.table.Get(tx, k); {
				case err == nil:
					there++
				case !errors.Is(err, txn.ErrNotFound):
					return err
				}
				if _, err := v.table.Get(tx, 100+k); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if there != 0 && there != someKeys {
			t.Errorf("seed %d: %d of the %d records of a transaction are there", seed, there, someKeys)
		}
		if err := v.db.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if !some {
		t.Error("the check has found nothing that a repair would have been tempted by")
	}
}
