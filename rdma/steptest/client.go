package steptest

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"

	"txnode/rdma"
)

// Client is a coroutine that uses the fabric.
type Client struct {
	f     *Fabric
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
	port  *port // that it waits on
	until int64
	step  *step // that it waits for; nil: none
	steps int   // that it has made
	wakes int   // out of sleep, as moves
	awake int   // what Fabric.moved was then
	ended bool
	// stopping: it is being stopped, and makes no more steps
	stopping bool
	paused   bool
	panic    any
	// Process is the number of the process that the client belongs to, 0 if it is one of its
	// own: see Fabric.Step.
	Process int
}

// stopped unwinds a client that was stopped.
type stopped struct{}

// Go starts a client: fn runs until it waits for the first time. A panic in it comes
// out of the call that lets it run: Go, Do or Stop.
func (f *Fabric) Go(fn func()) *Client { return f.GoIn(0, fn) }

// GoIn is Go for a client of a process.
func (f *Fabric) GoIn(process int, fn func()) *Client {
	c := &Client{f: f, Process: process}
	c.next, c.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			c.ended = true
			if r := recover(); r != nil && r != (stopped{}) && !c.stopping {
				c.panic = r
			}
		}()
		c.yield = yield
		fn()
	})
	f.clients = append(f.clients, c)
	c.resume()
	f.settle()
	return c
}

// Ended reports whether the client's function has returned, or was stopped.
func (c *Client) Ended() bool { return c.ended }

// resume lets the client run until it waits or ends.
func (c *Client) resume() {
	was := c.f.cur
	c.f.cur = c
	c.next()
	c.f.cur = was
	if r := c.panic; r != nil {
		c.panic = nil
		panic(r)
	}
}

// wait gives up the client's turn.
func (c *Client) wait(p *port, until int64) {
	c.port, c.until = p, until
	if !c.yield(struct{}{}) {
		panic(stopped{})
	}
	c.port = nil
}

// Stop ends a client for ever where it waits: nothing that it has posted and that
// has not happened yet will. WRITEs that are complete are placed.
func (c *Client) Stop() {
	for _, p := range c.f.ports {
		if p.client != c {
			continue
		}
		p.dead = true
		for _, q := range p.qps {
			q.queue = fifo[request]{}
			q.place()
		}
	}
	c.stopping = true
	if c.step != nil && !c.step.rests {
		c.step = nil
		c.resume()
	}
	was := c.f.cur
	c.f.cur = c
	c.stop()
	c.f.cur = was
	c.ended = true
	if r := c.panic; r != nil {
		c.panic = nil
		panic(r)
	}
}

// Pause has no more moves of the client happen, until Resume: what it has posted comes late, and
// time passes for the others. Its process holds the locks that the client holds.
func (c *Client) Pause() { c.paused = true }

// Resume undoes Pause.
func (c *Client) Resume() { c.paused = false }

// LoseFrom makes the n-th request from now on, from 0, of the port that was made last take
// effect and complete with rdma.StatusTimeout.
func (f *Fabric) LoseFrom(n int) { p := f.ports[len(f.ports)-1]; p.lose = p.ran + n }

// Executed is how many requests of the port that was made n-th have been executed.
func (f *Fabric) Executed(n int) int { return f.ports[n].ran }

// Progress says how far the queue pairs of all ports have come, and steps of clients: runs with the
// same beginning that agree in it are in the same state.
func (f *Fabric) Progress() string {
	var b []byte
	for _, c := range f.clients {
		b = binary.AppendUvarint(b, uint64(c.steps))
	}
	for _, p := range f.ports {
		for _, q := range p.qps {
			b = binary.AppendUvarint(b, uint64(q.moved))
			b = append(b, byte(len(q.landing)))
		}
	}
	return string(b)
}

// Ports is how many ports were made since the last Restore.
func (f *Fabric) Ports() int { return len(f.ports) }

// End stops all clients.
func (f *Fabric) End() {
	for _, c := range f.clients {
		if !c.ended {
			c.Stop()
		}
	}
	f.clients = f.clients[:0]
}

// Move is something that may happen next: requests at the head of a queue pair are executed, or its
// completed WRITEs become visible, or a client makes a step. Equal moves in runs with the same
// decisions before them are the same.
type Move struct {
	// Client is the number of the client that makes a step, from 1 in the order in which they were
	// started; 0: it is a move of a port.
	Client int
	Port   int
	Blade  rdma.BladeID // of the first request, with grain Batches
	Step   int          // how many of the queue pair's came before
	Place  bool
	Wake   bool // the client has slept for long enough
	// Post is the number of the Post that the requests are of.
	Post int
}

// Moves lists what may happen now, in a fixed order. It is empty when every client has
// ended and nothing is left to be done.
func (f *Fabric) Moves() []Move {
	for {
		all := f.stepMoves()
		for _, p := range f.ports {
			if p.dead || p.client != nil && p.client.paused {
				continue
			}
			first := true
			for _, q := range p.qps {
				if q.queue.len() > 0 && (f.o.Grain != Batches || first && q.queue.front().post == p.oldest()) {
					all = append(all, Move{Port: p.id, Blade: q.blade, Step: q.moved, Post: q.queue.front().post})
					first = false
				}
				if len(q.landing) > 0 {
					all = append(all, Move{Port: p.id, Blade: q.blade, Step: q.moved, Place: true})
				}
			}
		}
		if len(all) > 0 {
			return all
		}
		if !f.pass() {
			return nil
		}
	}
}

// oldest is the number of the oldest Post that is not done.
func (p *port) oldest() int {
	n := math.MaxInt
	for _, q := range p.qps {
		if q.queue.len() > 0 {
			n = min(n, q.queue.front().post)
		}
	}
	return n
}

// pass lets time pass until a client goes on; false: there is none.
func (f *Fabric) pass() bool {
	var first *Client
	for _, c := range f.clients {
		if !c.ended && !c.paused && !c.rests() && (first == nil || c.until < first.until) {
			first = c
		}
	}
	if first == nil {
		return false
	}
	if first.until == math.MaxInt64 {
		panic("steptest: every client waits, and nothing is outstanding")
	}
	f.now = max(f.now, first.until)
	first.resume()
	f.settle()
	return true
}

// Do makes a move happen, and lets the client go on whose it is.
func (f *Fabric) Do(m Move) {
	f.now += 10
	if m.Client > 0 {
		f.doStep(f.clients[m.Client-1], m.Wake)
		return
	}
	f.moved++
	p := f.ports[m.Port]
	q := p.qps[m.Blade]
	switch {
	case m.Place:
		q.place()
	case f.o.Grain == Batches:
		post := q.queue.front().post
		for _, q := range p.qps {
			q.run(post)
		}
	case f.o.Grain == Queues:
		q.run(q.queue.front().post)
	default:
		q.step(f.o.Grain)
	}
	f.settle()
}

// run executes the requests of one Post.
func (q *queuePair) run(post int) {
	for q.queue.len() > 0 && q.queue.front().post == post {
		q.step(Verbs)
	}
}

// settle lets every client run that has a completion, and READs that are eager.
func (f *Fabric) settle() {
	if f.cur != nil {
		return
	}
	for again := true; again; {
		again = false
		if f.o.EagerReads {
			for _, p := range f.ports {
				for _, q := range p.qps {
					for q.queue.len() > 0 && q.queue.front().b.WR(q.queue.front().i).Op == rdma.OpRead {
						q.step(Verbs)
					}
				}
			}
		}
		for _, c := range f.clients {
			if !c.ended && c.port != nil && c.port.done.len() > 0 && !f.busy(c) {
				c.resume()
				again = true
			}
		}
	}
}

// Access is a range of a blade's memory that a move reads or changes, or of something else.
type Access struct {
	What   Realm
	Blade  rdma.BladeID
	Off, N uint64
	Writes bool
}

// Footprint appends what a move that is possible now will touch.
func (f *Fabric) Footprint(m Move, to []Access) []Access {
	if m.Wake {
		return to
	}
	if m.Client > 0 {
		return f.clients[m.Client-1].step.touches(to)
	}
	p := f.ports[m.Port]
	add := func(q *queuePair, w *rdma.WR) {
		if f.o.Control {
			to = append(to, Access{Blade: q.blade, What: opens, N: 1})
		}
		a := Access{Blade: q.blade, Off: w.Off, N: uint64(w.Len), Writes: w.Op != rdma.OpRead && w.Op != rdma.OpFlush}
		if w.Op == rdma.OpWrite && !f.o.Caps.Placed {
			return // it is the placing that others can see
		}
		to = append(to, a)
	}
	landed := func(q *queuePair) {
		for _, l := range q.landing {
			to = append(to, Access{Blade: q.blade, Off: l.off, N: l.n, Writes: true})
		}
	}
	take := func(q *queuePair, post int) {
		landed(q)
		for _, r := range q.queue.all() {
			if r.post != post {
				break
			}
			w := r.b.WR(r.i)
			add(q, w)
			if w.Op == rdma.OpWrite && !f.o.Caps.Placed {
				to = append(to, Access{Blade: q.blade, Off: w.Off, N: uint64(w.Len), Writes: true})
			}
		}
	}
	q := p.qps[m.Blade]
	switch {
	case m.Place:
		landed(q)
	case f.o.Grain == Batches:
		post := q.queue.front().post
		for _, q := range p.qps {
			take(q, post)
		}
	case f.o.Grain == Queues:
		take(q, q.queue.front().post)
	default:
		w := q.queue.front().b.WR(q.queue.front().i)
		if w.Op != rdma.OpWrite {
			landed(q)
		}
		add(q, w)
	}
	return to
}

// Overlap reports whether two footprints touch a byte that one of them changes.
func Overlap(a, b []Access) bool {
	return slices.ContainsFunc(a, func(x Access) bool {
		return slices.ContainsFunc(b, func(y Access) bool {
			return x.What == y.What && x.Blade == y.Blade && (x.Writes || y.Writes) && x.Off < y.Off+y.N &&
				y.Off < x.Off+x.N
		})
	})
}

// Of is the client whose move it is; nil: of a port that no client has used.
func (f *Fabric) Of(m Move) *Client {
	if m.Client > 0 {
		return f.clients[m.Client-1]
	}
	return f.ports[m.Port].client
}

// Commute reports whether two moves, both possible now, with these footprints, lead to the
// same in either order.
func (f *Fabric) Commute(a Move, fa []Access, b Move, fb []Access) bool {
	if a.Client == 0 && b.Client == 0 && a.Port == b.Port && (a.Blade == b.Blade || a.Post != b.Post && !a.Place &&
		!b.Place) {
		return false
	}
	if x, y := f.Of(a), f.Of(b); a.Client+b.Client > 0 && x != nil && y != nil && x.Process > 0 &&
		x.Process == y.Process {
		return false // one of them may keep the other from going on
	}
	return !Overlap(fa, fb)
}
