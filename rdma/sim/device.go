package sim

import (
	"cmp"
	"slices"

	"txnode/rdma"
)

// device is a compute blade: its processors and its RNIC.
type device struct {
	f     *Fabric
	ports []*port

	// RNIC. Times are when a pipeline is free, ps.
	op, rx, tx  int64
	out         int // requests between doorbell and completion
	opPs        int64
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

	// Doorbell registers.
	stale     bool // ports have come or gone since they were mapped
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
}

// missPs is what WQE cache misses add to each request.
func (d *device) missPs() int64 {
	over := float64(d.out) - d.cache
	if over <= 0 {
		return 0
	}
	return int64(d.miss * min(over/d.span, 1))
}

// assign gives each queue pair of the device its doorbell register, as the driver
// does: queue pairs in the order of creation, blade after blade, the first
// LowLatency ones on a register of their own and the others round robin on the
// rest. PerThreadDoorbell knows this order and picks a register for each thread.
//
// A register that one thread alone uses needs no lock that could be contended.
func (d *device) assign() {
	if !d.stale {
		return
	}
	d.stale = false
	f, pr := d.f, &d.f.opt.Profile
	slices.SortStableFunc(d.ports, func(a, b *port) int { return cmp.Compare(a.index, b.index) })

	threads := f.opt.Threads
	var kinds [4]bool
	for _, p := range d.ports {
		threads = max(threads, p.local+1)
		kinds[p.policy] = true
	}
	// Queue pairs of one blade: shared, multiplexed, per thread.
	var first [4]int
	n := 0
	for _, k := range []struct {
		policy rdma.QPPolicy
		n      int
	}{{rdma.SharedQP, 1}, {rdma.MultiplexedQP, (threads + f.opt.Share - 1) / f.opt.Share}, {rdma.PerThreadQP, threads}} {
		first[k.policy] = n
		if kinds[k.policy] {
			n += k.n
		}
	}
	type user struct{ register, thread int }
	users := map[user]bool{}
	perRegister := map[int]int{}
	seen := map[int]bool{}
	for _, p := range d.ports {
		for b := range p.qps {
			q := &p.qps[b]
			q.number, q.register = p.local, p.local%pr.ThreadDoorbell
			switch p.policy {
			case rdma.PerThreadDoorbell:
				q.number = -1 - (p.local + b*threads)
				q.register += pr.Doorbells
			case rdma.PerThreadQP:
			case rdma.MultiplexedQP:
				q.number = p.local / f.opt.Share
			default:
				q.number = 0
			}
			if q.number >= 0 {
				q.number += first[p.policy] + b*n
				q.register = q.number
				if q.number >= pr.LowLatency {
					q.register = pr.LowLatency + (q.number-pr.LowLatency)%(pr.Doorbells-pr.LowLatency)
				}
			}
			seen[q.number] = true
			if u := (user{q.register, p.local}); !users[u] {
				users[u] = true
				perRegister[q.register]++
			}
		}
	}
	d.qps = len(seen)
	d.qpPs = f.contextMiss(d.qps)
	total := 0
	for _, c := range f.cpus {
		if c != nil {
			total += c.qps
		}
	}
	for _, b := range f.blades {
		b.qpPs = f.contextMiss(total / len(f.blades))
	}
	for _, p := range d.ports {
		for b := range p.qps {
			q := &p.qps[b]
			q.bell = nil
			if perRegister[q.register] > 1 {
				q.bell = d.registerLock(q.register)
			}
			if p.policy != rdma.SharedQP && p.policy != rdma.MultiplexedQP || q.shared != nil {
				continue
			}
			k := sharedKey{p.policy, b, 0}
			if p.policy == rdma.MultiplexedQP {
				k.group = p.local / f.opt.Share
			}
			s := d.sharers[k]
			if s == nil {
				s = &shared{lock: d.newLock(0, 0)}
				d.sharers[k] = s
			}
			q.shared = s
			if p.active {
				s.resize(d, 1)
			}
		}
	}
}

// sharedKey names a shared queue pair of a device.
type sharedKey struct {
	policy rdma.QPPolicy
	blade  int
	group  int
}

// contextMiss is what n connections add to each request of a device.
func (f *Fabric) contextMiss(n int) int64 {
	pr := &f.opt.Profile
	if pr.QPCache == 0 || n <= pr.QPCache {
		return 0
	}
	return int64(pr.QPMissNs * 1000 * (1 - float64(pr.QPCache)/float64(n)))
}

func (d *device) registerLock(r int) *spinlock {
	for len(d.registers) <= r {
		d.registers = append(d.registers, nil)
	}
	if d.registers[r] == nil {
		pr := &d.f.opt.Profile
		d.registers[r] = d.newLock(pr.HandoverNs, pr.HandoverEachNs)
	}
	return d.registers[r]
}
