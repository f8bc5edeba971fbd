package sim

// device is a compute blade: its processors and its RNIC.
type device struct {
	f     *Fabric
	ports []*port

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

	// Processors. Costs at the present number of active threads, ps.
	active                             int
	slow                               float64 // the factor
	batch, post, doorbell, reap, swtch int64
	wait, yield, poll                  int64 // of the Program

	// Doorbell registers.
	stale     bool // threads have come or gone since they were mapped
	registers []*spinlock
	sharers   map[sharedKey]*shared
	qps       int   // connected, shared ones counted once
	qpPs      int64 // what a context cache that is too small adds to each request
}

func (f *Fabric) device(n int) *device {
	for len(f.cpus) <= n {
		f.cpus = append(f.cpus, nil)
	}
	if f.cpus[n] == nil {
		pr := &f.opt.Profile
		d := &device{
			f: f, opPs: ps(1000 / pr.OpsPerUs), fetch: ps(pr.FetchNs), jitter: uint64(ps(pr.JitterNs)), noise: int64(1024 * pr.CPUNoise),
			atomicPs: ps(1000 / pr.AtomicsPerUs), addrPs: ps(pr.AtomicAddrNs), atomicLat: ps(pr.AtomicNs),
			miss: pr.WQEMissNs * 1000, cache: float64(pr.WQECache), span: float64(pr.WQESpan),
			sharers: map[sharedKey]*shared{},
		}
		if pr.WritesPerUs > 0 {
			d.writePs = max(ps(1000/pr.WritesPerUs)-d.opPs, 0)
		}
		// Half of the round trip each way, after what the pipelines and the jitter take on average.
		rest := ps(pr.RoundTripNs) - 2*d.opPs - ps(pr.JitterNs)/2
		d.fwd = max(rest/2, 0)
		d.back = max(rest-rest/2, 0)
		d.activate(0)
		f.cpus[n] = d
	}
	return f.cpus[n]
}

// activate adds by to the number of active threads and scales the costs.
func (d *device) activate(by int) {
	d.active += by
	pr := &d.f.opt.Profile
	d.slow = 1 + float64(pr.CPUSlope*float64(max(d.active-pr.CPUFree, 0))) // conversion: not fused, the same on every machine
	s := d.slow
	d.batch, d.post, d.doorbell = ps(s*pr.BatchNs), ps(s*pr.PostNs), ps(s*pr.DoorbellNs)
	d.reap, d.swtch = ps(s*pr.ReapNs), ps(s*pr.SwitchNs)
	prog := &d.f.opt.Program
	d.wait, d.yield, d.poll = ps(s*prog.WaitNs), ps(s*prog.YieldNs), ps(s*prog.PollNs)
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
