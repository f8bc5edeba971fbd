package tcp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"txnode/rdma"
)

// port is the transport of one thread: a queue pair, that is a connection, to each blade.
//
// Post only encodes. What the coroutines of the thread have posted is written when the thread
// waits, or polls without having posted: one write a blade.
type port struct {
	f      *Fabric
	arena  []byte
	qps    []queuePair
	waiter waiter
	step   func() bool // reapAll, bound once
	any    func() bool // reapAll, or something was sent
	out    int         // frames that are outstanding
	moved  bool        // bytes were sent: see advance
	fresh  bool        // posted since the last Poll or Wait
	polls  uint32      // how often Poll has looked
	closed bool
}

// forever is a time that never comes.
const forever = math.MaxInt64

// Post encodes the requests.
func (p *port) Post(b *rdma.Batch, first int) {
	p.fresh = true
	for i := first; i < b.Len(); i++ {
		w := b.WR(i)
		if int(w.Blade) >= len(p.qps) {
			b.Complete(i, rdma.StatusNoBlade)
			continue
		}
		p.qps[w.Blade].post(b, i, w)
	}
}

// Push writes what has been posted: rdma.Pusher.
func (p *port) Push() {
	p.fresh = false
	for i := range p.qps {
		q := &p.qps[i]
		for q.flush(); q.link != nil && q.blocked; q.flush() {
			p.advance()
		}
	}
}

// Poll reaps what is there. After a Post it does nothing once: the thread's other coroutines
// may have more to send.
func (p *port) Poll() {
	if p.fresh {
		p.fresh = false
		return
	}
	if p.out == 0 {
		return
	}
	p.reapAll()
	if p.polls++; p.polls%64 == 0 {
		p.expire()
	}
}

// spinNs is how long before its end Wait stops sleeping and spins.
const spinNs = 20_000

// Wait writes what has been posted, and returns when something was reaped, or at the time.
func (p *port) Wait(until int64) {
	p.fresh = false
	if p.out == 0 {
		p.sleep(until)
		return
	}
	if until != forever && until-p.Now() < spinNs {
		for !p.reapAll() && p.Now() < until {
			runtime.Gosched()
		}
		p.expire()
		return
	}
	p.waiter.wait(p.step, p.f.start, min(until, p.deadline()))
	p.expire()
}

// advance waits until something was sent or reaped.
func (p *port) advance() {
	p.moved = false
	p.waiter.wait(p.any, p.f.start, p.deadline())
	p.expire()
}

// sleep waits for the time only: nothing is outstanding.
func (p *port) sleep(until int64) {
	for until != math.MaxInt64 {
		left := until - p.Now()
		if left <= 0 {
			return
		}
		if left > 2*spinNs {
			time.Sleep(time.Duration(left - spinNs))
			continue
		}
		runtime.Gosched()
	}
}

// reapAll sends what has not been sent and reaps what is there; true: something has completed. It
// does not look for replies to what it has just sent alone: the waiter calls again when they come.
func (p *port) reapAll() bool {
	before := p.out
	for i := range p.qps {
		q := &p.qps[i]
		if q.head == q.tail {
			continue
		}
		sent := q.head != q.stamped
		if q.flush(); sent {
			q.reap()
		}
	}
	return p.out < before
}

// deadline is when the request that waits longest will have waited too long.
func (p *port) deadline() int64 {
	at := int64(math.MaxInt64)
	for i := range p.qps {
		if q := &p.qps[i]; q.head != q.tail {
			at = min(at, q.expires())
		}
	}
	return at
}

// expire breaks the queue pairs whose blades have not replied in time.
func (p *port) expire() {
	now := p.Now()
	for i := range p.qps {
		if q := &p.qps[i]; q.head != q.tail && q.expires() <= now {
			// The thread itself may have been stopped meanwhile: what has come counts.
			q.flush()
			if q.reap(); q.head != q.tail && q.expires() <= now {
				q.sever()
			}
		}
	}
}

// Quit breaks the queue pairs that have something outstanding: rdma.Quitter.
func (p *port) Quit() {
	for i := range p.qps {
		q := &p.qps[i]
		if q.flush(); q.head != q.tail {
			q.reap() // what has come counts
		}
		if q.head != q.tail {
			q.sever()
		}
	}
}

// Now is the fabric's clock.
func (p *port) Now() int64 { return p.f.Now() }

// Arena is the registered memory.
func (p *port) Arena() []byte { return p.arena }

// Reset takes a queue pair out of the error state, with a new connection if the old one is broken.
// ErrBladeDown: the blade, or its server, does not answer.
func (p *port) Reset(b rdma.BladeID) error {
	if int(b) >= len(p.qps) {
		return fmt.Errorf("tcp: blade %d of %d: %w", b, len(p.qps), rdma.ErrBladeDown)
	}
	q := &p.qps[b]
	if q.link != nil && q.reset() {
		if q.resetTo == rdma.StatusOK {
			return nil
		}
		return fmt.Errorf("tcp: blade %d is stopped: %w", b, rdma.ErrBladeDown)
	}
	l, err := p.f.link(context.Background(), b)
	if err != nil {
		q.dead = rdma.StatusNoBlade
		return fmt.Errorf("blade %d: %w", b, err)
	}
	return q.attach(l)
}

// Close closes the connections and unmaps the arena. What is posted afterwards fails: no blade is
// connected. To close again does nothing.
func (p *port) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	p.f.leave()
	return p.release()
}

func (p *port) release() error {
	for i := range p.qps {
		if q := &p.qps[i]; q.link != nil {
			q.sever()
		}
	}
	p.qps = nil
	mem := p.arena
	p.arena = nil
	return errors.Join(p.waiter.close(), unix.Munmap(mem))
}
