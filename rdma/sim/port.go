package sim

import (
	"fmt"
	"math"
	"slices"

	"txnode/rdma"
)

// port is the transport of one thread.
type port struct {
	f      *Fabric
	d      *device
	c      *costs
	index  int // over all compute blades
	local  int // on its own
	policy rdma.QPPolicy
	arena  []byte
	mem    []byte // the mapping that arena is part of
	qps    []queuePair
	rng    uint64
	proc   *proc // that used it last
	cq     ring  // groups that completed
	out    int   // requests not reaped
	opened []*group

	worked bool  // a body of Run has used it
	active bool  // counts as a thread that computes
	worker *proc // in which it does
	dead   bool  // stopped by a fault: its verbs reach nothing
	gone   bool  // and its body was unwound
	deadAt int64 // when it was stopped
	closed bool

	tasks  *tasks // nil: package rdma schedules
	verbs  uint64 // posted since the port was made
	faults []armed
	next   uint64 // number of the verb that the next fault is about
	doomed bool   // stops at the end of this Post
}

// queuePair is the connection of a port to a blade. A queue pair that threads
// share shares its lock and its register; order and errors are kept for each
// thread as if it were its own.
type queuePair struct {
	blade    *blade
	number   int // in the order of creation
	register int
	bell     *spinlock // nil: no other thread uses the register
	shared   *shared   // nil: no other thread uses the queue pair
	open     *group    // being filled by Post
	out      int       // requests not reaped

	conn    uint32 // blade epoch at which it was connected
	inc     uint32 // times it was reset
	seq     uint64 // of the last request
	failAt  uint64 // requests from this number on fail
	arrive  int64  // of the last request
	ordered int64  // effect of the last WRITE or atomic
	rdDone  int64  // completion of the last READ or atomic
	done    int64  // completion of the last group
	late    []lateWrite
}

// lateWrite names a WRITE that has arrived and is not placed.
type lateWrite struct {
	g *group
	i int
}

// maxThreads bounds the index of a thread, over all compute blades.
const maxThreads = 1 << 20

// NewPort connects a thread to all blades.
func (f *Fabric) NewPort(cfg rdma.PortConfig) (rdma.Port, error) {
	if cfg.Arena <= 0 || cfg.Arena > math.MaxInt32 {
		return nil, fmt.Errorf("%w: thread %d with an arena of %d bytes: from 1 to 2^31-1 are possible",
			ErrOptions, cfg.Index, cfg.Arena)
	}
	if cfg.Index < 0 || cfg.Index >= maxThreads {
		return nil, fmt.Errorf("%w: thread %d: from 0 to %d are possible", ErrOptions, cfg.Index, maxThreads-1)
	}
	tpb := f.opt.ThreadsPerBlade
	if tpb == 0 {
		tpb = maxThreads
	}
	d := f.device(cfg.Index / tpb)
	if f.opt.Remote {
		if err := d.troubled(); err != nil {
			return nil, err
		}
	}
	mem, err := newArena((cfg.Arena + 63) &^ 63)
	if err != nil {
		return nil, err
	}
	p := &port{
		f: f, d: d, index: cfg.Index, local: cfg.Index % tpb, policy: min(cfg.Policy, rdma.SharedQP),
		mem: mem, arena: mem, qps: make([]queuePair, len(f.blades)), next: math.MaxUint64,
		rng: mix64(f.opt.Seed ^ mix64(uint64(cfg.Index)^0x5851f42d4c957f2d)),
	}
	p.place()
	for i := range p.qps {
		p.qps[i] = queuePair{blade: f.blades[i], failAt: math.MaxUint64, conn: f.blades[i].epoch}
	}
	if f.opt.Program.Force > 0 {
		p.tasks = newTasks(len(p.qps))
	}
	f.mu.Lock()
	f.ports[p] = struct{}{}
	f.mu.Unlock()
	p.d.ports = append(p.d.ports, p)
	p.d.stale, p.d.killed = true, false
	f.arm(p)
	return p, nil
}

// reap takes what has completed off the completion queue.
func (p *port) reap(pr *proc) {
	for p.cq.n > 0 {
		g := p.cq.pop()
		pr.clock += p.c.reap
		p.take(g)
		p.deliver(pr, g)
	}
}

// take makes room for other requests: the completion of these has been polled.
func (p *port) take(g *group) {
	g.q.out -= len(g.verbs)
	p.out -= len(g.verbs)
}

// deliver tells the owner of a group of its completion.
func (p *port) deliver(pr *proc, g *group) {
	wrs := g.b.WRs()
	for i := range g.verbs {
		v := &g.verbs[i]
		if v.wr.Status == rdma.StatusOK {
			wrs[v.idx].Result = v.wr.Result
		}
		g.b.Complete(int(v.idx), v.wr.Status)
	}
	if p.f.opt.Record != nil {
		p.f.opt.Record.add(p.f, g, pr.clock)
	}
	p.f.drop(g, 1)
}

// Poll reaps, and charges for the switch of coroutines that surrounds it. A
// thread too far ahead of the events lets them catch up.
func (p *port) Poll() {
	pr := p.enter()
	if p.held(pr) {
		pr.sync()
	}
	if p.tasks != nil && pr.yield != nil {
		p.turn(pr)
		return
	}
	if pr.clock += p.c.swtch; p.ahead(pr) {
		pr.sync()
	}
	if p.cq.n > 0 {
		p.reap(pr)
	}
}

// ahead says that a body is too far ahead of the events.
func (p *port) ahead(pr *proc) bool { return pr.clock-p.f.now > p.f.look }

// Wait reaps, waiting if need be.
func (p *port) Wait(until int64) {
	pr := p.enter()
	if p.held(pr) {
		pr.sync()
	}
	end := p.d.when(picos(until))
	if p.tasks != nil && pr.yield != nil {
		p.waitTasks(pr, end)
		return
	}
	if p.cq.n == 0 {
		if pr.clock >= end {
			pr.sync()
		} else {
			p.rest(pr, end)
			pr.await(p, end)
		}
	}
	p.reap(pr)
}

// picos converts a time of package rdma.
func picos(until int64) int64 {
	if until < math.MaxInt64/1000 {
		return max(until*1000, 0)
	}
	return forever
}

// rest counts a thread that is to wait for long as one that does not compute.
func (p *port) rest(pr *proc, end int64) {
	if p.active && p.out == 0 && end-pr.clock > p.f.idle {
		p.deactivate()
	}
}

// Now is the clock of the thread.
func (p *port) Now() int64 { return p.d.shows(p.f.proc().clock) / 1000 }

// compute is the number of the port's compute blade, from 1.
func (p *port) compute() int { return p.d.index }

// Arena is the registered memory.
func (p *port) Arena() []byte { return p.arena }

// Reset connects the queue pair again. What was sent on the old connection and
// has not arrived never will.
func (p *port) Reset(b rdma.BladeID) error {
	if int(b) >= len(p.qps) {
		return &rdma.VerbError{Blade: b, Status: rdma.StatusNoBlade}
	}
	pr := p.enter()
	if p.held(pr) {
		pr.sync()
	}
	if p.dead {
		return &rdma.VerbError{Blade: b, Status: rdma.StatusNoBlade}
	}
	if err := p.f.reach(b, p.index, p.compute()); err != nil {
		return err
	}
	q := &p.qps[b]
	p.f.placeAll(q)
	q.failAt = math.MaxUint64
	q.inc++
	q.conn = q.blade.epoch
	return nil
}

// Close releases the arena.
func (p *port) Close() error {
	if p.closed {
		return nil
	}
	if p.out > 0 && !p.dead {
		return fmt.Errorf("sim: thread %d still has %d requests outstanding", p.index, p.out)
	}
	if p.dead {
		return nil // the fabric still delivers what is under way
	}
	p.f.mu.Lock()
	delete(p.f.ports, p)
	p.f.mu.Unlock()
	return p.unmap()
}

func (p *port) unmap() error {
	p.closed = true
	p.f.past[p.index] += p.verbs
	for i := range p.qps {
		p.f.placeAll(&p.qps[i])
	}
	if i := slices.Index(p.d.ports, p); i >= 0 {
		p.d.ports = slices.Delete(p.d.ports, i, i+1)
	}
	p.d.stale = true
	p.deactivate()
	m := p.mem
	p.mem, p.arena = nil, nil
	return freeArena(m)
}

// enter returns whose code calls, and remembers it. It unwinds a stopped body.
func (p *port) enter() *proc {
	pr := p.f.proc()
	if p.dead && pr.yield != nil { // stopped before this body used it
		pr.dead, p.gone = true, true
	}
	if pr.dead && pr.yield != nil {
		panic(killed{})
	}
	p.proc = pr
	return pr
}

// activate counts the thread among those that compute.
func (p *port) activate(pr *proc) {
	p.active, p.worker = true, pr
	if !p.worked {
		p.worked, p.d.stale = true, true
	}
	pr.ports = append(pr.ports, p)
	p.d.activate(p, 1)
	for i := range p.qps {
		if s := p.qps[i].shared; s != nil {
			s.resize(p.d, 1)
		}
	}
}

func (p *port) deactivate() {
	if !p.active {
		return
	}
	p.active = false
	if i := slices.Index(p.worker.ports, p); i >= 0 {
		p.worker.ports = slices.Delete(p.worker.ports, i, i+1)
	}
	p.d.activate(p, -1)
	for i := range p.qps {
		if s := p.qps[i].shared; s != nil {
			s.resize(p.d, -1)
		}
	}
}

// rand returns 64 bits of the port's own stream.
func (p *port) rand() uint64 { return splitmix64(&p.rng) }
