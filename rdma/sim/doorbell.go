package sim

import (
	"cmp"
	"slices"

	"txnode/rdma"
)

// sharedKey names a shared queue pair of a device.
type sharedKey struct {
	policy rdma.QPPolicy
	blade  int
	group  int
}

// group is which of a blade's queue pairs the port uses, under its policy.
func (p *port) group() int {
	switch p.policy {
	case rdma.SharedQP:
		return 0
	case rdma.MultiplexedQP:
		return p.local / p.f.opt.Share
	default:
		return p.local
	}
}

// numbering tells the queue pairs of one policy apart: the numbers of those of
// one blade, from first on.
type numbering struct {
	groups []int // sorted; nil: a group is its own number
	first  int
	n      int
}

func (m *numbering) of(group int) int {
	if m.groups == nil {
		return m.first + group
	}
	i, _ := slices.BinarySearch(m.groups, group)
	return m.first + i
}

// assign gives each queue pair of the device its doorbell register, as the driver
// does: queue pairs in the order of creation, blade after blade, the first
// LowLatency ones on a register of their own and the others round robin on the
// rest. PerThreadDoorbell knows this order and picks a register for each thread.
//
// Threads that no body of Run has used yet do not count, unless Options.Threads
// says how many there are: they are for setting up.
//
// A register that one thread alone uses needs no lock that could be contended.
func (d *device) assign() {
	if !d.stale {
		return
	}
	d.stale = false
	var ports []*port
	for _, p := range d.ports {
		if p.worked || d.f.opt.Threads > 0 {
			ports = append(ports, p)
		}
	}
	slices.SortStableFunc(ports, func(a, b *port) int { return cmp.Compare(a.index, b.index) })
	perBlade := d.number(ports)
	d.connect(perBlade, ports)
	for _, p := range ports {
		if p.policy == rdma.SharedQP || p.policy == rdma.MultiplexedQP {
			d.share(p)
		}
	}
}

// number numbers the queue pairs of one blade, by policy.
func (d *device) number(ports []*port) (out [4]numbering) {
	next, threads, share := 0, d.f.opt.Threads, d.f.opt.Share
	for _, k := range []rdma.QPPolicy{rdma.SharedQP, rdma.MultiplexedQP, rdma.PerThreadQP, rdma.PerThreadDoorbell} {
		m := &out[k]
		m.first = next
		most := 0
		for _, p := range ports {
			if p.policy != k {
				continue
			}
			m.groups = append(m.groups, p.group())
			most = max(most, p.group()+1)
		}
		m.groups = slices.Compact(m.groups)
		m.n = len(m.groups)
		if threads > 0 && m.n > 0 {
			m.groups = nil
			switch m.n = most; k {
			case rdma.SharedQP:
			case rdma.MultiplexedQP:
				m.n = max(most, (threads+share-1)/share)
			default:
				m.n = max(most, threads)
			}
		}
		next += m.n
	}
	return out
}

// connect binds the queue pairs to registers.
func (d *device) connect(perBlade [4]numbering, ports []*port) {
	f, pr := d.f, &d.f.opt.Profile
	driver := perBlade[rdma.PerThreadDoorbell].first // queue pairs of a blade that are left to the driver
	type user struct{ register, thread int }
	users := map[user]bool{}
	perRegister := map[int]int{}
	seen := map[int]bool{}
	for _, p := range ports {
		for b := range p.qps {
			q := &p.qps[b]
			m := &perBlade[p.policy]
			q.number = m.of(p.group()) + b*driver
			if q.register = q.number; q.number >= pr.LowLatency {
				q.register = pr.LowLatency + (q.number-pr.LowLatency)%(pr.Doorbells-pr.LowLatency)
			}
			if p.policy == rdma.PerThreadDoorbell {
				at := m.of(p.local) - m.first
				q.number = -1 - at - b*m.n
				q.register = pr.Doorbells + at%pr.ThreadDoorbell
			}
			seen[q.number] = true
			if u := (user{q.register, p.index}); !users[u] {
				users[u] = true
				perRegister[q.register]++
			}
		}
	}
	for _, p := range ports {
		for b := range p.qps {
			q := &p.qps[b]
			q.bell = nil
			if perRegister[q.register] > 1 {
				q.bell = d.registerLock(q.register)
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
}

// share finds the queue pairs that a port shares with others.
func (d *device) share(p *port) {
	for b := range p.qps {
		q := &p.qps[b]
		if q.shared != nil {
			continue
		}
		k := sharedKey{p.policy, b, p.group()}
		if d.sharers[k] == nil {
			d.sharers[k] = &shared{lock: d.newLock(0, 0, 0, 0)}
		}
		q.shared = d.sharers[k]
		if p.active {
			q.shared.resize(d, 1)
		}
	}
}

func (d *device) registerLock(r int) *spinlock {
	for len(d.registers) <= r {
		d.registers = append(d.registers, nil)
	}
	if d.registers[r] == nil {
		pr := &d.f.opt.Profile
		d.registers[r] = d.newLock(pr.HandoverNs, pr.HandoverEachNs, pr.FarHandoverNs, pr.TakeoverNs)
	}
	return d.registers[r]
}
