package sim

// device is a compute blade: its processors and its RNIC.
type device struct {
	f     *Fabric
	ports []*port

	index int // counted from 1

	pauses []window // of its threads
	// troubles are when it connects to nothing.
	troubles []window
	clocks   []pace // of its clock, from when on each; nil: it is that of the fabric
	killed   bool   // since the last port was opened

	// RNIC. Times are when a pipeline is free, ps.
	op, rx, tx  int64
	out         int // requests between doorbell and completion
	opPs        int64
	writePs     int64 // more for a WRITE
	fwd, back   int64 // latency to the memory, and from there to the completion
	fetch       int64
	jitter      uint64 // ps
	atomicPs    int64  // between two atomics
	addrPs      int64  // on one word
	atomicLat   int64  // latency more than a READ's
	noise       int64  // of processor times, in 1/1024
	miss        float64
	cache, span float64

	// Processors.
	active int
	cores  []int // active threads of each, with Profile.Cores
	// of a thread that has its core to itself, of one that shares it; the same on the socket that
	// is far from the RNIC
	costs [4]costs

	// Doorbell registers.
	stale     bool // threads have come or gone since they were mapped
	registers []*spinlock
	sharers   map[sharedKey]*shared
	qps       int   // connected, shared ones counted once
	qpPs      int64 // what a context cache that is too small adds to each request
}

// costs are processor times of a thread at the present number of active threads, ps.
type costs struct {
	slow                               float64 // the factor
	far                                bool
	batch, post, doorbell, reap, swtch int64
	wait, yield, poll                  int64 // of the Program
}

// Which of device.costs.
const (
	costShared = 1 << iota
	costFar
)

func (f *Fabric) device(n int) *device {
	for len(f.cpus) <= n {
		f.cpus = append(f.cpus, nil)
	}
	if f.cpus[n] == nil {
		pr := &f.opt.Profile
		d := &device{
			f: f, index: n + 1, opPs: ps(1000 / pr.OpsPerUs), fetch: ps(pr.FetchNs), jitter: uint64(ps(pr.JitterNs)),
			noise:    int64(1024 * pr.CPUNoise),
			atomicPs: ps(1000 / pr.AtomicsPerUs), addrPs: ps(pr.AtomicAddrNs), atomicLat: ps(pr.AtomicNs),
			miss: pr.WQEMissNs * 1000, cache: float64(pr.WQECache), span: float64(pr.WQESpan),
			sharers: map[sharedKey]*shared{}, cores: make([]int, pr.Cores),
		}
		if pr.WritesPerUs > 0 {
			d.writePs = max(ps(1000/pr.WritesPerUs)-d.opPs, 0)
		}
		// Half of the round trip each way, after what the pipelines and the jitter take on average.
		rest := ps(pr.RoundTripNs) - 2*d.opPs - ps(pr.JitterNs)/2
		d.fwd = max(rest/2, 0)
		d.back = max(rest-rest/2, 0)
		d.charge()
		f.cpus[n] = d
	}
	return f.cpus[n]
}

// activate adds by to the number of active threads, of which p is one, or was, and
// scales the costs.
func (d *device) activate(p *port, by int) {
	d.active += by
	d.charge()
	if len(d.cores) == 0 {
		return
	}
	core := p.local % len(d.cores)
	d.cores[core] += by
	for _, o := range d.ports {
		if o.local%len(d.cores) == core {
			o.place()
		}
	}
	p.place()
}

// charge scales the costs to the number of active threads.
func (d *device) charge() {
	pr, prog := &d.f.opt.Profile, &d.f.opt.Program
	for i := range d.costs {
		c := &d.costs[i]
		// conversion: not fused, the same on every machine
		c.slow = 1 + float64(pr.CPUSlope*float64(max(d.active-pr.CPUFree, 0)))
		doorbell, reap := pr.DoorbellNs, pr.ReapNs
		if i&costShared != 0 {
			c.slow *= 1 + pr.SiblingSlow
		}
		if i&costFar != 0 {
			c.far = true
			doorbell += pr.FarDoorbellNs
			reap += pr.FarReapNs
		}
		s := c.slow
		c.batch, c.post, c.doorbell = ps(s*pr.BatchNs), ps(s*pr.PostNs), ps(s*doorbell)
		c.reap, c.swtch = ps(s*reap), ps(s*pr.SwitchNs)
		c.wait, c.yield, c.poll = ps(s*prog.WaitNs), ps(s*prog.YieldNs), ps(s*prog.PollNs)
	}
}

// place finds the costs of a thread: thread i of a compute blade is bound to its
// processor i, the first Cores of which are of different cores, those with odd numbers
// on the socket that is far from the RNIC.
func (p *port) place() {
	i := 0
	if n := len(p.d.cores); n > 0 && p.d.cores[p.local%n] > 1 {
		i |= costShared
	}
	if p.local%2 == 1 {
		i |= costFar
	}
	p.c = &p.d.costs[i]
}

// missPs is what WQE cache misses add to each request.
func (d *device) missPs() int64 {
	over := float64(d.out) - d.cache
	if over <= 0 {
		return 0
	}
	return int64(d.miss * min(over/d.span, 1))
}

// contextMiss is what n connections add to each request of a device.
func (f *Fabric) contextMiss(n int) int64 {
	pr := &f.opt.Profile
	if pr.QPCache == 0 || n <= pr.QPCache {
		return 0
	}
	return int64(pr.QPMissNs * 1000 * (1 - float64(pr.QPCache)/float64(n)))
}
