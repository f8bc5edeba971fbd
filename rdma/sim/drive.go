package sim

import "txnode/rdma"

// driving is a Thread.Run whose coroutines take their turns on the goroutine that runs
// the events. The body that called it is suspended until all have returned.
type driving struct {
	loop  *rdma.Loop // nil: none
	port  *port
	begun bool // the body has just called Drive
	after loopPhase
	threw any // what a coroutine has panicked with
}

// loopPhase is what a suspended loop does when it is resumed.
type loopPhase uint8

const (
	phaseRun  loopPhase = iota
	phasePoll           // after it has let the events catch up
	phaseWait           // after it has waited for completions
)

var _ rdma.Driver = (*port)(nil)

// Drive runs the loop of a thread that a body uses, of one at a time, unless a Program
// schedules the coroutines.
func (p *port) Drive(l *rdma.Loop) bool {
	pr := p.enter()
	if pr.yield == nil || p.tasks != nil || pr.drive.loop != nil {
		return false
	}
	pr.drive = driving{loop: l, port: p, begun: true}
	if !pr.yield(struct{}{}) || pr.dead && pr.drive.threw == nil {
		pr.drive = driving{}
		panic(killed{})
	}
	if r := pr.drive.threw; r != nil {
		pr.drive = driving{}
		panic(r)
	}
	return true
}

// drive goes on with the loop of a body until that has to be suspended; true if it is
// over, and the body itself goes on.
func (f *Fabric) drive(pr *proc) (over bool) {
	d := &pr.drive
	returned := false
	defer func() {
		if returned {
			return
		}
		if r := recover(); r != nil { // otherwise the goroutine ends
			d.loop, d.threw, over = nil, r, true
		}
	}()
	for {
		switch d.after {
		case phaseRun:
			switch d.loop.Run() {
			case rdma.LoopPoll:
				d.after = phasePoll
				pr := d.port.enter()
				held := d.port.held(pr)
				if pr.clock += d.port.c.swtch; (held || d.port.ahead(pr)) && !pr.synced() {
					returned = true
					return false
				}
			case rdma.LoopIdle:
				d.after = phaseWait
				if d.port.waits() {
					returned = true
					return false
				}
			case rdma.LoopHung:
				returned = true
				return false
			case rdma.LoopDone:
				d.loop = nil
				returned = true
				return true
			}
		case phasePoll:
			if d.port.cq.n > 0 {
				d.port.reap(pr)
			}
			d.loop.After()
			d.after = phaseRun
		case phaseWait:
			d.port.reap(pr)
			d.loop.After()
			d.after = phaseRun
		}
	}
}

// waits begins to wait as Wait does, and reports whether the loop must be suspended.
func (p *port) waits() bool {
	pr := p.enter()
	if p.held(pr) {
		return !pr.synced()
	}
	if p.cq.n > 0 {
		return false
	}
	end := p.d.when(picos(pr.drive.loop.Until()))
	if pr.clock >= end {
		return !pr.synced()
	}
	p.rest(pr, end)
	pr.awaits(p, end)
	return true
}
