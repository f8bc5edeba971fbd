package main

import (
	"context"
	"encoding/binary"
	"errors"
	"unsafe"

	"github.com/tidwall/buntdb"

	"txnode/benchmarks/workload"
)

// buntStore is buntdb in memory.
type buntStore struct {
	keySpace
	db *buntdb.DB
}

func openBuntDB(context.Context, *options) (workload.Store, error) {
	db, err := buntdb.Open(":memory:")
	if err != nil {
		return nil, err
	}
	return &buntStore{db: db, keySpace: newKeySpace()}, nil
}

// Name implements workload.Store.
func (s *buntStore) Name() string { return "buntdb" }

// Run implements workload.Store.
func (s *buntStore) Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int,
	w workload.Worker) error) error {
	return runWorkers(ctx, threads*coroutines, func() workload.Worker {
		w := &buntWorker{db: s.db}
		w.bound = w.call
		return w
	}, fn)
}

// Close implements workload.Store.
func (s *buntStore) Close(context.Context) error { return s.db.Close() }

// buntWorker is a worker and its transaction. An update has the database for
// itself, so that there are no conflicts.
type buntWorker struct {
	oneByOne
	db    *buntdb.DB
	tx    *buntdb.Tx
	fn    func(workload.Tx) error
	bound func(*buntdb.Tx) error // call
	arena arena                  // of keys that are only looked up
}

func (w *buntWorker) call(tx *buntdb.Tx) error {
	w.tx = tx
	return w.fn(w)
}

func (w *buntWorker) run(method func(func(*buntdb.Tx) error) error, fn func(workload.Tx) error) error {
	w.arena.reset()
	w.fn = fn
	err := method(w.bound)
	if err == nil {
		w.counters.Committed++
	}
	return err
}

// Update implements workload.Worker.
func (w *buntWorker) Update(_ context.Context, fn func(workload.Tx) error) error {
	return w.run(w.db.Update, fn)
}

// View implements workload.Worker.
func (w *buntWorker) View(_ context.Context, fn func(workload.Tx) error) error {
	return w.run(w.db.View, fn)
}

// get returns the value, which is shared with the database.
func (w *buntWorker) get(table int, key uint64) (string, error) {
	k := appendKey(w.arena.take(keyBytes), table, key)
	v, err := w.tx.Get(unsafe.String(&k[0], len(k))) // buntdb does not keep it
	if errors.Is(err, buntdb.ErrNotFound) {
		err = workload.ErrNotFound
	}
	return v, err
}

// Get implements workload.Tx.
func (w *buntWorker) Get(table int, key uint64) ([]byte, error) {
	v, err := w.get(table, key)
	if err != nil {
		return nil, err
	}
	return shared(v), nil
}

// shared returns the bytes of a value, to which the contract lets no caller write.
func shared(v string) []byte {
	if v == "" {
		return nil
	}
	return unsafe.Slice(unsafe.StringData(v), len(v))
}

// Put implements workload.Tx.
func (w *buntWorker) Put(table int, key uint64, value []byte) error {
	var k [keyBytes]byte
	_, _, err := w.tx.Set(string(appendKey(k[:0], table, key)), string(value), nil)
	return err
}

// Insert implements workload.Tx.
func (w *buntWorker) Insert(table int, key uint64, value []byte) error {
	switch _, err := w.get(table, key); {
	case errors.Is(err, workload.ErrNotFound):
		return w.Put(table, key, value)
	case err == nil:
		return workload.ErrExists
	default:
		return err
	}
}

// Delete implements workload.Tx.
func (w *buntWorker) Delete(table int, key uint64) error {
	var k [keyBytes]byte
	_, err := w.tx.Delete(string(appendKey(k[:0], table, key)))
	if errors.Is(err, buntdb.ErrNotFound) {
		err = workload.ErrNotFound
	}
	return err
}

// Range implements workload.Ranger.
func (w *buntWorker) Range(table int, r workload.Range, do func(key uint64, value []byte) bool) error {
	n := 0
	step := func(k, v string) bool {
		key := binary.BigEndian.Uint64([]byte(k[1:]))
		if k[0] != byte(table) || key < r.From || key > r.To {
			return false
		}
		n++
		return do(key, shared(v)) && n != r.Limit
	}
	var k [keyBytes]byte
	if r.Descending {
		return w.tx.DescendLessOrEqual("", string(appendKey(k[:0], table, r.To)), step)
	}
	return w.tx.AscendGreaterOrEqual("", string(appendKey(k[:0], table, r.From)), step)
}
