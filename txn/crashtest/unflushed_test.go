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
	raced.Skip(t)
	seeds := uint64(2)
	if testing.Short() {
		seeds = 1
	}
	for _, what := range []after{reopened, unpromise, goesOn} {
		t.Run(string(what), func(t *testing.T) {
			seeds, begin, step := seeds, 0, 40
			if what == unpromise { // extents are overwritten late
				seeds, begin, step = 4*seeds, 50, 40
			}
			if testing.Short() {
				step = 8 // from then on every second, third, ... request
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
	ctx := context.Background()
	l := &life{Blades: 2, Backups: 1, Workers: 1, Seed: 1}
	if what == unpromise {
		l.Backups = 0
	}
	armed, flushes, run := false, 0, 1<<30
	v, err := newVolatile(l, 1, func(v *volatile, w *rdma.WR) rdma.Status {
		if armed && w.Op == rdma.OpFlush && flushes <= l.Backups { // on each blade
			flushes++
			if what == goesOn {
				run = left
				return rdma.StatusIO
			}
			v.down = true
		}
		run--
		v.down = v.down || run < 0
		return rdma.StatusOK
	})
	if err != nil {
		return false, err
	}
	var id uint64
	put := func(value uint64) error {
		w, err := v.db.NewWorker()
		if err != nil {
			return err
		}
		err = w.Update(ctx, func(tx *txn.Tx) error {
			if value == 1 && id != 0 {
				return errors.New("again")
			}
			if value == 1 {
				id = tx.ID()
			}
			return v.fill(tx, 0, value)
		})
		if value == 0 { // with a checkpoint, behind which no log has these images
			err = errors.Join(err, w.Close())
		}
		return err
	}
	if err := put(0); err != nil {
		return false, err
	}
	if what == unpromise { // extents in another order than that of an index that is built again
		if err := grow(ctx, v.db, v.table); err != nil {
			return false, err
		}
	}
	armed = true
	err = put(1)
	acknowledged := err == nil
	if what != goesOn {
		v.down, run = false, left
		o := v.options()
		if what == unpromise {
			o.Durability = txn.DurabilityProcess
		}
		if v.db, err = txn.Open(ctx, o); err == nil {
			if what == unpromise {
				return true, v.db.Close(ctx)
			}
			done = true
		}
	} else {
		done = acknowledged && !v.down
	}
	if !v.down && run > 1<<20 {
		return false, fmt.Errorf("nothing has happened: %w", err)
	}
	v.losePower(seed)
	if err := v.open(); err != nil {
		return false, err
	}
	var got [someKeys]uint64
	outcome, outcomeErr := v.db.Outcome(ctx, id)
	err = v.db.View(ctx, func(tx *txn.Tx) (err error) {
		for k := range got {
			if got[k], err = v.table.Get(tx, uint64(k)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	for _, x := range got {
		if x != got[0] {
			return false, fmt.Errorf("half of it has taken effect: %d; the outcome is %v, %v", got, outcome, outcomeErr)
		}
	}
	if want := [...]txn.Outcome{txn.Aborted, txn.Committed}[got[0]]; outcomeErr == nil && outcome != want {
		return false, fmt.Errorf("the outcome is %v, and the records are %d", outcome, got[0])
	}
	if acknowledged && got[0] != 1 {
		return false, fmt.Errorf("it was acknowledged, and is gone")
	}
	return done, v.db.Close(ctx)
}

// grow makes two more tables, and has the indexes of all three split in turn.
func grow(ctx context.Context, db *txn.DB, table *txn.Table[uint64, uint64]) error {
	tables := []*txn.Table[uint64, uint64]{table}
	for _, name := range []string{"more", "most"} {
		t, err := txn.CreateTable(db, name, txn.Uint64, txn.Plain[uint64]())
		if err != nil {
			return err
		}
		tables = append(tables, t)
	}
	for k := uint64(100); k < 300; k += 50 {
		for _, t := range tables {
			err := db.Update(ctx, func(tx *txn.Tx) error {
				for i := range uint64(50) {
					if err := t.Put(tx, k+i, 7); err != nil {
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
