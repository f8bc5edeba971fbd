package sim

import (
	"fmt"
	"iter"
)

// proc is a body of Run: a coroutine with a clock. The caller of Run, and
// whoever uses ports outside Run, is a proc without a coroutine, whose waits run
// the events.
type proc struct {
	f     *Fabric
	id    int
	clock int64 // ps, never behind Fabric.now while its code runs
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool

	gen   uint32 // of the resume event that is good
	port  *port  // whose completions it waits for; nil: none
	until int64  // when it stops waiting; 0: it does not wait for a time
	timer int64  // of its earliest timer event; 0: none is queued
	lock  *spinlock
	ports []*port // active ones
	drive driving
	// spinning is how many of its coroutines are ready all the time: see Program.Spins.
	spinning int
	dead     bool // stopped by a fault: its next call of a port unwinds it
}

// killed is what unwinds a stopped body. It does not leave the package.
type killed struct{}

// Run runs fn(0) ... fn(n-1) as processes under the virtual clock and returns
// when all have returned or were stopped by a fault. A stopped body is unwound:
// its deferred calls run, their verbs reach nothing, and their panics nobody.
//
// When a body panics the others are unwound and Run panics with the same value;
// when all of them wait for what will never happen it panics with a
// *DeadlockError. Run does not nest.
func (f *Fabric) Run(n int, fn func(i int)) {
	if f.running {
		panic("sim: Fabric.Run inside Fabric.Run")
	}
	f.proc().sync()
	f.running = true
	f.procs = make([]*proc, n)
	f.live = n
	defer f.abandon()
	for i := range n {
		p := &proc{f: f, id: i, clock: f.now}
		p.next, p.stop = iter.Pull(func(yield func(struct{}) bool) {
			p.yield = yield
			defer func() {
				// A dead body's deferred calls may stumble over what it left undone.
				if r := recover(); r != nil && !p.dead {
					panic(r)
				}
			}()
			if !p.dead {
				fn(i)
				p.sync() // time never goes backwards for what comes after Run
			}
		})
		f.procs[i] = p
		f.push(f.now, evResume, uint32(i), p.gen)
	}
	for f.live > 0 {
		if f.queue.len() == 0 {
			panic(f.deadlock())
		}
		if f.events&interruptMask == 0 && f.opt.Interrupt != nil {
			if err := f.opt.Interrupt(); err != nil {
				panic(err)
			}
		}
		f.step()
	}
}

// interruptMask: every how many events Options.Interrupt is called, less one.
const interruptMask = 1<<12 - 1

// abandon ends Run: after a panic it unwinds the bodies that are left.
func (f *Fabric) abandon() {
	for _, p := range f.procs {
		if p.stop != nil {
			p.dead = true
			f.cur = p
			p.stop()
			p.finish()
		}
	}
	f.cur, f.procs, f.running = nil, nil, false
	// What is queued for bodies is for nobody now.
	f.queue.filter(func(e event) bool { return e.kind() != evResume && e.kind() != evTimer })
}

// finish is called when the body has returned.
func (p *proc) finish() {
	p.stop = nil
	for len(p.ports) > 0 {
		p.ports[0].deactivate()
	}
}

// kill stops the body. If its code runs now, the caller must panic(killed{});
// otherwise it is unwound here.
func (p *proc) kill() {
	p.dead = true
	if p.f.cur == p || p.stop == nil {
		return
	}
	saved := p.f.cur
	p.f.cur = p
	p.stop()
	p.f.cur = saved
	p.finish()
	p.f.live--
}

func (f *Fabric) deadlock() *DeadlockError {
	e := &DeadlockError{Seed: f.opt.Seed, NowNs: f.now / 1000}
	for _, p := range f.procs {
		if p.stop == nil {
			continue
		}
		switch {
		case p.lock != nil:
			e.Waiting = append(e.Waiting, fmt.Sprintf("body %d spins on a lock", p.id))
		case p.port != nil:
			e.Waiting = append(e.Waiting, fmt.Sprintf("body %d waits on thread %d, which has %d requests outstanding",
				p.id, p.port.index, p.port.out))
		default:
			e.Waiting = append(e.Waiting, fmt.Sprintf("body %d waits for nothing known", p.id))
		}
	}
	return e
}

func (f *Fabric) push(t int64, k eventKind, a, b uint32) {
	f.seq++
	f.queue.push(event{t: max(t, f.now), seq: f.seq, arg: uint64(k)<<(32+argB) | uint64(b&maskB)<<32 | uint64(a)})
}

// turn moves the clock to t, before which nothing happens.
func (f *Fabric) turn(t int64) {
	if t > f.now {
		f.now = t
		f.queue.turn(t)
	}
}

// step takes the next event.
func (f *Fabric) step() {
	e := f.queue.pop()
	f.now = e.t
	f.events++
	switch e.kind() {
	case evResume:
		if int(e.a()) < len(f.procs) {
			if p := f.procs[e.a()]; p.gen&maskB == e.b() && p.stop != nil {
				f.resume(p)
			}
		}
	case evTimer:
		if int(e.a()) < len(f.procs) {
			f.procs[e.a()].fire()
		}
	case evSubmit:
		f.submit(f.groups.all[e.a()])
	case evEffect:
		f.effect(f.groups.all[e.a()], int(e.b()))
	case evEffect2:
		f.effect2(f.groups.all[e.a()], int(e.b()))
	case evPlace:
		f.place(f.groups.all[e.a()], int(e.b()))
	case evComplete:
		f.complete(f.groups.all[e.a()])
	case evRelease:
		f.locks[e.a()].release()
	case evFault:
		f.strike(&f.faults[e.a()])
	}
}

// resume lets a process run until it gives up control.
func (f *Fabric) resume(p *proc) {
	p.gen++
	p.port, p.until, p.lock = nil, 0, nil
	p.clock = max(p.clock, f.now)
	f.cur = p
	more := true
	if p.drive.loop == nil || f.drive(p) {
		for _, more = p.next(); p.drive.begun; {
			p.drive.begun = false
			if !f.drive(p) {
				break
			}
			_, more = p.next()
		}
	}
	f.cur = nil
	if !more {
		p.finish()
		f.live--
	}
}

// fire handles the timer of p.
func (p *proc) fire() {
	f := p.f
	if f.now == p.timer {
		p.timer = 0
	}
	switch {
	case p.stop == nil || p.until == 0:
	case p.until <= f.now:
		f.resume(p)
	case p.timer == 0 || p.until < p.timer:
		p.timer = p.until
		f.push(p.until, evTimer, uint32(p.id), 0)
	}
}

// suspend gives up control until the process is resumed.
func (p *proc) suspend() {
	if l := p.drive.loop; l != nil && !p.dead {
		if !l.Hang() || p.dead {
			panic(killed{})
		}
		return
	}
	if !p.yield(struct{}{}) || p.dead {
		panic(killed{})
	}
}

// sync returns when every event before the process's clock has happened.
func (p *proc) sync() {
	f := p.f
	if p.yield == nil {
		for f.queue.next() < p.clock {
			f.step()
		}
		f.turn(p.clock)
		return
	}
	if p.dead {
		return
	}
	if !p.synced() {
		p.suspend()
	}
}

// synced reports whether every event before the clock of a body has happened. If not, the
// body must be suspended: it is resumed when they have.
func (p *proc) synced() bool {
	f := p.f
	if f.queue.next() >= p.clock {
		f.turn(p.clock)
		return true
	}
	f.push(p.clock, evResume, uint32(p.id), p.gen)
	return false
}

// await returns when t has completions to reap, or at the time until.
func (p *proc) await(t *port, until int64) {
	f := p.f
	if p.yield == nil {
		for t.cq.n == 0 && f.now < until {
			switch {
			case f.queue.len() > 0 && f.queue.next() <= until:
				f.step()
			case until == forever:
				panic(&DeadlockError{Seed: f.opt.Seed, NowNs: f.now / 1000,
					Waiting: []string{fmt.Sprintf("thread %d, outside Run, has %d requests outstanding",
						t.index, t.out)}})
			default:
				f.turn(until)
			}
		}
		p.clock = max(p.clock, f.now)
		return
	}
	p.awaits(t, until)
	p.suspend()
}

// awaits is what await does before the body is suspended.
func (p *proc) awaits(t *port, until int64) {
	p.port = t
	if until < forever {
		p.until = max(until, 1)
		if p.timer == 0 || p.until < p.timer {
			p.timer = p.until
			p.f.push(p.until, evTimer, uint32(p.id), 0)
		}
	}
}

// notify tells a process that waits for p that a completion has arrived. One
// that is ahead of the event goes on at its own time.
func (p *port) notify() {
	f, w := p.f, p.proc
	if w == nil || w.port != p {
		return
	}
	if w.clock <= f.now {
		f.resume(w)
		return
	}
	w.port, w.until = nil, 0
	f.push(w.clock, evResume, uint32(w.id), w.gen)
}
