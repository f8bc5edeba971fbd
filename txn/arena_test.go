package txn_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"txnode/internal/raced"
	"txnode/memory/catalog"
	"txnode/rdma/sim"
	"txnode/txn"
)

// TestSmallArena: as many coroutines share a thread as its arena has room for, and it is said how
// large it had to be for more. Those of another thread stop in the middle of inserts and splits,
// then a blade does: who is left recovers all that, sweeps it, makes copies, and can be closed.
func TestSmallArena(t *testing.T) {
	raced.Skip(t)
	for _, arena := range []int{1 << 20, 5 << 18, 2 << 20} {
		for _, value := range []int{40, 600} {
			if testing.Short() && (arena == 5<<18) != (value == 600) {
				continue
			}
			t.Run(fmt.Sprintf("%d KiB, values of %d", arena>>10, value), func(t *testing.T) {
				n := arena >> 16
				for ; n > 1 && !inSmallArena(t, arena, n, value); n-- {
				}
				if n < arena>>16-5 {
					t.Errorf("only %d coroutines have room", n)
				}
			})
		}
	}
}

// inSmallArena reports whether a thread has room for so many coroutines.
func inSmallArena(t *testing.T, arena, coroutines, value int) bool {
	blade := sim.BladeOptions{Size: 32 << 20, Key: 1}
	f, err := sim.New(sim.Options{
		Blades: []sim.BladeOptions{blade, blade, blade}, ThreadsPerBlade: 4, Placed: true, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	o := tiny()
	o.BladeSize, o.Fabric, o.Catalog, o.Workers, o.LeaseTerm, o.Retries, o.Arena = 0, f, &catalog.Mem{}, 1, 50_000_000,
		math.MaxInt32, arena
	db, err := txn.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	tab := table(t, db, "t")
	if err := db.Run(t.Context(), 1, coroutines,
		func(context.Context, int, *txn.Worker) error { return nil }); err != nil {
		says(t, "Run", err, txn.ErrOptions, "Arena is ", fmt.Sprintf("%d coroutines", coroutines), "at least")
		return false
	}
	if err := f.Inject(sim.Fault{Kind: sim.FaultStop, Thread: 2, Verb: 3000}); err != nil {
		t.Fatal(err)
	}
	const lose, idle, patience = 30_000_000, 60_000_000, 1_000_000_000
	begun, lost, done := f.Now(), false, false
	err = db.Run(t.Context(), 2, coroutines, func(_ context.Context, id int, w *txn.Worker) error {
		for k := uint64(0); !done; k++ {
			at := f.Now() - begun
			var err error
			switch {
			case at > idle && id > 0: // it has its buffers, and no more
			case at > idle:
				r := db.Redundancy()
				_, unswept := db.Space().Unswept()
				done = !unswept && r.Missing == 0 && r.Building == 0 || at > patience
				err = w.Maintain()
			case at > lose && !lost:
				lost = true
				err = f.StopBlade(1)
			default:
				err = w.Update(t.Context(), func(tx *txn.Tx) error {
					for i := range uint64(4) {
						if err := tab.Put(tx, uint64(id)<<32|(5*k+i)%200, make([]byte, value)); err != nil {
							return err
						}
					}
					return nil
				})
			}
			if err != nil {
				t.Errorf("after %d ns, coroutine %d: %v", at, id, err)
				done = true
			}
			w.Sleep(20_000)
		}
		return nil
	})
	r := db.Redundancy()
	if _, unswept := db.Space().Unswept(); err != nil || unswept || r.Missing > 0 || r.Building > 0 ||
		len(r.Down) != 1 || r.Failure != nil {
		t.Errorf("%d coroutines: %v; to be swept: %v, %+v", coroutines, err, unswept, r)
	}
	return true
}
