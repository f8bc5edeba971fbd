package storetest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
)

// Each fault makes the checks fail that are there to find it.
func TestSuiteFindsFaults(t *testing.T) {
	for _, fault := range []struct {
		name  string
		open  func(s workload.Store) workload.Store
		found []string
	}{
		{"none", func(s workload.Store) workload.Store { return s }, nil},
		{"forgets tables", func(s workload.Store) workload.Store { return forgetful{s} }, []string{"Tables"}},
		{"loses puts", func(s workload.Store) workload.Store {
			return Intercept(s, func(_ int, op Op) Verdict { return Verdict{Drop: op.Kind == Put} })
		}, []string{"Operations", "OwnWrites", "Rollback", "Copies", "Counter", "WriteSkew"}},
		{"loses deletes", func(s workload.Store) workload.Store {
			return Intercept(s, func(_ int, op Op) Verdict { return Verdict{Drop: op.Kind == Delete} })
		}, []string{"Operations", "OwnWrites", "InsertRace"}},
		{"hides the decision to roll back", func(s workload.Store) workload.Store { return anxious{s} },
			[]string{"Rollback", "Run"}},
		{"keeps what is rolled back", func(s workload.Store) workload.Store { return dirty{s} }, []string{"Rollback"}},
		{"reads and writes at different times", func(s workload.Store) workload.Store { return &split{Store: s} },
			[]string{"Counter", "Snapshot", "WriteSkew"}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			failed := map[string]error{}
			for _, c := range checks {
				// Some faults show only when workers really run at the same time,
				// which a machine with few processors does not promise of each run.
				tries := 1
				if slices.Contains(fault.found, c.name) {
					tries = 50
				}
				for range tries {
					s := fault.open(reference.Open(reference.Options{}))
					if _, err := s.Tables(t.Context(), tables); err != nil {
						t.Fatal(err)
					}
					if err := c.run(t.Context(), s); err != nil {
						failed[c.name] = err
						break
					}
				}
			}
			for _, name := range fault.found {
				if failed[name] == nil {
					t.Errorf("%s does not find it", name)
				}
			}
			if fault.found == nil && len(failed) > 0 {
				t.Errorf("a sound store fails: %v", failed)
			}
		})
	}
}

// forgetful says that its tables are new.
type forgetful struct{ workload.Store }

func (s forgetful) Tables(ctx context.Context, tables []workload.Table) (bool, error) {
	_, err := s.Store.Tables(ctx, tables)
	return false, err
}

// wrapped runs each transaction through a function, which gets the method of the
// worker that is meant.
func wrapped(s workload.Store, ctx context.Context, threads, coroutines int,
	fn func(ctx context.Context, id int, w workload.Worker) error, run runner) error {
	return s.Run(ctx, threads, coroutines, func(ctx context.Context, id int, w workload.Worker) error {
		return fn(ctx, id, wrappedWorker{w, run})
	})
}

type (
	method func(ctx context.Context, fn func(workload.Tx) error) error
	runner func(m method, ctx context.Context, fn func(workload.Tx) error) error
)

type wrappedWorker struct {
	workload.Worker
	run runner
}

func (w wrappedWorker) Update(ctx context.Context, fn func(workload.Tx) error) error {
	return w.run(w.Worker.Update, ctx, fn)
}

func (w wrappedWorker) View(ctx context.Context, fn func(workload.Tx) error) error {
	return w.run(w.Worker.View, ctx, fn)
}

// anxious replaces the errors of transactions and workers.
type anxious struct{ workload.Store }

func (s anxious) Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int,
	w workload.Worker) error) error {
	err := wrapped(s.Store, ctx, threads, coroutines, fn,
		func(m method, ctx context.Context, fn func(workload.Tx) error) error {
			if m(ctx, fn) != nil {
				return errors.New("something went wrong")
			}
			return nil
		})
	if err != nil {
		return errors.New("something went wrong: " + err.Error())
	}
	return nil
}

// dirty commits everything.
type dirty struct{ workload.Store }

func (s dirty) Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int,
	w workload.Worker) error) error {
	return wrapped(s.Store, ctx, threads, coroutines, fn,
		func(m method, ctx context.Context, fn func(workload.Tx) error) error {
			var decision error
			err := m(ctx, func(tx workload.Tx) error {
				decision = fn(tx)
				return nil
			})
			return errors.Join(decision, err)
		})
}

// split runs every operation in a transaction of its own, with other workers in
// between.
type split struct {
	workload.Store
	mu sync.Mutex // makes every single operation a transaction, without conflicts
}

func (s *split) Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int,
	w workload.Worker) error) error {
	return s.Store.Run(ctx, threads, coroutines, func(ctx context.Context, id int, w workload.Worker) error {
		return fn(ctx, id,
			splitWorker{wrappedWorker{w, func(_ method, ctx context.Context, fn func(workload.Tx) error) error {
				return fn(splitTx{s, ctx, w})
			}}})
	})
}

type splitWorker struct{ wrappedWorker }

func (splitWorker) Prepare(uses []workload.Use) workload.Plan { return workload.PlanEach(uses) }

type splitTx struct {
	s   *split
	ctx context.Context
	w   workload.Worker
}

func (t splitTx) do(fn func(tx workload.Tx) error) error {
	runtime.Gosched()
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.w.Update(t.ctx, fn)
}

func (t splitTx) Stage(int, uint64, workload.Mode) {}

func (t splitTx) Get(table int, key uint64) (value []byte, err error) {
	err = t.do(func(tx workload.Tx) error {
		v, err := tx.Get(table, key)
		value = append([]byte(nil), v...)
		return err
	})
	return value, err
}

func (t splitTx) Put(table int, key uint64, value []byte) error {
	return t.do(func(tx workload.Tx) error { return tx.Put(table, key, value) })
}

func (t splitTx) Insert(table int, key uint64, value []byte) error {
	return t.do(func(tx workload.Tx) error { return tx.Insert(table, key, value) })
}

func (t splitTx) Delete(table int, key uint64) error {
	return t.do(func(tx workload.Tx) error { return tx.Delete(table, key) })
}
