package txn_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"txnode/check"
	"txnode/history"
	"txnode/occ"
	"txnode/txn"
)

// TestManyGoroutines: far more goroutines than workers, through DB.Update and
// DB.View, some of which cancel, fail and panic; every increment counts once.
func TestManyGoroutines(t *testing.T) {
	eachPolicy(t, func(t *testing.T, p occ.Policy) {
		rec := &history.Recorder{}
		o := tiny()
		o.Policy, o.Workers, o.History = p, 3, rec
		db := mustOpen(t, o)
		tab := table(t, db, "t")
		const keys, goroutines = 8, 32
		each := 100
		if testing.Short() {
			each = 20
		}
		fill(t, db, tab, keys, val(0))
		loaded := db.Metrics().Committed
		var increments, views, rollbacks atomic.Uint64
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				r := rng(g)
				for range each {
					a, b := r.n(keys), r.n(keys)
					switch r.n(6) {
					case 0:
						if err := db.View(context.Background(), func(tx *txn.Tx) error {
							for k := range uint64(keys) {
								if err := tab.Stage(tx, k, txn.ForRead); err != nil {
									return err
								}
							}
							_, err := tab.Get(tx, a)
							return err
						}); err != nil {
							t.Error(err)
						}
						views.Add(1)
					case 1:
						if err := db.Update(context.Background(), func(tx *txn.Tx) error {
							if err := tab.Put(tx, a, val(1<<40)); err != nil {
								return err
							}
							return errRollback
						}); !errors.Is(err, errRollback) {
							t.Error(err)
						}
						rollbacks.Add(1)
					case 2:
						func() {
							defer func() { _ = recover() }()
							_ = db.Update(context.Background(), func(tx *txn.Tx) error {
								if err := tab.Put(tx, a, val(1<<40)); err != nil {
									return err
								}
								if _, err := tab.GetForUpdate(tx, b); err != nil {
									return err
								}
								panic("of the test")
							})
						}()
					default:
						if err := db.Update(context.Background(), func(tx *txn.Tx) error {
							x, err := tab.GetForUpdate(tx, a)
							if err != nil {
								return err
							}
							return tab.Put(tx, a, val(num(x)+1))
						}); err != nil {
							t.Error(err)
						}
						increments.Add(1)
					}
				}
			})
		}
		wg.Wait()
		var total uint64
		for _, v := range contents(t, db, tab, keys) {
			total += num(v)
		}
		if total != increments.Load() {
			t.Errorf("%d increments, and the sum is %d", increments.Load(), total)
		}
		m := db.Metrics()
		if want := increments.Load() + views.Load() + 1; m.Committed-loaded != want ||
			m.RolledBack != rollbacks.Load() {
			t.Errorf("%d committed, %d rolled back; want %d and %d", m.Committed-loaded, m.RolledBack,
				want, rollbacks.Load())
		}
		if m.Verbs.Total() == 0 || m.Verbs.RoundTrips == 0 {
			t.Errorf("verbs %+v", m.Verbs)
		}
		if err := check.Check(rec.Txns(), check.Options{FromEmpty: true}).Err(); err != nil {
			t.Error(err)
		}
		quiet(t, db)
	})
}

// TestChurnWhenFull inserts and deletes in a database that is nearly always full, so
// that sessions take each other's deleted records, and blocks change hands at once.
func TestChurnWhenFull(t *testing.T) {
	eachPolicy(t, func(t *testing.T, p occ.Policy) {
		rec := &history.Recorder{}
		o := spaceOptions(p, 8)
		o.History, o.ReadBackups, o.Workers = rec, true, 2
		db := mustOpen(t, o)
		tab := table(t, db, "t")
		s := setting{policy: p, threads: 3, coroutines: 4}
		var noSpace, deleted atomic.Uint64
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(id)
			for range perWorker(s, 6000) {
				k, l, size, what := r.n(900), r.n(900), int(3000+r.n(500)), r.n(8)
				err := w.Update(ctx, func(tx *txn.Tx) error {
					switch what {
					case 0, 1:
						return tab.Delete(tx, k)
					case 2:
						if _, err := tab.Get(tx, k); err != nil {
							return err
						}
						return tab.Put(tx, l, make([]byte, size))
					case 3:
						has, err := tab.Has(tx, k)
						if err != nil || has {
							return err
						}
						return tab.Put(tx, l, make([]byte, size))
					default:
						return tab.Insert(tx, k, make([]byte, size))
					}
				})
				switch {
				case err == nil:
					if what < 2 {
						deleted.Add(1)
					}
				case errors.Is(err, txn.ErrNoSpace):
					noSpace.Add(1)
				case !errors.Is(err, txn.ErrNotFound) && !errors.Is(err, txn.ErrExists):
					return err
				}
			}
			return nil
		})
		if deleted.Load() == 0 || noSpace.Load() == 0 {
			t.Errorf("%d deletes, %d times no space", deleted.Load(), noSpace.Load())
		}
		if err := check.Check(rec.Txns(), check.Options{FromEmpty: true}).Err(); err != nil {
			t.Fatal(err)
		}
		quiet(t, db)

		// Nothing is lost: when everything is deleted, as much fits as ever did.
		for k := range uint64(900) {
			err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Delete(tx, k) })
			if err != nil && !errors.Is(err, txn.ErrNotFound) {
				t.Fatal(err)
			}
		}
		capacity := func(first uint64) (n int) {
			for ; ; n++ {
				k := first + uint64(n)
				err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Insert(tx, k, make([]byte, 3500)) })
				if errors.Is(err, txn.ErrNoSpace) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for i := range n {
				if err := db.Update(t.Context(),
					func(tx *txn.Tx) error { return tab.Delete(tx, first+uint64(i)) }); err != nil {
					t.Fatal(err)
				}
			}
			return n
		}
		one := capacity(10_000)
		two := capacity(20_000)
		if one == 0 || two < one {
			t.Errorf("%d records fit, and then %d", one, two)
		}
		quiet(t, db)
	})
}

// TestRecord: a recorder is for the workers that are made while it is set.
func TestRecord(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	put := func(w *txn.Worker, k uint64) {
		t.Helper()
		if err := w.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, k, val(k)) }); err != nil {
			t.Fatal(err)
		}
	}
	rec := &history.Recorder{}
	before := newWorker(t, db)
	db.Record(rec)
	during := newWorker(t, db)
	db.Record(nil)
	after := newWorker(t, db)
	for i, w := range []*txn.Worker{before, during, after} {
		put(w, uint64(i))
		put(w, uint64(i))
		_ = w.Update(t.Context(), func(tx *txn.Tx) error {
			if err := tab.Put(tx, 9, val(9)); err != nil {
				return err
			}
			return errRollback
		})
	}
	txns := rec.Txns()
	if len(txns) != 2 {
		t.Fatalf("%d transactions are recorded", len(txns))
	}
	for _, x := range txns {
		if x.Outcome != history.Committed || x.Start > x.End || len(x.Ops) != 2 || x.Ops[1].Kind != history.Write ||
			x.ID != uint64(x.Ops[1].Version) {
			t.Errorf("%+v", x)
		}
	}
	if txns[1].Ops[0].Version != txns[0].Ops[1].Version || txns[1].Ops[1].Prev != txns[0].Ops[1].Version {
		t.Errorf("%+v", txns)
	}
	for i, w := range []*txn.Worker{before, during, after} {
		if m := w.Metrics(); m.Committed != 2 || m.RolledBack != 1 {
			t.Errorf("worker %d: %+v", i, m)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if m := db.Metrics(); m.Committed != 6 || m.RolledBack != 3 {
		t.Errorf("%+v", m)
	}
}

// TestBeginMetrics: transactions of Begin count, and maintenance comes to them.
func TestBeginMetrics(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	const n = 200
	for i := range uint64(n) {
		tx, err := db.Begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if err := tab.Put(tx, i, val(i)); err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 {
			err = tx.Rollback()
		} else {
			err = tx.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if m := db.Metrics(); m.Committed != n*3/4 || m.RolledBack != n/4 {
		t.Errorf("%d committed, %d rolled back", m.Committed, m.RolledBack)
	}
}

// TestRunErrors: the first error of a worker ends the others, and is returned.
func TestRunErrors(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	fill(t, db, tab, 4, val(0))
	for _, coroutines := range []int{1, 3} {
		var ids sync.Map
		err := db.Run(t.Context(), 3, coroutines, func(ctx context.Context, id int, w *txn.Worker) error {
			if _, twice := ids.LoadOrStore(id, true); twice {
				return fmt.Errorf("two workers are number %d", id)
			}
			for i := 0; ; i++ {
				if id == 1 && i == 5 {
					return errRollback
				}
				if err := w.Update(ctx,
					func(tx *txn.Tx) error { return tab.Put(tx, uint64(id%4), val(1)) }); err != nil {
					return err
				}
			}
		})
		if !errors.Is(err, errRollback) {
			t.Errorf("%d coroutines: %v", coroutines, err)
		}
	}
	quiet(t, db)
}
