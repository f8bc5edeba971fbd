package main

import (
	"context"
	"sync"

	"github.com/tidwall/btree"

	"txnode/benchmarks/workload"
)

// treeStore is a B-tree for each table in Go's heap, under one lock: readers share it, an
// update has it alone.
type treeStore struct {
	clock
	mu     sync.RWMutex
	tables []btree.Map[uint64, []byte]
}

func openTree(context.Context, *options) (workload.Store, error) {
	return &treeStore{clock: newClock()}, nil
}

// Name implements workload.Store.
func (s *treeStore) Name() string { return "btree" }

// Tables implements workload.Store.
func (s *treeStore) Tables(_ context.Context, tables []workload.Table) (bool, error) {
	existed := s.tables != nil
	if !existed {
		s.tables = make([]btree.Map[uint64, []byte], len(tables))
	}
	return existed, nil
}

// Run implements workload.Store.
func (s *treeStore) Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int,
	w workload.Worker) error) error {
	return runWorkers(ctx, threads*coroutines, func() workload.Worker { return &treeWorker{s: s} }, fn)
}

// Close implements workload.Store.
func (s *treeStore) Close(context.Context) error { return nil }

// treeWorker is a worker and its transaction. Values in the tree are never written to, only
// replaced.
type treeWorker struct {
	oneByOne
	s    *treeStore
	undo []treeUndo // what the update has changed, to be put back if it rolls back
}

// treeUndo is the value of a key before a change; nil: it had none.
type treeUndo struct {
	table int
	key   uint64
	value []byte
}

// Update implements workload.Worker.
func (w *treeWorker) Update(_ context.Context, fn func(workload.Tx) error) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.undo = w.undo[:0]
	err := fn(w)
	if err == nil {
		w.counters.Committed++
		return nil
	}
	for i := len(w.undo) - 1; i >= 0; i-- {
		u := &w.undo[i]
		if t := &w.s.tables[u.table]; u.value == nil {
			t.Delete(u.key)
		} else {
			t.Set(u.key, u.value)
		}
	}
	return err
}

// View implements workload.Worker.
func (w *treeWorker) View(_ context.Context, fn func(workload.Tx) error) error {
	w.s.mu.RLock()
	defer w.s.mu.RUnlock()
	err := fn(w)
	if err == nil {
		w.counters.Committed++
	}
	return err
}

// Get implements workload.Tx.
func (w *treeWorker) Get(table int, key uint64) ([]byte, error) {
	v, found := w.s.tables[table].Get(key)
	if !found {
		return nil, workload.ErrNotFound
	}
	return v, nil
}

// Put implements workload.Tx.
func (w *treeWorker) Put(table int, key uint64, value []byte) error {
	old, _ := w.s.tables[table].Set(key, append([]byte{}, value...))
	w.undo = append(w.undo, treeUndo{table, key, old})
	return nil
}

// Insert implements workload.Tx.
func (w *treeWorker) Insert(table int, key uint64, value []byte) error {
	if _, found := w.s.tables[table].Get(key); found {
		return workload.ErrExists
	}
	return w.Put(table, key, value)
}

// Delete implements workload.Tx.
func (w *treeWorker) Delete(table int, key uint64) error {
	old, found := w.s.tables[table].Delete(key)
	if !found {
		return workload.ErrNotFound
	}
	w.undo = append(w.undo, treeUndo{table, key, old})
	return nil
}

// Range implements workload.Ranger.
//
//nolint:unparam // the interface has the error
func (w *treeWorker) Range(table int, r workload.Range, do func(key uint64, value []byte) bool) error {
	n := 0
	step := func(key uint64, value []byte) bool {
		if key < r.From || key > r.To {
			return false
		}
		n++
		return do(key, value) && n != r.Limit
	}
	if r.Descending {
		w.s.tables[table].Descend(r.To, step)
	} else {
		w.s.tables[table].Ascend(r.From, step)
	}
	return nil
}
