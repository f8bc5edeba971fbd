package verbs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"txnode/rdma"
	"txnode/rdma/sim"
)

// ErrConfig is a configuration that cannot run; the text lists every fault.
var ErrConfig = errors.New("verbs: bad configuration")

// Config says what to run. The zero value of a field has a default.
type Config struct {
	Profile sim.Profile   // zero: sim.ConnectX6
	Op      rdma.Op       // OpRead, OpWrite, OpCAS or OpFAA
	Policy  rdma.QPPolicy // of queue pairs and doorbells
	Share   int           // threads per queue pair under MultiplexedQP; 0: 4
	Threads int           // on each compute blade, at most 1024; 0: 1
	Compute int           // compute blades; 0: 1
	Depth   int           // requests that a thread posts before it waits for all of them; 0: 8
	// PerDoorbell is how many of them ring one doorbell; 0: 1, as in SMART's
	// test_rdma, from which the published figures are: it posts each by itself.
	PerDoorbell int
	Size        int // bytes of a READ or WRITE; 0: 8
	// Throttle switches work request throttling on (SMART, section 4.2), with rdma.TunerSMART. Its
	// first decision takes 48 ms of virtual time.
	Throttle bool
	// ChangeNs is the interval at which the number of active threads changes, to a
	// random number from MinThreads to Threads; 0: never. SMART's table 1 has
	// MinThreads 36 of 96 and depth 64.
	ChangeNs   int64
	MinThreads int
	Blades     int    // memory blades; 0: 1
	Region     uint64 // bytes per blade that addresses are drawn from; 0: 1 GiB
	WarmNs     int64  // not measured; 0: 20 us, or 60 ms when throttled
	RunNs      int64  // measured; 0: 200 us, or 20 ms when throttled
	Seed       uint64
	// Record collects every verb, for a trace; nil: none.
	Record *sim.Recording
	// Canceled ends the run early when it returns true: it is asked before each batch; nil: never.
	Canceled func() bool
}

func (c *Config) defaults() {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.Threads, 1)
	def(&c.Compute, 1)
	def(&c.Depth, 8)
	def(&c.PerDoorbell, 1)
	def(&c.Size, 8)
	def(&c.Blades, 1)
	def(&c.Share, 4)
	if c.Profile == (sim.Profile{}) {
		c.Profile = sim.ConnectX6()
	}
	if c.Region == 0 {
		c.Region = 1 << 30
	}
	if c.WarmNs == 0 {
		c.WarmNs = 20_000
		if c.Throttle {
			c.WarmNs = 60_000_000
		}
	}
	if c.RunNs == 0 {
		c.RunNs = 200_000
		if c.Throttle {
			c.RunNs = 20_000_000
		}
	}
	if c.MinThreads == 0 || c.ChangeNs == 0 {
		c.MinThreads = c.Threads
	}
	if c.Op == rdma.OpCAS || c.Op == rdma.OpFAA {
		c.Size = 8
	}
}

// Validate lists everything that is wrong, after defaults.
func (c Config) Validate() error {
	c.defaults()
	var errs []error
	bad := func(ok bool, format string, a ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, a...)))
		}
	}
	bad(c.Op == rdma.OpRead || c.Op == rdma.OpWrite || c.Op == rdma.OpCAS || c.Op == rdma.OpFAA,
		"%v is not READ, WRITE, CAS or FAA", c.Op)
	bad(c.Threads > 0 && c.Threads <= 1024, "Threads is %d: from 1 to 1024 are possible", c.Threads)
	bad(c.Compute > 0 && c.Compute <= 64, "Compute is %d: from 1 to 64 are possible", c.Compute)
	bad(c.MinThreads > 0 && c.MinThreads <= c.Threads, "MinThreads is %d: from 1 to Threads (%d) are possible",
		c.MinThreads, c.Threads)
	bad(c.Depth > 0 && c.Depth <= 1<<12, "Depth is %d: from 1 to 4096 is possible", c.Depth)
	bad(c.PerDoorbell > 0, "PerDoorbell is %d: it must be positive", c.PerDoorbell)
	bad(c.Size > 0 && uint64(c.Size) <= min(c.Region, 1<<20), "Size is %d: from 1 to %d bytes are possible",
		c.Size, min(c.Region, 1<<20))
	bad(c.Blades > 0 && c.Blades <= 64, "Blades is %d: from 1 to 64 are possible", c.Blades)
	for i, t := range []int64{c.WarmNs, c.RunNs, c.ChangeNs} {
		bad(t >= 0, "%s is %v: it must not be negative", []string{"WarmNs", "RunNs", "ChangeNs"}[i], time.Duration(t))
	}
	errs = append(errs, c.Profile.Validate())
	return errors.Join(errs...)
}

// Result is what a run measured.
type Result struct {
	Verbs       uint64  `json:"verbs"`     // in the measured time
	Mops        float64 `json:"mops"`      // million verbs per second
	MiBps       float64 `json:"mib_per_s"` // of payload
	MeanNs      float64 `json:"mean_ns"`   // of a batch, from Post to the last completion
	P50Ns       int64   `json:"p50_ns"`
	P99Ns       int64   `json:"p99_ns"`
	Doorbells   uint64  `json:"doorbells"`
	CMax        int     `json:"c_max"` // work request credits of thread 0 at the end; 0: not throttled
	Connections int     `json:"connections"`
	Events      uint64  `json:"events"`    // of the simulator, the warm-up included
	AllVerbs    uint64  `json:"all_verbs"` // the warm-up included
	TraceHash   uint64  `json:"trace_hash"`
	RunNs       int64   `json:"run_ns"`   // virtual time that was measured
	Canceled    bool    `json:"canceled"` // by Config.Canceled, before the end: what was measured until then
}

// Run runs the benchmark. It is deterministic: equal configurations give equal results.
func Run(c Config) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	c.defaults()
	o := sim.Options{
		Profile: c.Profile, Seed: c.Seed, Threads: c.Threads, ThreadsPerBlade: c.Threads,
		Share: c.Share, Record: c.Record,
	}
	for range c.Blades {
		o.Blades = append(o.Blades, sim.BladeOptions{Size: c.Region, Key: 1})
	}
	f, err := sim.New(o)
	if err != nil {
		return Result{}, err
	}
	defer f.Close()
	b := bench{Config: c, start: f.Now() + c.WarmNs, end: f.Now() + c.WarmNs + c.RunNs}
	// All threads connect before one starts.
	var threads []*rdma.Thread
	var tuner *rdma.Tuner // of the process on a compute blade
	for i := range c.Threads * c.Compute {
		if i%c.Threads == 0 {
			tuner = rdma.NewTuner(rdma.TunerSMART)
		}
		t, err := rdma.NewThread(f, rdma.ThreadOptions{
			Index: i, Policy: c.Policy, Arena: 64 * (1 + (c.Size*c.Depth+63)/64),
			Techniques: rdma.Techniques{Doorbells: c.Policy == rdma.PerThreadDoorbell, Throttle: c.Throttle},
			Tuner:      tuner,
		})
		if err != nil {
			return Result{}, err
		}
		threads = append(threads, t)
	}
	errs := make([]error, len(threads))
	f.Run(len(threads), func(i int) { errs[i] = b.thread(threads[i]) })
	r := Result{
		Verbs: b.verbs, Doorbells: b.doorbells, CMax: threads[0].Limits().WorkRequests, TraceHash: f.TraceHash(),
		RunNs: max(b.end-b.start, 0), Canceled: b.canceled,
	}
	s := f.Stats()
	r.Events, r.AllVerbs, r.Connections = s.Events, s.Verbs, s.Connections
	for i, t := range threads {
		errs[i] = errors.Join(errs[i], t.Close())
	}
	if r.RunNs > 0 {
		r.Mops = float64(r.Verbs) * 1000 / float64(r.RunNs)
	}
	r.MiBps = r.Mops * 1e6 * float64(c.Size) / (1 << 20)
	if n := len(b.latencies); n > 0 {
		slices.Sort(b.latencies)
		sum := 0.0
		for _, l := range b.latencies {
			sum += float64(l)
		}
		r.MeanNs, r.P50Ns, r.P99Ns = sum/float64(n), b.latencies[n/2], b.latencies[n*99/100]
	}
	if err := errors.Join(errs...); err != nil || r.Verbs > 0 || r.Canceled {
		return r, err
	}
	return r, fmt.Errorf("%w: no request has ended in %v: measure for longer", ErrConfig, time.Duration(r.RunNs))
}

// bench is a run in progress.
type bench struct {
	Config
	start, end int64
	verbs      uint64
	doorbells  uint64
	canceled   bool
	latencies  []int64 // a sample when there are many
	seen       uint64
}

// piece is how many requests a throttled thread posts at a time: the smallest
// number of credits, so that no batch is larger than what it has.
const piece = 4

func (b *bench) thread(t *rdma.Thread) error {
	c := t.Plain()
	var batch rdma.Batch
	span := (b.Region - uint64(b.Size)) / 8
	step := b.PerDoorbell
	if b.Throttle {
		step = min(step, piece)
	}
	for now := t.Now(); now < b.end; now = t.Now() {
		if b.Canceled != nil && b.Canceled() {
			b.end, b.canceled = now, true // for all threads
			break
		}
		if b.ChangeNs > 0 && !b.isActive(t.Index(), now) {
			c.Sleep(b.ChangeNs - now%b.ChangeNs)
			continue
		}
		batch.Reset()
		for i := range b.Depth {
			a := rdma.RemoteAddr{Key: 1, Off: t.Rand() % (span + 1) * 8}
			if b.Blades > 1 {
				a.Blade = rdma.BladeID(t.Rand() % uint64(b.Blades))
			}
			switch b.Op {
			case rdma.OpRead:
				batch.Read(a, uint32(i*b.Size), uint32(b.Size))
			case rdma.OpWrite:
				batch.Write(a, uint32(i*b.Size), uint32(b.Size))
			case rdma.OpCAS:
				batch.CAS(a, 0, 1)
			default:
				batch.FAA(a, 1)
			}
			if i%step == step-1 {
				c.Post(&batch)
			}
		}
		if err := c.Do(&batch); err != nil {
			return err
		}
		if done := t.Now(); done >= b.start && done < b.end {
			b.verbs += uint64(b.Depth)
			b.doorbells += uint64((b.Depth + step - 1) / step)
			b.sample(done - now)
		}
	}
	return nil
}

// isActive says whether a thread is one of those that run in this interval.
func (b *bench) isActive(thread int, now int64) bool {
	x := uint64(now/b.ChangeNs)*0x9e3779b97f4a7c15 + b.Seed
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return thread%b.Threads < b.MinThreads+int((x^x>>31)%uint64(b.Threads-b.MinThreads+1))
}

// sample keeps up to a million latencies: all, then every second one, and so on.
func (b *bench) sample(ns int64) {
	stride := uint64(1 + len(b.latencies)>>20)
	if b.seen++; b.seen%stride == 0 {
		b.latencies = append(b.latencies, ns)
	}
}
