package inproc

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"txnode/rdma"
)

// BladeOptions describe one blade.
type BladeOptions struct {
	// Size of the region in bytes: a multiple of 64 KiB. Memory is used as it
	// is touched, disk as it is provisioned.
	Size uint64
	// Path of the file behind the region; empty: anonymous memory.
	Path string
	// HugePages asks for explicit huge pages (anonymous memory only), which
	// must have been reserved; Size is a multiple of theirs. Transparent ones are
	// used anyway.
	HugePages bool
	// ReadOnly rejects WRITEs and atomics. A file is opened for reading, and must
	// be there in full size.
	ReadOnly bool
	// Settle are parts of the file, offsets and lengths, that were provisioned once, and that are
	// written to the disk when it is mapped, also those that the system believes to be there: after
	// a write has failed it forgets that, and what is read from its memory is on no disk. So what is
	// read of them is durable. None: the program that had the file before has promised nothing.
	Settle [][2]uint64
	// Reserve are parts of the file, offsets and lengths, that were provisioned once, and get
	// disk blocks again when it is mapped if it is a copy that has holes there.
	Reserve [][2]uint64
	// Key is the initial access key.
	Key rdma.Key
}

// Options configure a fabric.
type Options struct {
	Blades []BladeOptions
	// Seed of all randomness; 0: from the clock.
	Seed uint64
	// KeepFaulty: a blade of whose file something cannot be accessed is not stopped. A request
	// that meets it fails with StatusIO, and others go on: for who looks at what is left.
	KeepFaulty bool
}

// Fabric is an in-process fabric. All methods are safe for concurrent use.
type Fabric struct {
	start   time.Time
	seed    uint64
	regions []*region
	barrier barrier
	files   bool // a region is a file
	keep    bool // Options.KeepFaulty

	mu     sync.RWMutex
	ports  map[*port]struct{}
	closed bool
}

var _ rdma.Fabric = (*Fabric)(nil)

// New maps the blades' memory.
func New(o Options) (*Fabric, error) {
	f := &Fabric{start: time.Now(), seed: o.Seed, keep: o.KeepFaulty, ports: map[*port]struct{}{}}
	if f.seed == 0 {
		f.seed = uint64(f.start.UnixNano())
	}
	if len(o.Blades) == 0 || len(o.Blades) > 1<<12 {
		return nil, fmt.Errorf("rdma: %d blades: at least 1 and at most 4096 are possible", len(o.Blades))
	}
	f.barrier.init()
	for i, b := range o.Blades {
		r, err := mapRegion(b)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("blade %d: %w", i, err), f.Close())
		}
		f.regions = append(f.regions, r)
		f.files = f.files || r.file != nil
	}
	return f, nil
}

// Name returns "inproc".
func (f *Fabric) Name() string { return "inproc" }

// Caps returns the promises: everything completes in Post, is placed then, and
// lines are ordered.
func (f *Fabric) Caps() rdma.Caps {
	durable := true
	for _, r := range f.regions {
		durable = durable && r.file != nil
	}
	return rdma.Caps{Synchronous: true, Placed: true, OrderedLine: true, MaskedCAS: true, Durable: durable, MaxBatch: 1 << 16}
}

// Blades lists the blades.
func (f *Fabric) Blades() []rdma.BladeInfo {
	out := make([]rdma.BladeInfo, len(f.regions))
	for i, r := range f.regions {
		out[i] = rdma.BladeInfo{ID: rdma.BladeID(i), Size: r.size, Key: r.accessKey(), ReadOnly: r.readOnly}
	}
	return out
}

// Now is nanoseconds since New, monotonic.
func (f *Fabric) Now() int64 { return int64(time.Since(f.start)) }

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

// Provision reserves disk space behind a range of a file blade.
func (f *Fabric) Provision(b rdma.BladeID, off, n uint64) error {
	return f.control(b, func(r *region) error {
		if r.stopped() {
			return r.stoppedError(b)
		}
		return r.provision(off, n)
	})
}

// SetKey changes a blade's access key and returns when no verb with another one
// is in progress. It waits for each port that is inside Post, at most a batch long.
func (f *Fabric) SetKey(b rdma.BladeID, k rdma.Key) error {
	return f.control(b, func(r *region) error {
		if r.stopped() {
			return r.stoppedError(b)
		}
		r.key.Store(uint64(k))
		f.settle()
		return nil
	})
}

// control runs fn on a blade's region, alone on that blade's control path; the fabric
// stays open meanwhile.
func (f *Fabric) control(b rdma.BladeID, fn func(r *region) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	r, err := f.region(b)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return fn(r)
}

// settle returns when no verb is in progress that was let in by the keys as they
// were before; f.mu is held.
func (f *Fabric) settle() {
	f.barrier.all()
	for p := range f.ports {
		for s := p.executing(); s%2 == 1 && p.executing() == s; {
			runtime.Gosched()
		}
	}
}

// region returns a blade's region; f.mu is held.
func (f *Fabric) region(b rdma.BladeID) (*region, error) {
	if f.closed {
		return nil, rdma.ErrClosed
	}
	if int(b) >= len(f.regions) {
		return nil, fmt.Errorf("rdma: blade %d of %d: %w", b, len(f.regions), rdma.ErrBladeDown)
	}
	return f.regions[b], nil
}

// Sync has the system write to the disk whatever it has of a blade's file. Without an error
// nothing that was written to it since it was mapped is in the system's memory alone, whether it
// was flushed or not, unless it is written meanwhile.
func (f *Fabric) Sync(b rdma.BladeID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return rdma.ErrClosed
	}
	if int(b) >= len(f.regions) {
		return rdma.ErrBladeDown
	}
	r := f.regions[b]
	return r.flush(0, r.size)
}

// Close unmaps the memory. Every port must be closed. To close again does nothing.
func (f *Fabric) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.ports); n > 0 {
		return fmt.Errorf("rdma: %d ports are still open", n)
	}
	if f.closed {
		return nil
	}
	f.closed = true
	var errs []error
	for _, r := range f.regions {
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}
