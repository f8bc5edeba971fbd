package sim

import (
	"math"
	"slices"

	"txnode/rdma"
)

// armed is a fault about a verb of a thread, its number counted over the port.
type armed struct {
	verb uint64
	Fault
}

// Inject arms faults from now on: their verbs are counted, and their times run,
// from this call. A fault about a thread that has no port yet waits for its port.
func (f *Fabric) Inject(faults ...Fault) error {
	for _, x := range faults {
		if err := x.validate(len(f.blades)); err != nil {
			return err
		}
	}
	now := f.proc().clock
	for _, x := range faults {
		switch x.Kind {
		case FaultSlow, FaultPartition, FaultCatalog, FaultPause, FaultTrouble:
			w := window{
				from: now + int64(x.At)*1000, to: forever, x: x.X, thread: x.Thread, compute: x.Compute,
				way: x.Way, why: x.Why,
			}
			if x.For > 0 {
				w.to = w.from + int64(x.For)*1000
			}
			switch x.Kind {
			case FaultSlow:
				b := f.blades[x.Blade]
				b.slow = append(b.slow, w)
			case FaultPartition:
				b := f.blades[x.Blade]
				b.parted = append(b.parted, w)
			case FaultPause:
				d := f.device(x.Compute - 1)
				d.pauses = append(d.pauses, w)
			case FaultTrouble:
				d := f.device(x.Compute - 1)
				d.troubles = append(d.troubles, w)
			default:
				f.deaf = append(f.deaf, w)
			}
			continue
		case FaultClock:
			f.struck[FaultClock]++
			f.device(x.Compute-1).run(now, x.X)
			continue
		case FaultStop, FaultRestart, FaultKill:
			if x.Verb == 0 {
				f.faults = append(f.faults, x)
				f.push(now+int64(x.At)*1000, evFault, uint32(len(f.faults)-1), 0)
				continue
			}
		}
		f.waiting = append(f.waiting, x)
	}
	for _, c := range f.cpus {
		if c == nil {
			continue
		}
		for _, p := range c.ports {
			f.arm(p)
		}
	}
	return nil
}

// arm moves the faults that wait for the port's thread to the port.
func (f *Fabric) arm(p *port) {
	f.waiting = slices.DeleteFunc(f.waiting, func(x Fault) bool {
		if x.Thread != p.index {
			return false
		}
		p.faults = append(p.faults, armed{p.verbs + x.Verb, x})
		return true
	})
	p.upcoming()
}

func (p *port) upcoming() {
	p.next = math.MaxUint64
	for _, a := range p.faults {
		p.next = min(p.next, a.verb)
	}
}

// stopsAt returns how many of the n requests about to be posted are, because the
// thread stops behind them; n when it does not.
func (p *port) stopsAt(n int) int {
	last := n
	for _, a := range p.faults {
		if a.Kind == FaultStop && a.verb <= p.verbs+uint64(n) {
			last = min(last, int(a.verb-p.verbs))
			p.doomed = true
		}
	}
	return last
}

// strikeVerb applies the faults about the verb just numbered.
func (p *port) strikeVerb(v *verb) {
	p.faults = slices.DeleteFunc(p.faults, func(a armed) bool {
		if a.verb != p.verbs || a.Kind == FaultStop {
			return false
		}
		v.fault, v.by = a.Kind, int64(a.By)*1000
		p.f.struck[a.Kind]++
		p.f.trace.note(p.f.now, a.String(), uint64(p.index), p.verbs)
		return true
	})
	p.upcoming()
}

// die stops the thread, whose code runs. It does not return when that is a body.
func (p *port) die(pr *proc) {
	p.f.struck[FaultStop]++
	p.f.stopThread(p, pr)
	if pr.yield != nil {
		panic(killed{})
	}
}

// stopThread marks the thread, and every other port that its body uses.
func (f *Fabric) stopThread(p *port, pr *proc) {
	f.stopped = append(f.stopped, p.index)
	f.trace.note(f.now, "stop", uint64(p.index), p.verbs)
	p.dead, p.deadAt = true, f.now
	if pr != nil && f.cur == pr {
		p.deadAt = pr.clock
	}
	p.deactivate()
	f.freeze(p)
	if pr == nil || pr.yield == nil {
		return
	}
	pr.dead, p.gone = true, true
	for o := range f.ports {
		if o.proc == pr && !o.gone {
			o.dead, o.gone, o.deadAt = true, true, p.deadAt
			o.deactivate()
			f.freeze(o)
		}
	}
}

// freeze keeps what the requests of a stopped thread need of its arena: what its code
// does there while it is unwound, a process that stops does not do.
func (f *Fabric) freeze(p *port) {
	for _, g := range f.groups.all {
		if g.p != p {
			continue
		}
		for i := range g.verbs {
			if v := &g.verbs[i]; v.state != verbDone {
				f.keep(p, v)
			}
		}
	}
}

// strike begins a fault that was waiting for its time.
func (f *Fabric) strike(x *Fault) {
	switch x.Kind {
	case FaultStop:
		for _, c := range f.cpus {
			if c == nil {
				continue
			}
			for _, p := range slices.Clone(c.ports) {
				if p.index == x.Thread && !p.dead {
					pr := p.proc
					f.struck[FaultStop]++
					f.stopThread(p, pr)
					if pr != nil && pr.yield != nil && pr.stop != nil {
						pr.kill()
					}
				}
			}
		}
	case FaultRestart:
		f.restart(f.blades[x.Blade], x)
	case FaultKill:
		f.kill(x.Compute - 1)
	}
}

// kill stops all threads of a compute blade.
func (f *Fabric) kill(compute int) {
	d := f.device(compute)
	f.struck[FaultKill]++
	f.trace.note(f.now, "kill", uint64(compute+1), 0)
	d.killed = true
	for _, p := range slices.Clone(d.ports) {
		if p.dead {
			continue
		}
		pr := p.proc
		f.stopThread(p, pr)
		if pr != nil && pr.yield != nil && pr.stop != nil {
			pr.kill()
		}
	}
}

// Killed reports whether a compute blade was stopped by a fault and no thread has connected there
// since. Compute blades are counted from 1.
func (f *Fabric) Killed(compute int) bool {
	return compute > 0 && compute <= len(f.cpus) && f.cpus[compute-1] != nil && f.cpus[compute-1].killed
}

// held moves the clock of a body to the end of a pause of its compute blade. It reports whether
// there is one: then every event before must have happened until the body goes on.
func (p *port) held(pr *proc) bool {
	if p.d.pauses == nil || pr.yield == nil {
		return false
	}
	was := pr.clock
	for _, w := range p.d.pauses {
		if w.from <= pr.clock && pr.clock < w.to {
			pr.clock = w.to
		}
	}
	if pr.clock == was {
		return false
	}
	p.f.struck[FaultPause]++
	p.f.trace.note(p.f.now, "pause", uint64(p.index), uint64(pr.clock))
	return true
}

// restart stops a blade: connections are gone, WRITEs that are not placed too,
// and without memory everything. It is back with a key that nobody knows yet.
func (f *Fabric) restart(b *blade, x *Fault) {
	f.struck[FaultRestart]++
	for len(b.latePut) > 0 {
		q := b.latePut[0]
		for _, l := range q.late {
			l.g.verbs[l.i].state = verbDone
		}
		q.forget()
	}
	for _, e := range f.queue.all() { // the second halves of divided WRITEs
		if e.kind() == evEffect2 {
			g := f.groups.all[e.a()]
			if v := &g.verbs[e.b()]; g.q.blade == b && v.state == verbHalf {
				v.state, v.wr.Status = verbDone, rdma.StatusTimeout
				f.fail(g.q, v)
			}
		}
	}
	if !x.Memory {
		b.mem.reset()
	}
	b.epoch++
	b.keys.Renew()
	b.down = forever
	if x.For > 0 {
		b.down = f.now + int64(x.For)*1000
	}
	f.trace.note(f.now, x.String(), uint64(b.id), uint64(b.keys.Oldest()))
}

// CatalogDown reports whether a FaultCatalog lasts at present for a compute blade, counted from 1;
// 0: the caller is on none. A catalog, a lock service or the like that is simulated beside the
// fabric is to fail then.
func (f *Fabric) CatalogDown(compute int) bool {
	now := f.proc().clock
	for _, w := range f.deaf {
		if w.from <= now && now < w.to && (w.compute == 0 || w.compute == compute) {
			f.struck[FaultCatalog]++
			return true
		}
	}
	return false
}

// refuse ends requests of a stopped thread that reach nothing.
func (p *port) refuse(b *rdma.Batch, first, n int) {
	for i := range n {
		b.Complete(first+i, rdma.StatusNoBlade)
	}
}
