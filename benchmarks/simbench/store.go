package simbench

import (
	"context"
	"errors"
	"math"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/workload"
	"txnode/memory/catalog"
	"txnode/rdma/sim"
	"txnode/txn"
)

// world is a database on a fabric of its own.
type world struct {
	fabric  *sim.Fabric
	catalog *catalog.Mem
	store   *store
}

// bladeSize is the address space of a blade: memory is taken as data comes.
const bladeSize = 64 << 30

// open makes a world: an empty one, or with the data loaded.
func (c *Config) open(ctx context.Context, d *Data) (*world, error) {
	o := sim.Options{Profile: c.Profile, Seed: c.Seed, Freedom: c.Freedom, Record: c.Record, Program: c.Program}
	// FORD takes a completed WRITE for visible to all but for one READ per transaction.
	o.Placed = c.LikeDTX
	cat := &catalog.Mem{}
	for i := range c.Blades {
		b := sim.BladeOptions{Size: bladeSize, Key: 1}
		if d != nil {
			b.Image = d.images[i]
		}
		o.Blades = append(o.Blades, b)
	}
	if d != nil {
		cat = d.catalog.Clone()
	}
	if c.Idle > 0 {
		o.Profile.IdleNs = 1e11 // the published program's threads spin while their coroutines wait
	}
	f, err := sim.New(o)
	if err != nil {
		return nil, err
	}
	e, err := engine.Open(ctx, txn.Options{
		Fabric: f, Catalog: cat, Backups: &c.Backups, Policy: c.Policy, Techniques: &c.Techniques,
		Tuner: c.Tuner, Seed: c.Seed,
		Arena: arena, LogArea: logArea, CacheBytes: cacheBytes, Workers: 1, Retries: math.MaxInt32,
		SingleAttempt: c.LikeDTX,
		IndexGroups:   c.indexGroups(), LeafIndex: c.LeafIndex,
	})
	if err != nil {
		return nil, err
	}
	return &world{f, cat, &store{Store: e}}, nil
}

// indexGroups sizes the tables' indexes: with LikeDTX as generously as FORD's, whose
// buckets have 2.7 to 44 slots for each row: a lookup of a row that
// is not there then is one READ, but for a few in a thousand. Ours grow as they
// are filled.
func (c *Config) indexGroups() uint32 {
	if !c.LikeDTX {
		return 0
	}
	const perGroup, slotsPerRow, most = 21, 3, 4 // most: of a table's rows per subscriber, call forwarding's
	return uint32(max(c.Rows*most*slotsPerRow/perGroup, 64))
}

// Sizes of what each thread has: no transaction of these workloads needs more,
// and a hundred threads come and go.
const (
	arena      = 16 << 20
	logArea    = 1 << 20
	cacheBytes = 256 << 20
)

func (w *world) close(ctx context.Context) error {
	if err := w.store.Close(ctx); err != nil {
		return err
	}
	return w.fabric.Close()
}

// store is the engine, whose loading and checking does not depend on the machine
// that simulates.
type store struct{ *engine.Store }

// Threads and coroutines that load and check: package workload asks for a thread
// per processor of this machine, which would make it part of the result.
const (
	loadThreads    = 4
	loadCoroutines = 8
)

// bulk is a store for loading and checking.
type bulk struct{ *store }

// Run runs the workers of loading, however many are asked for.
func (b bulk) Run(ctx context.Context, _, _ int, fn func(ctx context.Context, id int, w workload.Worker) error) error {
	return b.Store.Run(ctx, loadThreads, loadCoroutines, func(ctx context.Context, id int, w workload.Worker) error {
		return fn(ctx, id, patient{w})
	})
}

// patient is a worker that tries again what a database with single attempts
// gives up.
type patient struct{ workload.Worker }

// Update tries until it commits.
func (p patient) Update(ctx context.Context, fn func(workload.Tx) error) error {
	return p.try(ctx, p.Worker.Update, fn)
}

// View tries until it commits.
func (p patient) View(ctx context.Context, fn func(workload.Tx) error) error {
	return p.try(ctx, p.Worker.View, fn)
}

func (p patient) try(ctx context.Context, do func(context.Context, func(workload.Tx) error) error,
	fn func(workload.Tx) error) error {
	for {
		if err := do(ctx, fn); !errors.Is(err, txn.ErrConflict) || ctx.Err() != nil {
			return err
		}
	}
}
