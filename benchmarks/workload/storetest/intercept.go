package storetest

import (
	"context"

	"txnode/benchmarks/workload"
)

// OpKind is a method of workload.Tx, or the beginning or end of an attempt of a
// transaction.
type OpKind uint8

// Kinds of operations.
const (
	Begin  OpKind = iota // the transaction function is about to be called
	Stage                // Mode is set
	Get                  // before the value is known
	Put                  // Value is set
	Insert               // Value is set
	Delete
	Scan // Key is the lower bound
	End  // the transaction function has returned nil
)

// String returns the name of the method, or "begin" or "end".
func (k OpKind) String() string {
	return [...]string{"begin", "Stage", "Get", "Put", "Insert", "Delete", "Range", "end"}[k]
}

// Op is one operation on its way to a store.
type Op struct {
	Kind  OpKind
	View  bool // in a View, else in an Update
	Table int
	Key   uint64
	Mode  workload.Mode
	Value []byte // valid during the call
}

// Verdict is what becomes of an intercepted operation.
type Verdict struct {
	// Drop leaves the operation out; the transaction believes that it succeeded.
	// It applies to Put, Insert and Delete.
	Drop bool
	// Err, if not nil, is returned instead of carrying the operation out. At End
	// it makes the transaction fail without effect.
	Err error
	// After, if not nil, is returned by the transaction although it has
	// committed. It applies to End.
	After error
}

// Intercept returns a store that shows every operation to watch before it
// carries it out on s, and does as the verdict says: to record what a workload
// does, and to break a store on purpose. Operations of several workers are
// watched concurrently; worker is the number that Run gave.
func Intercept(s workload.Store, watch func(worker int, op Op) Verdict) workload.Store {
	return &interceptedStore{Store: s, watch: watch}
}

type interceptedStore struct {
	workload.Store
	watch func(worker int, op Op) Verdict
}

// Run implements workload.Store.
func (s *interceptedStore) Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int,
	w workload.Worker) error) error {
	return s.Store.Run(ctx, threads, coroutines, func(ctx context.Context, id int, w workload.Worker) error {
		return fn(ctx, id, &interceptedWorker{Worker: w, store: s, id: id})
	})
}

type interceptedWorker struct {
	workload.Worker
	store *interceptedStore
	id    int
}

// Update implements workload.Worker.
func (w *interceptedWorker) Update(ctx context.Context, fn func(workload.Tx) error) error {
	return w.run(ctx, false, w.Worker.Update, fn)
}

// View implements workload.Worker.
func (w *interceptedWorker) View(ctx context.Context, fn func(workload.Tx) error) error {
	return w.run(ctx, true, w.Worker.View, fn)
}

// Prepare implements workload.Worker.
func (w *interceptedWorker) Prepare(uses []workload.Use) workload.Plan {
	return workload.PlanEach(uses)
}

func (w *interceptedWorker) run(ctx context.Context, view bool,
	method func(context.Context, func(workload.Tx) error) error, fn func(workload.Tx) error) error {
	var after error
	err := method(ctx, func(tx workload.Tx) error {
		itx := &interceptedTx{tx: tx, worker: w, view: view}
		if v := itx.watch(Op{Kind: Begin}); v.Err != nil {
			return v.Err
		}
		if err := fn(itx); err != nil {
			return err
		}
		v := itx.watch(Op{Kind: End})
		after = v.After
		return v.Err
	})
	if err == nil {
		err = after
	}
	return err
}

type interceptedTx struct {
	tx     workload.Tx
	worker *interceptedWorker
	view   bool
}

func (t *interceptedTx) watch(op Op) Verdict {
	op.View = t.view
	return t.worker.store.watch(t.worker.id, op)
}

// Stage implements workload.Tx.
func (t *interceptedTx) Stage(table int, key uint64, mode workload.Mode) {
	t.watch(Op{Kind: Stage, Table: table, Key: key, Mode: mode})
	t.tx.Stage(table, key, mode)
}

// Get implements workload.Tx.
func (t *interceptedTx) Get(table int, key uint64) ([]byte, error) {
	if v := t.watch(Op{Kind: Get, Table: table, Key: key}); v.Err != nil {
		return nil, v.Err
	}
	return t.tx.Get(table, key)
}

// Put implements workload.Tx.
func (t *interceptedTx) Put(table int, key uint64, value []byte) error {
	if v := t.watch(Op{Kind: Put, Table: table, Key: key, Value: value}); v.Drop || v.Err != nil {
		return v.Err
	}
	return t.tx.Put(table, key, value)
}

// Insert implements workload.Tx.
func (t *interceptedTx) Insert(table int, key uint64, value []byte) error {
	if v := t.watch(Op{Kind: Insert, Table: table, Key: key, Value: value}); v.Drop || v.Err != nil {
		return v.Err
	}
	return t.tx.Insert(table, key, value)
}

// Delete implements workload.Tx.
func (t *interceptedTx) Delete(table int, key uint64) error {
	if v := t.watch(Op{Kind: Delete, Table: table, Key: key}); v.Drop || v.Err != nil {
		return v.Err
	}
	return t.tx.Delete(table, key)
}

// Range implements workload.Ranger, if the store's transactions do.
func (t *interceptedTx) Range(table int, r workload.Range, do func(key uint64, value []byte) bool) error {
	if v := t.watch(Op{Kind: Scan, Table: table, Key: r.From}); v.Err != nil {
		return v.Err
	}
	inner, err := workload.RangerOf(t.tx)
	if err != nil {
		return err
	}
	return inner.Range(table, r, do)
}
