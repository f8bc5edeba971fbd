package inproc

import (
	"sync"
	"time"

	"txnode/rdma"
	"txnode/rdma/region"
)

// BladeOptions describe one blade: its memory and where it comes from.
type BladeOptions = region.Options

// Options configure a fabric.
type Options struct {
	Blades []BladeOptions
	// Seed of all randomness; 0: from the clock.
	Seed uint64
	// KeepFaulty: a blade of whose file something cannot be accessed is not stopped. A request
	// that meets it fails with StatusIO, and others go on: for who looks at what is left.
	KeepFaulty bool
}

// Fabric is an in-process fabric: the regions of its blades, a clock and a seed. The
// control path is that of region.Set, which rdma.Fabric and rdma.Stopper document. All
// methods are safe for concurrent use.
type Fabric struct {
	*region.Set
	clock region.Clock
	seed  uint64
}

var (
	_ rdma.Fabric      = (*Fabric)(nil)
	_ rdma.Stopper     = (*Fabric)(nil)
	_ rdma.PageAdvisor = (*Fabric)(nil)
)

// New maps the blades' memory.
func New(o Options) (*Fabric, error) {
	f := &Fabric{clock: region.Clock{Start: time.Now()}, seed: o.Seed}
	if f.seed == 0 {
		f.seed = uint64(f.clock.Start.UnixNano())
	}
	var err error
	f.Set, err = region.New(region.Config{Regions: o.Blades, Seed: f.seed, KeepFaulty: o.KeepFaulty})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Name returns "inproc".
func (f *Fabric) Name() string { return "inproc" }

// Caps returns the promises: everything completes in Post, is placed then, and
// lines are ordered.
func (f *Fabric) Caps() rdma.Caps {
	return rdma.Caps{
		RealTime: true, Synchronous: true, Placed: true, OrderedLine: true, MaskedCAS: true,
		Durable: f.Durable(), MaxBatch: 1 << 16,
	}
}

// Now is nanoseconds since New, monotonic.
func (f *Fabric) Now() int64 { return f.clock.Now() }

// NewPort maps an arena and connects it to all blades.
func (f *Fabric) NewPort(cfg rdma.PortConfig) (rdma.Port, error) {
	l, err := f.NewLane(cfg.Arena)
	if err != nil {
		return nil, err
	}
	return l.Port(f.clock), nil
}

// Seed returns the seed.
func (f *Fabric) Seed() uint64 { return f.seed }

// Run runs fn(0) ... fn(n-1) on a goroutine each.
func (f *Fabric) Run(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}
