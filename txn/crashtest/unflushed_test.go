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

// after is what follows on a commit whose log record is on all of its blades, and not
// flushed.
type after string

const (
	reopened  after = "killed"                      // and opened again
	unpromise after = "killed, opened as a process" // with DurabilityProcess
	goesOn    after = "goes on"                     // its session rejoins
)

// TestUnflushedLog has a transaction whose log record is on all of its blades, and not
// flushed, decided by a recovery, from which the power is taken at each of its requests.
// Then the transaction has taken effect as a whole, or not at all, and Outcome says which.
func TestUnflushedLog(t *testing.T) {
	seeds := uint64(2)
	if testing.Short() {
		seeds = 1
	}
	for _, what := range []after{reopened, unpromise, goesOn} {
		t.Run(string(what), func(t *testing.T) {
			seeds, begin, step := seeds, 0, 40
			if what == unpromise { // extents are overwritten late
				seeds, begin, step = 4*seeds, 1200, 16
			}
			for seed := range seeds {
				for left := begin; ; left += 1 + left/step {
					done, err := unflushed(what, left, seed)
					if err != nil {
						t.Fatalf("the power goes after %d requests, seed %d: %v", left, seed, err)
					}
					if done {
						break
					}
				}
			}
		})
	}
}

// unflushed is one case. done: the recovery has come to its end.
func unflushed(what after, left int, seed uint64) (done bool, err error) {
	const keys = 12
	ctx := context.Background()
	l := &life{Blades: 2, Backups: 1, Workers: 1, Seed: 1}
	if what == unpromise {
		l.Backups = 0
	}
	down, armed, flushes := false, false, 0
	run := 1 << 30
	fail := func(w *rdma.WR) rdma.Status {
		if armed && w.Op == rdma.OpFlush && flushes <= l.Backups { // on each blade
			flushes++
			if what == goesOn {
				run = left
				return rdma.StatusIO
			}
			down = true
		}
		if run--; run < 0 {
			down = true
		}
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
		return false, err
	}
	table, err := txn.CreateTable(db, "records", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		return false, err
	}
	var id uint64
	put := func(v uint64) error {
		w, err := db.NewWorker()
		if err != nil {
			return err
		}
		err = w.Update(ctx, func(tx *txn.Tx) error {
			if v == 1 && id != 0 {
				return errors.New("again")
			}
			if v == 1 {
				id = tx.ID()
			}
			for k := range uint64(keys) {
				if err := table.Put(tx, k, v); err != nil {
					return err
				}
			}
			return nil
		})
		if v == 0 { // with a checkpoint, behind which no log has these images
			err = errors.Join(err, w.Close())
		}
		return err
	}
	if err := put(0); err != nil {
		return false, err
	}
	if what == unpromise { // extents in another order than that of an index that is built again
		if err := grow(ctx, db, table); err != nil {
			return false, err
		}
	}
	armed = true
	err = put(1)
	acknowledged := err == nil
	if what != goesOn {
		down, run = false, left
		o := l.onFabric(f, cat)
		if what == unpromise {
			o.Durability = txn.DurabilityProcess
		}
		if db, err = txn.Open(ctx, o); err == nil {
			if what == unpromise {
				return true, db.Close(ctx)
			}
			done = true
		}
	} else {
		done = acknowledged && !down
	}
	if !down && run > 1<<20 {
		return false, fmt.Errorf("nothing has happened: %w", err)
	}
	run, down = 1<<30, false
	f = f.LosePower(seed)
	f.Fail(fail)
	if db, err = txn.Open(ctx, l.onFabric(f, cat)); err != nil {
		return false, fmt.Errorf("opening it: %w", err)
	}
	if table, err = txn.OpenTable(db, "records", txn.Uint64, txn.Plain[uint64]()); err != nil {
		return false, err
	}
	var got [keys]uint64
	outcome, outcomeErr := db.Outcome(ctx, id)
	err = db.View(ctx, func(tx *txn.Tx) error {
		for k := range uint64(keys) {
			v, err := table.Get(tx, k)
			if err != nil {
				return err
			}
			got[k] = v
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	for _, v := range got {
		if v != got[0] {
			return false, fmt.Errorf("half of it has taken effect: %d; the outcome is %v, %v", got, outcome, outcomeErr)
		}
	}
	if want := [...]txn.Outcome{txn.Aborted, txn.Committed}[got[0]]; outcomeErr == nil && outcome != want {
		return false, fmt.Errorf("the outcome is %v, and the records are %d", outcome, got[0])
	}
	if acknowledged && got[0] != 1 {
		return false, fmt.Errorf("it was acknowledged, and is gone")
	}
	return done, db.Close(ctx)
}

// grow has the index of a table split, and makes another one then.
func grow(ctx context.Context, db *txn.DB, table *txn.Table[uint64, uint64]) error {
	for _, name := range []string{"", "more", "most"} {
		if name != "" {
			var err error
			if table, err = txn.CreateTable(db, name, txn.Uint64, txn.Plain[uint64]()); err != nil {
				return err
			}
		}
		for k := uint64(100); k < 300; k += 50 {
			err := db.Update(ctx, func(tx *txn.Tx) error {
				for i := range uint64(50) {
					if err := table.Put(tx, k+i, 7); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
