package sim

import "txnode/rdma"

// Post charges the processor and rings a doorbell for each blade.
func (p *port) Post(b *rdma.Batch, first int) {
	f := p.f
	pr := p.enter()
	if p.held(pr) {
		pr.sync()
	}
	if !p.active && pr.yield != nil && !p.dead {
		p.activate(pr)
	}
	if p.d.stale {
		p.d.assign()
	}
	wrs := b.WRs()[first:]
	if p.dead {
		p.refuse(b, first, len(wrs))
		return
	}
	last := len(wrs) // what is behind is not posted: the thread stops
	if p.verbs+uint64(len(wrs)) >= p.next {
		last = p.stopsAt(len(wrs))
	}
	coro := 0
	if f.opt.Record != nil || p.tasks != nil {
		coro = b.Coro()
	}
	pr.clock += p.noisy(p.c.batch + p.c.post*int64(len(wrs)))
	for i := range wrs[:last] {
		w := &wrs[i]
		if int(w.Blade) >= len(p.qps) {
			p.verbs++
			b.Complete(first+i, rdma.StatusNoBlade)
			continue
		}
		q := &p.qps[w.Blade]
		g := q.open
		if g != nil && (len(g.verbs) == f.opt.Profile.QueueDepth || f.opt.Program.PerRecord && g.apart(w)) {
			pr.clock += p.c.batch
			g = nil
		}
		if g == nil {
			g = f.groups.get()
			g.p, g.q, g.b, g.coro, g.refs = p, q, b, coro, 1
			q.open = g
			p.opened = append(p.opened, g)
		}
		v := g.add(w, first+i)
		if f.opt.Program.Bucket > 0 && pr.yield != nil {
			v.size = p.counts(w)
		}
		p.verbs++
		if p.verbs >= p.next {
			p.strikeVerb(v)
		}
	}
	// Ringing may reap, and what is reaped may post; it never comes back here
	// before this call has returned, because coroutines only run from Thread.Run.
	for _, g := range p.opened {
		g.q.open = nil
		p.ring(pr, g)
	}
	p.opened = p.opened[:0]
	if p.tasks != nil && coro >= 0 {
		p.tasks.post(coro, wrs)
	}
	if p.doomed {
		p.die(pr)
		p.refuse(b, first+last, len(wrs)-last)
	}
}

// ring waits for room on the queue pair, takes the locks, and rings.
func (p *port) ring(pr *proc, g *group) {
	f, q, n := p.f, g.q, len(g.verbs)
	for q.out > 0 && q.out+n > f.opt.Profile.QueueDepth {
		if p.cq.n == 0 { // else what is there makes room, and nothing else may be under way
			pr.await(p, forever)
		}
		if p.tasks != nil && pr.yield != nil {
			p.pollTasks(pr)
		} else {
			p.reap(pr)
		}
	}
	q.out += n
	p.out += n
	f.verbs += uint64(n)
	if p.tasks != nil {
		p.tasks.posted[q.blade.id] += uint64(n)
	}
	if pr.yield != nil && (q.bell != nil || q.shared != nil) {
		p.ringLocked(pr, g)
		return
	}
	pr.clock += p.c.doorbell
	p.announce(pr, g)
}

// ringLocked is ring on a queue pair or register that other threads use too.
// The lock of the queue pair is held while the thread waits for the register.
func (p *port) ringLocked(pr *proc, g *group) {
	q := g.q
	if s := q.shared; s != nil {
		s.lock.acquire(pr, p.c)
		defer func() { s.lock.releaseAt(max(pr.clock, p.f.now)) }()
		pr.clock += p.noisy(s.perWR * int64(len(g.verbs)))
	}
	if bell := q.bell; bell != nil { // the mapping may change while this thread waits
		bell.acquire(pr, p.c)
		pr.clock += p.c.doorbell
		bell.releaseAt(pr.clock)
	} else {
		pr.clock += p.c.doorbell
	}
	p.announce(pr, g)
}

// announce makes the doorbell an event, or when nothing can happen before it, now.
func (p *port) announce(pr *proc, g *group) {
	f := p.f
	g.refs++
	g.post = pr.clock
	if f.queue.next() > pr.clock {
		f.turn(pr.clock)
		f.submit(g)
		return
	}
	f.push(pr.clock, evSubmit, g.id, 0)
}

// noisy varies a processor time by the profile's CPUNoise. Without it threads
// would keep the distances that they happen to have, and locks would be
// contended always or never.
func (p *port) noisy(t int64) int64 {
	return t + t*(int64(p.rand()>>48)-1<<15)>>15*p.d.noise>>10
}
