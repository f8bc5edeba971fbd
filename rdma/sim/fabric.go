package sim

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"txnode/rdma"
)

// BladeOptions describe one memory blade.
type BladeOptions struct {
	// Size of the region in bytes. Only pages that are written take memory.
	Size uint64
	// Key is the first access key; 0: one that is drawn from the seed.
	Key rdma.Key
	// ReadOnly rejects WRITEs and atomics.
	ReadOnly bool
	// Image is what the memory holds at the start, at most Size bytes; nil: zeros.
	Image *Image
}

// Options configure a fabric. Only Blades has to be set.
type Options struct {
	Blades []BladeOptions
	// Profile of the machines; the zero value is ConnectX6.
	Profile Profile
	// Program that runs there, where it is not this one.
	Program Program
	// Seed of everything random; 0 is a seed like any other.
	Seed uint64
	// ThreadsPerBlade maps threads to compute blades: the thread of index i
	// (rdma.PortConfig.Index) runs on compute blade i/ThreadsPerBlade. 0: all on one.
	ThreadsPerBlade int
	// Threads is how many threads of a compute blade connect when it starts, which
	// decides the doorbell register that each queue pair gets: all threads to the
	// first blade, all threads to the second, and so on. 0: the open ports that
	// bodies of Run have used, in the order of their indices.
	Threads int
	// Share is how many threads share a queue pair under MultiplexedQP; 0: 4.
	Share int
	// Freedom that the memory takes.
	Freedom Freedom
	// Placed promises that a completed WRITE is visible to all (Caps.Placed).
	Placed bool
	// UnorderedLines withdraws Caps.OrderedLine: the words of one line of a WRITE
	// are placed in any order.
	UnorderedLines bool
	// Durable: memory survives a restart of its blade without further ado
	// (Caps.Durable). A fault decides what it does survive.
	Durable bool
	// Faults are injected from the start; see Inject.
	Faults []Fault
	// Trace gets a line for each effect and each completion; nil: only TraceHash.
	Trace io.Writer
	// Record collects every verb, for WriteChrome; nil: none.
	Record *Recording
	// Remote: that a blade does not answer says nothing about it (Caps.Remote). What is known of it
	// then is in the errors: rdma.EvidenceOf.
	Remote bool
	// Interrupt, if not nil, is called every few thousand events of Run; when it returns
	// an error, the bodies are unwound and Run panics with it.
	Interrupt func() error
}

func (o *Options) defaults() {
	if o.Profile == (Profile{}) {
		o.Profile = ConnectX6()
	}
	if o.Share == 0 {
		o.Share = 4
	}
}

// Validate lists everything that is wrong with the options, after defaults.
func (o Options) Validate() error {
	o.defaults()
	var bad []string
	if n := len(o.Blades); n == 0 || n > 1<<12 {
		bad = append(bad, fmt.Sprintf("%d blades: at least 1 and at most 4096 are possible", n))
	}
	for i, b := range o.Blades {
		if b.Size == 0 || b.Size > 1<<47 {
			bad = append(bad, fmt.Sprintf("blade %d of %d bytes: at least 1 and at most 2^47 are possible", i, b.Size))
		}
		if b.Image != nil && b.Image.m.size > b.Size {
			bad = append(bad, fmt.Sprintf("blade %d of %d bytes: its image is of a blade of %d",
				i, b.Size, b.Image.m.size))
		}
	}
	if o.ThreadsPerBlade < 0 || o.Threads < 0 || o.Share < 0 {
		bad = append(bad, "ThreadsPerBlade, Threads or Share is negative")
	}
	var errs []error
	if bad != nil {
		errs = append(errs, fmt.Errorf("%w: %s", ErrOptions, strings.Join(bad, "; ")))
	}
	errs = append(errs, o.Profile.Validate(), o.Program.Validate())
	for _, x := range o.Faults {
		errs = append(errs, x.validate(len(o.Blades)))
	}
	return errors.Join(errs...)
}

// Fabric is a simulated fabric. It belongs to one goroutine: the one that calls
// Run, whose bodies are coroutines on it; outside Run one at a time.
type Fabric struct {
	opt       Options
	free      freedomTable
	timeout   int64 // ps
	controlPs int64
	look      int64
	idle      int64

	now     int64 // ps
	seq     uint64
	queue   eventQueue
	line    int64 // when Program's shared line has arrived where it was wanted last, ps
	groups  groupPool
	locks   []*spinlock
	blades  []*blade
	cpus    []*device // compute blades, by number
	faults  []Fault   // timed ones, by number
	struck  [faultKinds]uint64
	waiting []Fault // for the port of their thread
	deaf    []window

	running bool
	cur     *proc // whose code runs; nil: the caller of Run or of a port outside it
	main    proc
	procs   []*proc
	live    int

	trace   tracer
	stopped []int
	past    map[int]uint64 // verbs posted by threads whose ports are closed
	verbs   uint64
	events  uint64

	mu    sync.Mutex // ports, and their arenas
	ports map[*port]struct{}
}

var _ rdma.Fabric = (*Fabric)(nil)

// New makes a fabric.
func New(o Options) (*Fabric, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.defaults()
	pr := &o.Profile
	f := &Fabric{
		opt: o, free: o.Freedom.table(),
		timeout: ps(pr.TimeoutNs), controlPs: ps(pr.ControlNs), look: ps(pr.LookaheadNs), idle: ps(pr.IdleNs),
		ports: map[*port]struct{}{}, past: map[int]uint64{},
	}
	f.trace.init(o.Trace, o.Seed)
	f.main.f = f
	for i, b := range o.Blades {
		f.blades = append(f.blades, newBlade(f, rdma.BladeID(i), b))
	}
	if err := f.Inject(o.Faults...); err != nil {
		return nil, err
	}
	return f, nil
}

// Name returns "sim".
func (f *Fabric) Name() string { return "sim" }

// Profile returns the machine that is simulated.
func (f *Fabric) Profile() Profile { return f.opt.Profile }

// Caps returns the promises.
func (f *Fabric) Caps() rdma.Caps {
	return rdma.Caps{
		Placed:      f.opt.Placed,
		OrderedLine: !f.opt.UnorderedLines,
		MaskedCAS:   !f.opt.Profile.NoMaskedCAS,
		Durable:     f.opt.Durable,
		Remote:      f.opt.Remote,
		MaxBatch:    f.opt.Profile.QueueDepth,
	}
}

// Blades lists the blades, with their oldest keys.
func (f *Fabric) Blades() []rdma.BladeInfo {
	out := make([]rdma.BladeInfo, len(f.blades))
	for i, b := range f.blades {
		out[i] = rdma.BladeInfo{
			ID: b.id, Size: b.mem.size, Key: b.keys.Oldest(), ReadOnly: b.readOnly, Incarnation: uint64(b.epoch),
		}
	}
	return out
}

// Now is the virtual clock of the caller in nanoseconds: that of the body which
// calls, if Run is in progress.
func (f *Fabric) Now() int64 { return f.proc().clock / 1000 }

// Seed returns the seed.
func (f *Fabric) Seed() uint64 { return f.opt.Seed }

// proc returns whose code runs.
func (f *Fabric) proc() *proc {
	if f.cur != nil {
		return f.cur
	}
	f.main.clock = max(f.main.clock, f.now)
	return &f.main
}

// control returns the blade that a call of the control path reaches. The call takes
// its time, but is carried out now.
func (f *Fabric) control(b rdma.BladeID) (*blade, error) {
	if int(b) >= len(f.blades) {
		return nil, fmt.Errorf("sim: blade %d of %d: %w", b, len(f.blades), rdma.ErrBladeDown)
	}
	f.proc().clock += f.controlPs
	if err := f.answers(b, -1, 0); err != nil {
		return nil, err
	}
	return f.blades[b], nil
}

// reach returns nil after a call of the control path has reached the blade.
func (f *Fabric) reach(b rdma.BladeID, thread, compute int) error {
	if int(b) >= len(f.blades) {
		return fmt.Errorf("sim: blade %d of %d: %w", b, len(f.blades), rdma.ErrBladeDown)
	}
	p := f.proc()
	p.clock += f.controlPs
	p.sync()
	return f.answers(b, thread, compute)
}

// Provision checks the range: pages are made when they are written. It takes its
// time, but gives control to nobody else: its caller may hold a mutex that
// another body, on the same goroutine, is about to ask for.
func (f *Fabric) Provision(b rdma.BladeID, off, n uint64) error {
	bl, err := f.control(b)
	if err != nil {
		return err
	}
	if off > bl.mem.size || n > bl.mem.size-off {
		return fmt.Errorf("sim: provisioning [%#x, +%#x) of a region of %#x bytes: %w",
			off, n, bl.mem.size, rdma.ErrNoMemory)
	}
	return nil
}

// Grant adds an access key to a blade: rdma.Fabric. Like Provision it gives control to nobody
// else.
func (f *Fabric) Grant(b rdma.BladeID) (rdma.Key, error) {
	bl, err := f.control(b)
	if err != nil {
		return 0, err
	}
	k := bl.keys.Grant()
	f.trace.note(f.now, "grant", uint64(b), uint64(k))
	return k, nil
}

// Revoke ends the access keys of a blade that are older than before: rdma.Fabric. What has
// arrived there takes effect first. Like Provision it gives control to nobody else.
func (f *Fabric) Revoke(b rdma.BladeID, before rdma.Key) error {
	bl, err := f.control(b)
	if err != nil {
		return err
	}
	if !bl.keys.Opens(before) {
		return fmt.Errorf("sim: blade %d: key %#x opens nothing: %w", b, before, rdma.ErrStaleKey)
	}
	f.force(bl)
	bl.keys.Revoke(before)
	f.trace.note(f.now, "revoke", uint64(b), uint64(before))
	return nil
}

// Settle runs events until none is left: everything in flight has arrived. Only
// outside Run.
func (f *Fabric) Settle() {
	for f.queue.len() > 0 && !f.running {
		f.step()
	}
}

// ReadMemory copies what the blade's memory holds at off, as an observer outside
// the simulation sees it.
func (f *Fabric) ReadMemory(b rdma.BladeID, off uint64, dst []byte) error {
	if int(b) >= len(f.blades) {
		return fmt.Errorf("sim: blade %d of %d: %w", b, len(f.blades), rdma.ErrBladeDown)
	}
	m := &f.blades[b].mem
	if off > m.size || uint64(len(dst)) > m.size-off {
		return fmt.Errorf("sim: reading [%#x, +%#x) of a region of %#x bytes: %w",
			off, len(dst), m.size, rdma.ErrNoMemory)
	}
	if len(dst) > 0 {
		m.read(dst, off)
	}
	return nil
}

// Image returns a copy of a blade's memory, to start other fabrics from. Only
// outside Run, when nothing is in flight (Settle); nil for a blade that is not there.
func (f *Fabric) Image(b rdma.BladeID) *Image {
	if int(b) >= len(f.blades) {
		return nil
	}
	i := &Image{}
	i.m.init(f.blades[b].mem.size)
	i.m.copyFrom(&f.blades[b].mem)
	return i
}

// Stats are what a fabric has done since it was made.
type Stats struct {
	Verbs       uint64 // handed to the device
	Events      uint64
	Pages       int // of blade memory in use, 4 KiB each
	Connections int // queue pairs of open ports, shared ones once
}

// Stats returns the totals.
func (f *Fabric) Stats() Stats {
	s := Stats{Verbs: f.verbs, Events: f.events}
	for _, b := range f.blades {
		s.Pages += b.mem.pages
	}
	for _, d := range f.cpus {
		if d != nil {
			d.assign()
			s.Connections += d.qps
		}
	}
	return s
}

// Struck is how often faults of a kind have struck: threads or blades that have stopped, verbs that
// were lost, delayed or divided by one, or were slow or cut off by one, compute blades that have
// stopped, waits for the end of a pause, calls of CatalogDown that were told so.
func (f *Fabric) Struck(k FaultKind) uint64 {
	if k >= faultKinds {
		return 0
	}
	return f.struck[k]
}

// Posted is how many verbs a thread has posted since the fabric was made. A fault
// injected now counts from here: the k-th verb from now on has number k.
func (f *Fabric) Posted(thread int) uint64 {
	n := f.past[thread]
	for _, d := range f.cpus {
		if d == nil {
			continue
		}
		for _, p := range d.ports {
			if p.index == thread {
				n += p.verbs
			}
		}
	}
	return n
}

// TraceHash sums up every effect and every completion so far, in order, with
// their times: two runs are the same run when it is equal.
func (f *Fabric) TraceHash() uint64 { return f.trace.hash }

// Stopped lists the threads that a fault has stopped, in that order.
func (f *Fabric) Stopped() []int { return slices.Clone(f.stopped) }

// Close disconnects. Ports must be closed first, but for those of stopped threads.
func (f *Fabric) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	open := 0
	var errs []error
	for p := range f.ports {
		if !p.dead {
			open++
			continue
		}
		delete(f.ports, p)
		errs = append(errs, p.unmap())
	}
	if open > 0 {
		errs = append(errs, fmt.Errorf("sim: %d ports are still open", open))
	}
	return errors.Join(append(errs, f.trace.flush())...)
}

// splitmix64 is the generator behind everything random here.
func splitmix64(s *uint64) uint64 {
	*s += 0x9e3779b97f4a7c15
	return mix64(*s)
}

func mix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
