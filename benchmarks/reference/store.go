package reference

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"time"

	"txnode/benchmarks/workload"
)

// Options of a store. The zero value is the default.
type Options struct {
	// Shards is the number of maps (and locks) per table, rounded up to a power
	// of two. Default 256, most 65536.
	Shards int
}

const (
	defaultShards = 256
	maxShards     = 1 << 16
	cacheLine     = 64
)

// Store is the database. Its methods may be called concurrently, except Tables
// and Close, which need it for themselves.
type Store struct {
	shardBits uint
	start     time.Time
	schema    []workload.Table
	shards    []shard // of all tables; see lockID
}

// shard is a map and the lock of all its keys, present or absent.
type shard struct {
	mu      sync.Mutex
	records map[uint64][]byte
	keys    *keySet // of an ordered table, whose only shard this is; else nil
	_       [cacheLine - 24]byte
}

// lockID is a shard's place in Store.shards: table << shardBits | number. Locks
// are waited for in increasing order of it.
type lockID uint32

// Open returns an empty store.
func Open(o Options) *Store {
	n := o.Shards
	if n <= 0 {
		n = defaultShards
	}
	return &Store{
		shardBits: uint(bits.Len(uint(min(n, maxShards) - 1))),
		start:     time.Now(),
	}
}

// Name returns what the store is.
func (s *Store) Name() string { return "sharded map" }

// Tables creates the tables, or checks that they are the ones created before.
func (s *Store) Tables(_ context.Context, tables []workload.Table) (existed bool, err error) {
	if s.schema != nil {
		if !slices.Equal(s.schema, tables) {
			return true, fmt.Errorf("reference: the store was opened with tables %v, not %v; open another one",
				s.schema, tables)
		}
		return true, nil
	}
	if len(tables) > 1<<12 {
		return false, fmt.Errorf("reference: %d tables are more than %d", len(tables), 1<<12)
	}
	s.schema = slices.Clone(tables)
	s.shards = make([]shard, len(tables)<<s.shardBits)
	for i := range s.shards {
		t := &tables[i>>s.shardBits]
		expect := t.Expect >> s.shardBits
		if t.Ordered {
			if s.shards[i].keys = new(keySet); i&(1<<s.shardBits-1) == 0 {
				expect = t.Expect
			}
		}
		s.shards[i].records = make(map[uint64][]byte, expect)
	}
	return false, nil
}

// lock returns the lock of a key.
func (s *Store) lock(table int, key uint64) lockID {
	if s.schema[table].Ordered {
		return lockID(uint64(table) << s.shardBits)
	}
	const golden = 0x9e3779b97f4a7c15 // Fibonacci hashing: the high bits of the product are well mixed
	return lockID(uint64(table)<<s.shardBits | (key*golden)>>(64-s.shardBits))
}

// Run runs fn in threads × coroutines goroutines.
func (s *Store) Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int,
	w workload.Worker) error) error {
	var (
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for id := range threads * coroutines {
		wg.Go(func() {
			if err := fn(ctx, id, newWorker(s)); err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	wg.Wait()
	return first
}

// Now returns nanoseconds of wall time since Open.
func (s *Store) Now() int64 { return int64(time.Since(s.start)) }

// Close forgets the data.
func (s *Store) Close(context.Context) error {
	s.shards, s.schema = nil, nil
	return nil
}

var _ workload.Store = (*Store)(nil)
