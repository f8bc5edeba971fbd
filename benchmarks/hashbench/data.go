package hashbench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"txnode/benchmarks/workload"
	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/rdma/sim"
)

// Data is a loaded table, as the blades and the catalog have it. Points start from
// copies of it, any number at a time.
type Data struct {
	keys    uint64
	blades  int
	images  []*sim.Image
	catalog *catalog.Mem
	root    layout.Addr
}

// The table, and the sizes of what each thread has.
const (
	tableID   = 1
	bladeSize = 256 << 30 // address space: memory is taken as data comes
	arena     = 1 << 20

	loaders     = 4 // threads that load
	loaderCoros = 8
)

// recordClass is the class of every block: one line.
var recordClass = func() layout.Class {
	class, ok := record.ClassFor(8, 8)
	if !ok || class.Size() != record.LineSize {
		panic("hashbench: a record of 8 and 8 bytes is not a line")
	}
	return class
}()

// world is a table on a fabric of its own.
type world struct {
	fabric  *sim.Fabric
	catalog *catalog.Mem
	control *rdma.Thread
	space   *memory.Space
	index   *race.Index
	like    bool  // Config.LikeSMART
	failed  []int // attempts of each thread since an update of it ended
}

// controlThread is the index of the thread that sets up: no other has it.
const controlThread = 1 << 16

func (c *Config) open(d *Data) (w *world, err error) {
	o := sim.Options{
		Profile: c.Profile, Seed: c.Seed, Freedom: c.Freedom, Record: c.Record,
		ThreadsPerBlade: (c.Threads + c.Compute - 1) / c.Compute, Program: c.program(),
	}
	w = &world{catalog: &catalog.Mem{}, like: c.LikeSMART, failed: make([]int, max(c.Threads, loaders))}
	for i := range c.Blades {
		b := sim.BladeOptions{Size: bladeSize, Key: 1}
		if d != nil {
			b.Image = d.images[i]
		}
		o.Blades = append(o.Blades, b)
	}
	if d != nil {
		w.catalog = d.catalog.Clone()
	}
	if w.fabric, err = sim.New(o); err != nil {
		return nil, err
	}
	if w.control, err = rdma.NewThread(w.fabric, rdma.ThreadOptions{Index: controlThread, Arena: 4 << 20}); err != nil {
		return nil, err
	}
	control := w.control.Plain()
	if w.space, err = memory.Open(control, w.fabric, w.catalog, memory.Options{}); err != nil {
		return nil, err
	}
	if d == nil {
		_, w.index, err = race.Create(control, w.space, tableID, race.Options{Keys: c.Keys})
	} else {
		w.index, err = race.Open(control, w.space, d.root, tableID)
	}
	if err == nil {
		w.index.ReadBoth(c.LikeSMART)
	}
	return w, err
}

func (w *world) close() error {
	return errors.Join(w.space.Close(w.control.Plain()), w.control.Close(), w.fabric.Close())
}

// Load loads the table of a configuration, on a machine that loses no time.
// Techniques, threads and seed do not matter to what is loaded.
func Load(ctx context.Context, c Config, progress func(done, total uint64)) (*Data, error) {
	c.defaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Profile, c.Freedom, c.Seed, c.Record, c.LikeSMART = sim.Ideal(), sim.FreedomNone, 0, nil, false
	c.Techniques = rdma.Techniques{Doorbells: true}
	c.Threads, c.Compute = loaders, 1
	w, err := c.open(nil)
	if err != nil {
		return nil, fmt.Errorf("hashbench: loading: %w", err)
	}
	d := &Data{keys: c.Keys, blades: c.Blades, root: w.index.Root()}
	next := uint64(0)
	err = w.run(&c, loaders, loaderCoros, func(k *client) error {
		for next < c.Keys {
			rank := next
			next++
			if err := k.insert(workload.Scatter(rank), rank); err != nil {
				return err
			}
			if rank&0xfff == 0 {
				if progress != nil {
					progress(rank, c.Keys)
				}
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
			}
		}
		return nil
	})
	if err == nil {
		w.fabric.Settle()
		for i := range c.Blades {
			d.images = append(d.images, w.fabric.Image(rdma.BladeID(i)))
		}
		d.catalog = w.catalog.Clone()
	}
	if err = errors.Join(err, w.close()); err != nil {
		return nil, fmt.Errorf("hashbench: loading %d keys: %w", c.Keys, err)
	}
	return d, nil
}

// run runs fn in clients on threads x coroutines.
func (w *world) run(c *Config, threads, coroutines int, fn func(k *client) error) error {
	var first error
	report := func(err error) {
		if first == nil {
			first = err
		}
	}
	policy := rdma.PerThreadQP
	if c.Techniques.Doorbells {
		policy = rdma.PerThreadDoorbell
	}
	all := make([]*rdma.Thread, threads) // all connect before one starts
	perBlade := (threads + c.Compute - 1) / c.Compute
	var tuner *rdma.Tuner // of the process on a compute blade
	for i := range all {
		if i%perBlade == 0 {
			tuner = rdma.NewTuner(c.Tuner)
		}
		t, err := rdma.NewThread(w.fabric, rdma.ThreadOptions{
			Index: i, Techniques: c.Techniques, Tuner: tuner,
			Backoff: rdma.BackoffOptions{Doublings: c.backoff().Doublings}, Policy: policy, Arena: arena,
		})
		if err != nil {
			return err
		}
		all[i] = t
	}
	w.fabric.Run(threads, func(i int) {
		blocks, err := w.space.NewAllocator(all[i])
		if err != nil {
			report(err)
			return
		}
		all[i].Run(coroutines, func(co *rdma.Coro) {
			k, err := newClient(w, co, blocks)
			if err == nil {
				err = fn(k)
				k.close()
			}
			report(err)
		})
		report(blocks.Close(all[i].Plain()))
	})
	for _, t := range all {
		report(t.Close())
	}
	return first
}

func putKey(p []byte, key uint64) []byte {
	binary.LittleEndian.PutUint64(p, key)
	return p
}
