package simbench

import (
	"context"
	"errors"
	"fmt"

	"txnode/benchmarks/ycsb"
	"txnode/memory/catalog"
	"txnode/rdma"
	"txnode/rdma/sim"
)

// Data is a loaded database, as the blades and the catalog have it after it was
// closed. Points start from copies of it, any number at a time.
type Data struct {
	shape   shape
	images  []*sim.Image
	catalog *catalog.Mem
	Records int
}

// shape is the part of a configuration that the data depends on.
type shape struct {
	workload              string
	rows, blades, backups int
	like                  bool
	ycsb                  ycsb.Options
}

func (c *Config) shape() shape {
	return shape{c.Workload, c.Rows, c.Blades, c.Backups, c.LikeDTX, c.YCSB}
}

// Load loads the database of a configuration, on a machine that loses no time. Policy, techniques,
// threads and seed do not matter to what is loaded. progress is told how many records of how many
// are; nil: nobody is.
func Load(ctx context.Context, c Config, progress func(done, total int)) (*Data, error) {
	c.defaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Profile, c.Freedom, c.Seed, c.Record = sim.Ideal(), sim.FreedomNone, 0, nil
	c.Techniques = rdma.Techniques{Doorbells: true}
	c.Program = sim.Program{Name: "none"}
	inner, err := c.driver()
	if err != nil {
		return nil, err
	}
	w, err := c.open(ctx, nil)
	if err != nil {
		return nil, err
	}
	d := &Data{shape: c.shape()}
	report, err := (&driver{Driver: inner, aged: c.aged()}).Load(ctx, w.store, progress)
	d.Records = report.Records
	if e := w.store.Close(context.WithoutCancel(ctx)); err == nil {
		err = e
	}
	if err == nil {
		w.fabric.Settle()
		for i := range c.Blades {
			d.images = append(d.images, w.fabric.Image(rdma.BladeID(i)))
		}
		d.catalog = w.catalog.Clone()
	}
	if err = errors.Join(err, w.fabric.Close()); err != nil {
		return nil, fmt.Errorf("simbench: loading %s: %w", c.Workload, err)
	}
	return d, nil
}

// aged says that the bank starts with the balances of a long run.
func (c *Config) aged() bool { return c.LikeDTX && c.Workload == "smallbank" }
