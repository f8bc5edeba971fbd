package steptest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"txnode/rdma"
)

// port is the transport of one thread.
type port struct {
	f      *Fabric
	id     int
	arena  []byte
	qps    []*queuePair
	done   fifo[completion]
	client *Client // who uses it
	dead   bool    // its client was stopped: nothing more happens on it
	ran    int     // requests executed
	lose   int     // number of the request whose completion is lost, -1: none
}

type completion struct {
	b      *rdma.Batch
	i      int
	status rdma.Status
	result uint64
}

type queuePair struct {
	p       *port
	blade   rdma.BladeID
	broken  bool
	gone    bool // the blade has restarted since: requests fail
	queue   fifo[request]
	landing []landing // WRITEs that are complete and not placed
	landed  []byte    // what they write, one after the other
	moved   int       // requests or halves that have been executed: names the next move
}

// request is a posted work request.
type request struct {
	b    *rdma.Batch
	i    int
	post int  // requests that were posted together have the same
	half bool // the first half has been executed
}

// landing is the next n bytes of queuePair.landed, for an offset of the region.
type landing struct{ off, n uint64 }

// fifo is a queue. Its room is used again, since a run posts many requests and few at once.
type fifo[T any] struct {
	items []T
	head  int
}

func (f *fifo[T]) len() int  { return len(f.items) - f.head }
func (f *fifo[T]) all() []T  { return f.items[f.head:] }
func (f *fifo[T]) front() *T { return &f.items[f.head] }
func (f *fifo[T]) push(x T)  { f.items = append(f.items, x) }

func (f *fifo[T]) pop() {
	if f.head++; f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
}

// arena takes one from a run before, or makes one. It is clear, so that runs with the
// same moves are the same, unless it is so large that only a tool can want it.
func (f *Fabric) arena(n int) []byte {
	for i, a := range f.spare {
		if len(a) == n {
			f.spare[i] = f.spare[len(f.spare)-1]
			f.spare = f.spare[:len(f.spare)-1]
			if n <= 1<<20 {
				clear(a)
			}
			return a
		}
	}
	return make([]byte, n)
}

// NewPort makes a port. Queue pairs are never shared.
func (f *Fabric) NewPort(cfg rdma.PortConfig) (rdma.Port, error) {
	if cfg.Arena <= 0 || cfg.Arena > 1<<30 {
		return nil, fmt.Errorf("steptest: arena of %d bytes", cfg.Arena)
	}
	p := &port{f: f, id: len(f.ports), arena: f.arena((cfg.Arena + 63) &^ 63), lose: -1}
	for i := range f.mem {
		p.qps = append(p.qps, &queuePair{p: p, blade: rdma.BladeID(i)})
	}
	f.ports = append(f.ports, p)
	return p, nil
}

func (p *port) Post(b *rdma.Batch, first int) {
	f := p.f
	f.posts++
	if f.cur != nil {
		p.client = f.cur
	}
	for i := first; i < b.Len(); i++ {
		w := b.WR(i)
		if p.dead {
			b.Complete(i, rdma.StatusFlushed)
			continue
		}
		if int(w.Blade) >= len(p.qps) {
			b.Complete(i, rdma.StatusNoBlade)
			continue
		}
		q := p.qps[w.Blade]
		q.queue.push(request{b: b, i: i, post: f.posts})
		if f.cur == nil { // synchronous
			for q.queue.len() > 0 {
				q.step(Verbs)
			}
			q.place()
			p.reap()
		}
	}
}

// check decides whether a request may execute.
func (q *queuePair) check(w *rdma.WR) rdma.Status {
	f := q.p.f
	local, n := uint64(w.Local)+uint64(w.Len), uint64(w.Len)
	switch w.Op {
	case rdma.OpRead, rdma.OpWrite:
	case rdma.OpMaskedCAS:
		if local = uint64(w.Local) + 16; !f.o.Caps.MaskedCAS {
			return rdma.StatusBadOp
		}
	case rdma.OpCAS, rdma.OpFAA, rdma.OpFlush:
		local = 0
	default:
		return rdma.StatusBadOp
	}
	switch {
	case f.down[q.blade], q.gone:
		return rdma.StatusNoBlade
	case f.cutOff(q.p.client, q.blade):
		return rdma.StatusTimeout
	case local > uint64(len(q.p.arena)):
		return rdma.StatusLocal
	case !f.keys[q.blade].Opens(w.Key):
		return rdma.StatusKey
	case w.Off > f.o.Size || n > f.o.Size-w.Off:
		return rdma.StatusBounds
	case w.Op != rdma.OpRead && w.Op != rdma.OpWrite && w.Op != rdma.OpFlush && (w.Off%8 != 0 || n != 8):
		return rdma.StatusAlign
	}
	return rdma.StatusOK
}

// step executes the first request of the queue, or half of it.
func (q *queuePair) step(g Grain) {
	r := q.queue.front()
	w := r.b.WR(r.i)
	q.moved++
	c := completion{b: r.b, i: r.i, status: rdma.StatusFlushed}
	if !q.broken {
		if c.status = q.check(w); c.status != rdma.StatusOK {
			q.broken = true
		}
	}
	if c.status == rdma.StatusOK {
		halves := g == Words && (w.Op == rdma.OpRead || w.Op == rdma.OpWrite) && w.Len > 8
		switch {
		case halves && !r.half:
			q.copy(w, false, true)
			r.half = true
			return
		case r.half:
			q.copy(w, true, false)
		default:
			c.result = q.execute(w)
		}
		if f := q.p.f; f.Done != nil {
			f.Done(q.p.client, w)
		}
	}
	if q.p.ran == q.p.lose {
		c.status, q.broken = rdma.StatusTimeout, true
	}
	q.p.ran++
	q.queue.pop()
	q.p.done.push(c)
}

// execute executes a request at once, and returns the prior value of an atomic.
func (q *queuePair) execute(w *rdma.WR) uint64 {
	switch w.Op {
	case rdma.OpRead, rdma.OpWrite:
		q.copy(w, true, true)
		return 0
	case rdma.OpFlush:
		q.place()
		return 0
	}
	q.place()
	f := q.p.f
	word := f.mem[q.blade][w.Off : w.Off+8]
	old := binary.LittleEndian.Uint64(word)
	next := old
	switch w.Op {
	case rdma.OpCAS:
		if old == w.Cmp {
			next = w.Swap
		}
	case rdma.OpFAA:
		next = old + w.Swap
	case rdma.OpMaskedCAS:
		cmp, swap := binary.LittleEndian.Uint64(q.p.arena[w.Local:]), binary.LittleEndian.Uint64(q.p.arena[w.Local+8:])
		if old&cmp == w.Cmp&cmp {
			next = old&^swap | w.Swap&swap
		}
	}
	if next != old {
		f.touch(q.blade, w.Off, 8)
		binary.LittleEndian.PutUint64(word, next)
	}
	return old
}

// copy executes a READ or WRITE: the last words of lines, and, or, the other bytes.
func (q *queuePair) copy(w *rdma.WR, lasts, others bool) {
	if w.Len == 0 {
		q.place()
		return
	}
	f := q.p.f
	local := q.p.arena[w.Local : uint64(w.Local)+uint64(w.Len)]
	if w.Op == rdma.OpRead {
		q.place()
		each(w.Off, uint64(w.Len), lasts, others, func(at, n uint64) {
			copy(local[at:at+n], f.mem[q.blade][w.Off+at:])
		})
		return
	}
	each(w.Off, uint64(w.Len), lasts, others, func(at, n uint64) {
		q.landing = append(q.landing, landing{w.Off + at, n})
		q.landed = append(q.landed, local[at:at+n]...)
	})
	if f.o.Caps.Placed {
		q.place()
	}
}

// each calls fn for the parts of [off, off+n) that are meant, relative to off.
func each(off, n uint64, lasts, others bool, fn func(at, n uint64)) {
	if lasts && others {
		fn(0, n)
		return
	}
	for at := uint64(0); at < n; {
		in := (off + at) % rdma.LineSize
		end := at + rdma.LineSize - in
		last := end - 8
		if in > rdma.LineSize-8 {
			last = at
		}
		if others && min(last, n) > at {
			fn(at, min(last, n)-at)
		}
		if lasts && last < n {
			fn(last, min(end, n)-last)
		}
		at = end
	}
}

// place makes the WRITEs that are complete visible.
func (q *queuePair) place() {
	f := q.p.f
	at := uint64(0)
	for _, l := range q.landing {
		f.touch(q.blade, l.off, l.n)
		at += uint64(copy(f.mem[q.blade][l.off:], q.landed[at:at+l.n]))
	}
	q.forget()
}

// forget gives up WRITEs that are complete and not placed.
func (q *queuePair) forget() { q.landing, q.landed = q.landing[:0], q.landed[:0] }

func (p *port) reap() {
	for p.done.len() > 0 {
		c := *p.done.front()
		p.done.pop()
		if w := c.b.WR(c.i); c.status == rdma.StatusOK && w.Op != rdma.OpRead && w.Op != rdma.OpWrite {
			w.Result = c.result
		}
		c.b.Complete(c.i, c.status)
	}
}

// pollNs is what a Poll takes: others go on meanwhile.
const pollNs = 100

func (p *port) Poll() { p.Wait(p.f.now + pollNs) }

func (p *port) Wait(until int64) {
	f := p.f
	if p.dead && f.cur != nil {
		panic(stopped{})
	}
	if c := f.cur; c != nil {
		for p.done.len() == 0 && f.now < until {
			c.wait(p, until)
		}
	} else if p.done.len() == 0 {
		f.now = max(f.now, min(until, f.now+1<<40))
	}
	p.reap()
}

func (p *port) Now() int64 { return p.f.now }

func (p *port) Arena() []byte { return p.arena }

func (p *port) Reset(b rdma.BladeID) error {
	if int(b) >= len(p.qps) {
		return fmt.Errorf("steptest: blade %d: %w", b, rdma.ErrBladeDown)
	}
	if p.qps[b].queue.len() > 0 {
		return errors.New("steptest: Reset of a queue pair with outstanding requests")
	}
	if p.f.down[b] || p.f.cutOff(p.f.cur, b) {
		return stoppedBlade(b)
	}
	p.qps[b].broken, p.qps[b].gone = false, false
	return nil
}

func (p *port) Close() error {
	for _, q := range p.qps {
		if q.queue.len() > 0 && !p.dead {
			return errors.New("steptest: Close of a port with outstanding requests")
		}
		q.place()
	}
	return nil
}
