package crashtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"txnode/internal/raced"
	"txnode/rdma"
	"txnode/txn"
)

// TestPowerAfterBuilding loses a blade, has copies built while transactions write, loses
// another blade, and takes the power while transactions are decided: copies that were built
// are the only ones then, and what a checkpoint has covered meanwhile is on them.
func TestPowerAfterBuilding(t *testing.T) {
	raced.Skip(t)
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
						t.Fatalf("blade %d and then %d are lost, the power %d requests later, seed %d, the copier is "+
							"interrupted: %v: %v", first, next, left, seed, again, err)
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
	armed, run := false, 1<<30
	v, err := newVolatile(&life{
		Blades: 3, Backups: 1, Workers: 2, Seed: 1,
	}, 1+seed, func(v *volatile, w *rdma.WR) rdma.Status {
		if armed && w.Op == rdma.OpFlush {
			armed = false
			return rdma.StatusIO
		}
		run--
		v.down = v.down || run < 0
		return rdma.StatusOK
	})
	if err != nil {
		return err
	}
	w, err := v.db.NewWorker()
	if err != nil {
		return err
	}
	if err := errors.Join(v.put(w.Update, 0, 1), v.f.StopBlade(first), v.put(w.Update, 100, 1)); err != nil {
		return err
	}
	if r := v.db.Redundancy(); r.Building == 0 {
		return fmt.Errorf("no copies are being built: %+v", r)
	}
	if err := v.put(w.Update, 0, 2); err != nil {
		return err
	}
	other, err := v.db.NewWorker()
	if err != nil {
		return err
	}
	if err := other.Close(); err != nil { // with a checkpoint
		return err
	}
	armed = interrupted
	for n := 0; v.db.Redundancy().Missing > 0; n++ {
		if err := w.Maintain(); err != nil && !errors.Is(err, txn.ErrFenced) {
			return err
		}
		if n == 10_000 {
			return fmt.Errorf("copies are still missing: %+v", v.db.Redundancy())
		}
	}
	armed = false
	if err := v.f.StopBlade(next); err != nil {
		return err
	}
	run = left
	if v.put(w.Update, 100, 1) == nil {
		return errors.New("the power has not gone")
	}
	v.losePower(seed)
	if err := v.open(); err != nil {
		return err
	}
	ctx := context.Background()
	err = v.db.View(ctx, func(tx *txn.Tx) error {
		for k := range uint64(someKeys) {
			for _, x := range [...]struct{ from, want uint64 }{{0, 2}, {100, 1}} {
				got, err := v.table.Get(tx, x.from+k)
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
	return errors.Join(err, v.db.Close(ctx))
}
