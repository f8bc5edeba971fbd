package simbench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"txnode/memory/catalog"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/sim"
	"txnode/txn"
)

// Recovery of a coordinator with this many transactions in flight may take at most so
// long, in virtual time, from the end of its lease until all is decided and its locks
// are free.
const (
	inFlight      = 64
	mostRecovery  = time.Millisecond
	recoveryLease = 5 * time.Millisecond
)

// TestRecoveryTime stops a thread whose 64 coroutines are in the middle of a commit of
// two records each, at several moments, and has another one, which looks every ten
// microseconds whether somebody's lease has ended, recover it. Virtual time is the same
// on every machine.
func TestRecoveryTime(t *testing.T) {
	stopsUs := []int64{4, 8, 10, 12, 14, 16, 18, 20, 24, 30}
	for _, p := range []sim.Profile{sim.ConnectX6(), sim.ConnectX6().WithPersistentMemory()} {
		for _, policy := range []occ.Policy{occ.PolicyDefault, occ.PolicyFORD} {
			for _, f := range []int{1, 2} {
				longest, most := time.Duration(0), 0
				for _, at := range stopsUs {
					took, n := recoverOnSim(t, p, policy, f, time.Duration(at*1000))
					longest, most = max(longest, took), max(most, n)
				}
				t.Logf("%s, %v, f=%d: at most %d transactions to finish or undo, %v after the end of the lease",
					p.Name, policy, f, most, longest)
				if most < inFlight*2/5 { // the others have come to no log, and left locks alone
					t.Errorf("%s, %v, f=%d: the logs tell of at most %d transactions", p.Name, policy, f, most)
				}
				if longest > mostRecovery {
					t.Errorf("%s, %v, f=%d: recovery took %v, more than %v", p.Name, policy, f, longest, mostRecovery)
				}
			}
		}
	}
}

// recoverOnSim returns how long it takes after the end of the lease until the
// coordinator is gone whose thread stops at a time after all of its transactions have
// begun to commit, and how many transactions its logs had.
func recoverOnSim(t *testing.T, p sim.Profile, policy occ.Policy, backups int, at time.Duration) (took time.Duration,
	logged int) {
	t.Helper()
	o := sim.Options{Profile: p, Seed: 7, ThreadsPerBlade: 8}
	for range backups + 1 {
		o.Blades = append(o.Blades, sim.BladeOptions{Size: 1 << 30, Key: 1})
	}
	f, err := sim.New(o)
	must(t, err)
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{
		Fabric: f, Catalog: &catalog.Mem{}, Backups: &backups, Policy: policy, Workers: 1, LeaseTerm: recoveryLease,
		SegmentSize: 8 << 20, Arena: 64 << 20, Techniques: &rdma.Techniques{}, // no credits: all coroutines at once
	})
	must(t, err)
	table, err := txn.CreateTable(db, "rows", txn.Uint64, txn.Bytes())
	must(t, err)
	must(t, db.Update(ctx, func(tx *txn.Tx) error { // on thread 0
		for k := range uint64(2 * inFlight) {
			if err := table.Insert(tx, k, make([]byte, 8)); err != nil {
				return err
			}
		}
		return nil
	}))
	ready, victim := 0, uint32(0)
	err = db.Run(ctx, 2, inFlight, func(ctx context.Context, id int, w *txn.Worker) error {
		if id >= inFlight {
			if id > inFlight {
				return nil
			}
			took = survive(t, db, w, &victim)
			return nil
		}
		return w.Update(ctx, func(tx *txn.Tx) error {
			for k := uint64(2 * id); k < uint64(2*id+2); k++ {
				if _, err := table.GetForUpdate(tx, k); err != nil {
					return err
				}
				if err := table.Put(tx, k, []byte{1, 2, 3, 4, 5, 6, 7, 8}); err != nil {
					return err
				}
			}
			for ready++; ready < inFlight; {
				if err := ctx.Err(); err != nil {
					return err
				}
				w.Sleep(1000)
			}
			if victim == 0 {
				victim = uint32(tx.ID() >> 40)
				return f.Inject(sim.Fault{Kind: sim.FaultStop, Thread: 1, At: at})
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	v, ok := db.Space().Verdict(victim)
	if !ok {
		t.Fatalf("coordinator %d was not recovered", victim)
	}
	return took, len(v.Committed) + len(v.Aborted)
}

// survive recovers whoever's lease ends, until the victim is gone, and returns how long
// after the end of its lease that was.
func survive(t *testing.T, db *txn.DB, w *txn.Worker, victim *uint32) time.Duration {
	t.Helper()
	ends := int64(0)
	for {
		if err := w.Maintain(); err != nil {
			t.Error(fmt.Errorf("maintenance: %w", err))
		}
		if *victim != 0 && !db.Space().Registered(*victim) {
			return time.Duration(w.Now() - ends)
		}
		cs := db.Space().Layout().Coordinators
		for i := range cs {
			if cs[i].ID == *victim && !cs[i].Recovering {
				ends = cs[i].Until
			}
		}
		w.Sleep(10_000)
		if w.Now() > 100_000_000 {
			t.Errorf("coordinator %d is never recovered: %+v", *victim, cs)
			return 0
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
