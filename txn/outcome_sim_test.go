package txn_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"txnode/memory/catalog"
	"txnode/rdma/sim"
	"txnode/txn"
)

// TestOutcomeOfWhoWasNotTold: a thread with two coroutines stops at each verb from where one
// of them begins its last transaction, after which maintenance is due, until its Update
// returns. The other one commits meanwhile, and soon uses log space again. What the first was
// not told is told to who asks later, and is what the data says.
func TestOutcomeOfWhoWasNotTold(t *testing.T) {
	const (
		mine, other = 0, 1 // keys
		before      = 63   // transactions of the first before its last
	)
	untold := 0
	// try returns how many verbs the thread had posted when the last transaction began, and
	// when it was answered. It stops after a verb, or never if that is 0.
	try := func(stop uint64) (from, to uint64) {
		f, err := sim.New(sim.Options{
			Blades: []sim.BladeOptions{{Size: 32 << 20, Key: 1}}, ThreadsPerBlade: 4, Placed: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		cat := &catalog.Mem{}
		open := func() *txn.DB {
			o := tiny()
			o.BladeSize, o.Fabric, o.Catalog, o.Workers, o.LeaseTerm, o.Retries = 0, f, cat, 1, -1, math.MaxInt32
			o.LogArea, o.ReclaimAfter = 4<<10, 1
			db, err := txn.Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			return db
		}
		db := open()
		tab := table(t, db, "t")
		fill(t, db, tab, 2, val(0))
		if stop > 0 {
			if err := f.Inject(sim.Fault{Kind: sim.FaultStop, Thread: 1, Verb: stop}); err != nil {
				t.Fatal(err)
			}
		}
		var id uint64
		answered := false
		err = db.Run(t.Context(), 1, 2, func(ctx context.Context, coroutine int, w *txn.Worker) error {
			update := func(fn func(tx *txn.Tx) error) {
				if err := w.Update(ctx, fn); err != nil {
					t.Error(err)
				}
			}
			if coroutine == 1 {
				for !answered {
					update(func(tx *txn.Tx) error { return tab.Put(tx, other, make([]byte, 200)) })
				}
				return nil
			}
			for k := range uint64(before) { // half of them leave something to be reclaimed
				update(func(tx *txn.Tx) error {
					if k%2 == 0 {
						return tab.Put(tx, 100+k, val(k))
					}
					return tab.Delete(tx, 100+k-1)
				})
			}
			update(func(tx *txn.Tx) error {
				id, from = tx.ID(), f.Posted(1)
				return tab.Put(tx, mine, val(1))
			})
			answered, to = true, f.Posted(1)
			return nil
		})
		if stop == 0 || answered {
			if err != nil && stop == 0 {
				t.Error(err)
			}
			return from, to
		}
		f.Heal()
		f.StopAll()
		db = open()
		if tab, err = txn.OpenTable(db, "t", txn.Uint64, txn.Bytes()); err != nil {
			t.Fatal(err)
		}
		committed := num(contents(t, db, tab, 1)[mine]) == 1
		o, err := db.Outcome(t.Context(), id)
		if err == nil && committed != (o == txn.Committed) || err != nil &&
			(committed || !errors.Is(err, txn.ErrNoOutcome)) {
			t.Errorf("the thread stopped after verb %d: committed: %v, and the outcome is %v, %v",
				stop, committed, o, err)
		}
		if committed {
			untold++
		}
		return from, to
	}
	from, to := try(0)
	for stop := from; stop <= to; stop++ {
		try(stop)
	}
	if untold == 0 {
		t.Errorf("the last transaction was never committed without an answer: verbs %d to %d", from, to)
	}
}

// TestMaintainRejoins: a worker that has been declared dead while it did nothing learns that
// from Maintain, which is no error, and goes on as somebody new.
func TestMaintainRejoins(t *testing.T) {
	f, err := sim.New(sim.Options{
		Blades: []sim.BladeOptions{{Size: 32 << 20, Key: 1}}, ThreadsPerBlade: 4, Placed: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	const lease, pause = 1_000_000, 20_000_000
	o := onFabric(f, txn.PolicyDefault)
	o.LeaseTerm = lease
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	registered := false
	err = db.Run(t.Context(), 2, 1, func(ctx context.Context, id int, w *txn.Worker) error {
		if id == 0 {
			for alone := false; !alone; { // until the other is declared dead; it is left to be swept up after
				if err := w.Maintain(); err != nil {
					return err
				}
				all, err := db.Space().Coordinators()
				if err != nil {
					return err
				}
				alone = registered && len(all) == 1
				w.Sleep(lease / 4)
			}
			return nil
		}
		put := func() (coordinator uint64, err error) {
			err = w.Update(ctx, func(tx *txn.Tx) error {
				coordinator = tx.ID() >> 40
				return tab.Put(tx, 1, val(1))
			})
			return coordinator, err
		}
		was, err := put()
		if err != nil {
			return err
		}
		registered = true
		w.Sleep(pause)
		if err := w.Maintain(); err != nil {
			t.Errorf("Maintain of one that was declared dead: %v", err)
		}
		is, err := put()
		if is == was {
			t.Errorf("it is coordinator %d still", is)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
