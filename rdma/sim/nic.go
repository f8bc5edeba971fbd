package sim

import "txnode/rdma"

// course is what the requests of one doorbell have in common on their way.
type course struct {
	d         *device
	bl        *blade
	now       int64
	op        int64 // each takes this long in the requester's pipeline
	remote    int64 // and in the responder's
	fwd, back int64 // latency there and back
	x         float64
}

// submit is the doorbell reaching the device: it takes every request of the
// group through the pipelines and decides when it takes effect and when it
// completes. Pipelines are entered in the order of doorbells.
func (f *Fabric) submit(g *group) {
	p, q := g.p, g.q
	d, bl := p.d, q.blade
	if p.dead && g.post > p.deadAt {
		f.drop(g, 2) // its body had run ahead of the time at which it was stopped
		return
	}
	d.out += len(g.verbs)
	c := course{d: d, bl: bl, now: f.now, op: d.opPs + d.missPs() + d.qpPs, x: 1}
	if len(bl.slow) > 0 {
		if c.x = bl.factor(f.now); c.x > 1 {
			f.struck[FaultSlow]++
		}
	}
	c.remote = scale(d.opPs+bl.qpPs, c.x)
	c.fwd, c.back = scale(d.fwd, c.x), scale(d.back, c.x)
	if len(g.verbs) > 1 || q.done > f.now {
		c.fwd += d.fetch // BlueFlame: a single WQE on an idle queue pair comes with its doorbell
	}
	for i := range g.verbs {
		v := &g.verbs[i]
		q.seq++
		v.seq, v.conn = q.seq, q.inc
		if f.turnedAway(p, q, v, &c) {
			continue
		}
		r := p.rand()
		at, reply := c.pipelines(&f.opt.Profile, v)
		if f.arrives(p, q, v, &c, at, r) {
			f.schedule(g, i, r>>16, c.back+reply)
		}
	}
	g.refs++
	g.done = q.done
	f.push(g.done, evComplete, g.id, 0)
	f.drop(g, 1)
}

// turnedAway ends a request that is never sent, or that the blade refuses
// whatever its memory holds.
func (f *Fabric) turnedAway(p *port, q *queuePair, v *verb, c *course) bool {
	w := &v.wr
	switch {
	case q.failAt <= v.seq:
		w.Status = rdma.StatusFlushed
		q.done = max(q.done, c.now+c.fwd)
	case q.conn != c.bl.epoch || c.now < c.bl.down:
		f.lost(v, q, rdma.StatusNoBlade, c.now+f.timeout)
	default:
		if w.Status = c.bl.check(w, uint64(len(p.arena))); w.Status == rdma.StatusOK {
			return false
		}
		q.failAt = v.seq
		q.done = max(q.done, c.now+c.fwd+c.back)
	}
	v.state = verbDone
	return true
}

// inlineFree is how many bytes a WQE of one 64-byte block carries: a control segment
// and a remote address of 16 bytes each, a count of 4, the payload.
const inlineFree = 28

// pipelines returns when a request reaches the memory, but for latency, and what
// its reply takes beside latency. Latencies are added behind the pipelines, so
// that a request that is delayed on the wire does not hold up others.
func (c *course) pipelines(pr *Profile, v *verb) (at, reply int64) {
	d, bl, w := c.d, c.bl, &v.wr
	payload, packets := float64(v.size), 1
	if w.Op == rdma.OpFlush {
		payload = 0
	} else if w.Len > 0 {
		bl.mem.expect(w.Off, w.Len)
	}
	if pr.MTU > 0 {
		packets = max((int(v.size)+pr.MTU-1)/pr.MTU, 1)
	}
	wire := payload / pr.BytesPerNs
	if pr.WireBytesPerNs > 0 {
		wire = max(wire, (float64(pr.HeaderBytes*float64(packets))+payload)/pr.WireBytesPerNs)
	}
	pass := int64(wire * 1000)
	d.op = max(d.op, c.now) + c.op
	at = d.op
	if w.Op == rdma.OpWrite {
		d.op += d.writePs
		if v.size > inlineFree && int(v.size) <= pr.Inline {
			d.op += d.opPs
		}
		at = d.op
		d.tx = max(d.tx, c.now) + pass
		bl.rx = max(bl.rx+pass, d.tx)
		at = max(at, bl.rx)
	}
	bl.op = max(bl.op+c.remote, at)
	at = bl.op
	if pr.MediaGrain > 0 {
		at = c.media(pr, v, at)
	}
	switch w.Op {
	case rdma.OpRead:
		bl.tx = max(bl.tx, at) + pass
		d.rx = max(d.rx+pass, bl.tx)
		reply = d.rx - at - pass + int64(payload*1000/pr.BytesPerNs)
	case rdma.OpCAS, rdma.OpFAA, rdma.OpMaskedCAS:
		slot := &bl.slots[w.Off>>3%atomicSlots]
		bl.atomics = max(bl.atomics+scale(d.atomicPs, c.x), at)
		at = max(bl.atomics, *slot)
		*slot = at + scale(d.addrPs, c.x)
		at += scale(d.atomicLat, c.x)
	}
	return at, reply
}

// arrives decides when a request arrives at the memory, in order on its queue
// pair, and whether it does.
func (f *Fabric) arrives(p *port, q *queuePair, v *verb, c *course, at int64, r uint64) bool {
	arrive := at + c.fwd + int64((r&0xffff)*c.d.jitter>>16)
	if v.wr.Flags&rdma.FlagFence != 0 {
		arrive = max(arrive, q.rdDone+c.fwd)
	}
	if f.free.detour > r>>46&1023 {
		arrive += int64(mix64(r) % uint64(f.free.window))
	}
	if v.fault == FaultLate {
		arrive += v.by
	}
	arrive = max(arrive, q.arrive)
	if end := c.bl.cut(arrive, p.index, p.compute(), "there"); end > arrive {
		f.struck[FaultPartition]++
		if end-arrive >= f.timeout {
			f.lost(v, q, rdma.StatusTimeout, c.now+f.timeout)
			return false
		}
		arrive = end // the transport tries again
	}
	if v.fault == FaultDrop {
		f.lost(v, q, rdma.StatusTimeout, c.now+f.timeout)
		return false
	}
	q.arrive = arrive
	v.arrive = arrive
	return true
}

// schedule decides when a request that arrives takes effect, which is where the
// freedom of the contract is used, and when it completes.
func (f *Fabric) schedule(g *group, i int, r uint64, back int64) {
	v, q := &g.verbs[i], g.q
	w := &v.wr
	fr := &f.free
	eff := max(v.arrive, q.ordered)
	if w.Op == rdma.OpRead && fr.overtake > r&1023 {
		r = mix64(r)
		eff += int64(r >> 10 % uint64(fr.window))
	}
	end := eff
	tear := fr.tear > r>>10&1023
	if v.fault == FaultTear {
		tear = true
	}
	if tear && w.Len > 8 && (w.Op == rdma.OpRead || w.Op == rdma.OpWrite) {
		v.split = mix64(r + v.seq)
		gap := v.by
		if v.fault != FaultTear {
			gap = int64(1 + v.split>>8%uint64(fr.window))
		}
		v.eff2 = eff + gap
		end = v.eff2
		g.refs++
		f.push(v.eff2, evEffect2, g.id, uint32(i))
	}
	v.eff = eff
	g.refs++
	f.push(eff, evEffect, g.id, uint32(i))

	done := end + back
	if end := q.blade.cut(done, g.p.index, g.p.compute(), "back"); end > done {
		if end-done < f.timeout {
			done = end
		} else if v.fault == FaultNone {
			v.fault = FaultLose
		}
	}
	late := v.fault == FaultLate && v.arrive-g.post > f.timeout
	if v.fault == FaultLose || late {
		w.Status = rdma.StatusTimeout
		q.failAt = min(q.failAt, v.seq+1)
		done = max(done, g.post+f.timeout)
		if late {
			done = g.post + f.timeout
			f.keep(g.p, v)
		}
	}
	if w.Op != rdma.OpWrite {
		q.rdDone = max(q.rdDone, done)
	}
	if w.Op != rdma.OpRead && w.Op != rdma.OpFlush {
		q.ordered = end
	}
	q.done = max(q.done, done)

	placeBy := int64(0)
	switch {
	case w.Op != rdma.OpWrite || v.eff2 != 0 || f.opt.Placed:
	case v.fault == FaultDelay:
		placeBy = q.done + v.by
	case fr.late > r>>20&1023:
		placeBy = eff + 1 + int64(mix64(r)%uint64(2*fr.window+back))
	}
	if placeBy > 0 {
		f.keep(g.p, v)
		v.place = placeBy
		g.refs++
		f.push(placeBy, evPlace, g.id, uint32(i))
	}
}

// lost ends a request that never arrives; those behind it fail too.
func (f *Fabric) lost(v *verb, q *queuePair, s rdma.Status, done int64) {
	v.wr.Status = s
	v.state = verbDone
	q.failAt = min(q.failAt, v.seq+1)
	q.done = max(q.done, done)
}

// keep copies what a request that may take effect after its completion needs of
// the arena.
func (f *Fabric) keep(p *port, v *verb) {
	if v.kept {
		return
	}
	switch v.wr.Op {
	case rdma.OpWrite:
		v.data, v.kept = append(v.data, p.arena[v.wr.Local:v.wr.Local+v.wr.Len]...), true
	case rdma.OpMaskedCAS:
		v.data, v.kept = append(v.data, p.arena[v.wr.Local:v.wr.Local+16]...), true
	}
}

// complete puts the group on the completion queue of its port.
func (f *Fabric) complete(g *group) {
	p := g.p
	p.d.out -= len(g.verbs)
	for i := range g.verbs {
		v := &g.verbs[i]
		f.trace.verb(f, traceComplete, g, v)
	}
	if p.gone {
		f.drop(g, 2) // nobody will reap it
		return
	}
	if p.dead {
		for i := range g.verbs {
			g.verbs[i].wr.Status = rdma.StatusTimeout
		}
	}
	p.cq.push(g)
	f.drop(g, 1)
	p.notify()
}

func scale(t int64, x float64) int64 {
	if x == 1 {
		return t
	}
	return int64(float64(t) * x)
}
