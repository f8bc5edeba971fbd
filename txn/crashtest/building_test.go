package crashtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"txnode/internal/raced"
	"txnode/rdma"
)

// TestPowerWhileBuilding takes the power while copies are being built on a blade that has
// come back, and a transaction inserts. When the copies are full, in the next life, they are
// as the others.
func TestPowerWhileBuilding(t *testing.T) {
	raced.Skip(t)
	seeds := uint64(24)
	if testing.Short() {
		seeds = 4
	}
	during := 0
	for seed := range seeds {
		for steps := 2; steps <= 6; steps += 2 {
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
	armed := false
	v, err := newVolatile(&life{
		Blades: 2, Backups: 1, Workers: 1, Seed: 1,
	}, 1+seed, func(v *volatile, w *rdma.WR) rdma.Status {
		v.down = v.down || armed && w.Op == rdma.OpFlush
		return rdma.StatusOK
	})
	if err != nil {
		return false, err
	}
	w, err := v.db.NewWorker()
	if err != nil {
		return false, err
	}
	if err := errors.Join(v.put(w.Update, 100, 1), v.f.StopBlade(1), v.put(w.Update, 200, 1),
		v.f.RestartBlade(1, true)); err != nil {
		return false, err
	}
	for range steps {
		if err := w.Maintain(); err != nil {
			return false, err
		}
	}
	building = v.db.Redundancy().Building > 0
	armed = true
	if err := v.put(w.Update, 0, 1); err == nil {
		return false, errors.New("it was acknowledged")
	}
	v.losePower(seed)
	if err := v.open(); err != nil {
		return false, err
	}
	if w, err = v.db.NewWorker(); err != nil {
		return false, err
	}
	for n := 0; v.db.Redundancy().Missing > 0 || len(v.db.Redundancy().Down) > 0; n++ {
		if err := w.Maintain(); err != nil {
			return false, err
		}
		if n == 10_000 {
			return false, fmt.Errorf("copies are still missing: %+v", v.db.Redundancy())
		}
	}
	if err := errors.Join(w.Close(), v.db.Close(context.Background())); err != nil {
		return false, err
	}
	return building, walkFabric(v.f, v.cat)
}
