package main

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/dgraph-io/badger/v4"
	boptions "github.com/dgraph-io/badger/v4/options"

	"txnode/benchmarks/workload"
)

// badgerStore is badger in memory.
type badgerStore struct {
	keySpace
	db *badger.DB
}

func openBadger(context.Context, *options) (workload.Store, error) {
	db, err := badger.Open(badger.DefaultOptions("").
		WithInMemory(true).
		WithLogger(nil).
		WithMetricsEnabled(false).
		WithCompression(boptions.None).
		WithBlockCacheSize(0)) // it serves compressed and encrypted blocks only
	if err != nil {
		return nil, err
	}
	return &badgerStore{db: db, keySpace: newKeySpace()}, nil
}

// Name implements workload.Store.
func (s *badgerStore) Name() string { return "badger" }

// Run implements workload.Store.
func (s *badgerStore) Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int,
	w workload.Worker) error) error {
	return runWorkers(ctx, threads*coroutines, func() workload.Worker { return &badgerWorker{db: s.db} }, fn)
}

// Close implements workload.Store.
func (s *badgerStore) Close(context.Context) error { return s.db.Close() }

// badgerWorker is a worker and its transaction.
type badgerWorker struct {
	oneByOne
	db    *badger.DB
	txn   *badger.Txn
	arena arena // badger keeps what it is given until the transaction has ended
}

// Update implements workload.Worker.
func (w *badgerWorker) Update(ctx context.Context, fn func(workload.Tx) error) error {
	for {
		w.arena.reset()
		w.txn = w.db.NewTransaction(true)
		if err := fn(w); err != nil {
			w.txn.Discard()
			return err
		}
		err := w.txn.Commit()
		if err == nil {
			w.counters.Committed++
			return nil
		}
		if !errors.Is(err, badger.ErrConflict) {
			return err
		}
		w.counters.Aborts[workload.AbortValidation]++
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// View implements workload.Worker.
func (w *badgerWorker) View(_ context.Context, fn func(workload.Tx) error) error {
	w.arena.reset()
	w.txn = w.db.NewTransaction(false)
	defer w.txn.Discard()
	err := fn(w)
	if err == nil {
		w.counters.Committed++
	}
	return err
}

func (w *badgerWorker) key(table int, key uint64) []byte {
	return appendKey(w.arena.take(keyBytes), table, key)
}

func (w *badgerWorker) item(table int, key uint64) (*badger.Item, error) {
	item, err := w.txn.Get(w.key(table, key))
	if errors.Is(err, badger.ErrKeyNotFound) {
		err = workload.ErrNotFound
	}
	return item, err
}

// Get implements workload.Tx.
func (w *badgerWorker) Get(table int, key uint64) ([]byte, error) {
	item, err := w.item(table, key)
	if err != nil {
		return nil, err
	}
	return item.ValueCopy(w.arena.take(int(item.ValueSize())))
}

// Put implements workload.Tx.
func (w *badgerWorker) Put(table int, key uint64, value []byte) error {
	return w.txn.Set(w.key(table, key), append(w.arena.take(len(value)), value...))
}

// Insert implements workload.Tx.
func (w *badgerWorker) Insert(table int, key uint64, value []byte) error {
	switch _, err := w.item(table, key); {
	case errors.Is(err, workload.ErrNotFound):
		return w.Put(table, key, value)
	case err == nil:
		return workload.ErrExists
	default:
		return err
	}
}

// Delete implements workload.Tx.
func (w *badgerWorker) Delete(table int, key uint64) error {
	if _, err := w.item(table, key); err != nil {
		return err
	}
	return w.txn.Delete(w.key(table, key))
}

// Range implements workload.Ranger. badger's conflict detection notes the keys that an iterator
// passes.
func (w *badgerWorker) Range(table int, r workload.Range, do func(key uint64, value []byte) bool) error {
	it := w.txn.NewIterator(badger.IteratorOptions{Reverse: r.Descending, Prefix: append(w.arena.take(1), byte(table))})
	defer it.Close()
	from, n := r.From, 0
	if r.Descending {
		from = r.To
	}
	for it.Seek(w.key(table, from)); it.Valid() && (r.Limit == 0 || n < r.Limit); it.Next() {
		item := it.Item()
		key := binary.BigEndian.Uint64(item.Key()[1:])
		if key < r.From || key > r.To {
			return nil
		}
		value, err := item.ValueCopy(w.arena.take(int(item.ValueSize())))
		if err != nil {
			return err
		}
		if n++; !do(key, value) {
			return nil
		}
	}
	return nil
}
