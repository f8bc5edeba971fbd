package main

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"

	"txnode/benchmarks/workload"
)

// pebbleStore is pebble on a file system in memory, without a log. Pebble has batches
// and snapshots, but no transactions: an update has an indexed batch and is alone;
// readers have snapshots.
type pebbleStore struct {
	keySpace
	db *pebble.DB
	mu sync.Mutex // held by the update that runs
}

func openPebble(context.Context, *options) (workload.Store, error) {
	o := &pebble.Options{
		FS: vfs.NewMem(), DisableWAL: true, Logger: quietPebble{},
		MemTableSize: 64 << 20, CacheSize: 2 << 30, // all blocks
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].Compression = func() *block.CompressionProfile { return block.NoCompression }
	}
	db, err := pebble.Open("", o)
	if err != nil {
		return nil, err
	}
	return &pebbleStore{db: db, keySpace: newKeySpace()}, nil
}

// quietPebble drops what pebble logs.
type quietPebble struct{ pebble.Logger }

func (quietPebble) Infof(string, ...any)  {}
func (quietPebble) Errorf(string, ...any) {}

// Name implements workload.Store.
func (s *pebbleStore) Name() string { return "pebble" }

// Run implements workload.Store.
func (s *pebbleStore) Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int,
	w workload.Worker) error) error {
	return runWorkers(ctx, threads*coroutines, func() workload.Worker { return &pebbleWorker{s: s} }, fn)
}

// Close implements workload.Store.
func (s *pebbleStore) Close(context.Context) error { return s.db.Close() }

// pebbleWorker is a worker and its transaction.
type pebbleWorker struct {
	oneByOne
	s      *pebbleStore
	reader pebble.Reader // batch, or a snapshot
	batch  *pebble.Batch // nil in a View
	arena  arena
}

// Update implements workload.Worker.
func (w *pebbleWorker) Update(_ context.Context, fn func(workload.Tx) error) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.arena.reset()
	w.batch = w.s.db.NewIndexedBatch()
	w.reader = w.batch
	err := fn(w)
	if err == nil {
		err = w.batch.Commit(pebble.NoSync)
	}
	if err == nil {
		w.counters.Committed++
	}
	return errors.Join(err, w.batch.Close())
}

// View implements workload.Worker.
func (w *pebbleWorker) View(_ context.Context, fn func(workload.Tx) error) error {
	w.arena.reset()
	snapshot := w.s.db.NewSnapshot()
	w.reader, w.batch = snapshot, nil
	err := fn(w)
	if err == nil {
		w.counters.Committed++
	}
	return errors.Join(err, snapshot.Close())
}

func (w *pebbleWorker) key(table int, key uint64) []byte {
	return appendKey(w.arena.take(keyBytes), table, key)
}

func (w *pebbleWorker) copied(value []byte) []byte {
	return append(w.arena.take(len(value)), value...)
}

// Get implements workload.Tx.
func (w *pebbleWorker) Get(table int, key uint64) ([]byte, error) {
	v, closer, err := w.reader.Get(w.key(table, key))
	if err != nil {
		if errors.Is(err, pebble.ErrNotFound) {
			err = workload.ErrNotFound
		}
		return nil, err
	}
	v = w.copied(v)
	return v, closer.Close()
}

// Put implements workload.Tx.
func (w *pebbleWorker) Put(table int, key uint64, value []byte) error {
	return w.batch.Set(w.key(table, key), value, nil)
}

// Insert implements workload.Tx.
func (w *pebbleWorker) Insert(table int, key uint64, value []byte) error {
	switch _, err := w.Get(table, key); {
	case errors.Is(err, workload.ErrNotFound):
		return w.Put(table, key, value)
	case err == nil:
		return workload.ErrExists
	default:
		return err
	}
}

// Delete implements workload.Tx.
func (w *pebbleWorker) Delete(table int, key uint64) error {
	if _, err := w.Get(table, key); err != nil {
		return err
	}
	return w.batch.Delete(w.key(table, key), nil)
}

// Range implements workload.Ranger.
func (w *pebbleWorker) Range(table int, r workload.Range, do func(key uint64, value []byte) bool) error {
	if r.From > r.To {
		return nil
	}
	end := w.key(table+1, 0)
	if r.To < math.MaxUint64 {
		end = w.key(table, r.To+1)
	}
	it, err := w.reader.NewIter(&pebble.IterOptions{LowerBound: w.key(table, r.From), UpperBound: end})
	if err != nil {
		return err
	}
	move := it.Next
	var ok bool
	if r.Descending {
		move, ok = it.Prev, it.Last()
	} else {
		ok = it.First()
	}
	for n := 1; ok; n++ {
		if !do(binary.BigEndian.Uint64(it.Key()[1:]), w.copied(it.Value())) || n == r.Limit {
			break
		}
		ok = move()
	}
	return errors.Join(it.Error(), it.Close())
}
