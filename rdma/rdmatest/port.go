package rdmatest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"txnode/rdma"
)

// port is the transport of one thread.
type port struct {
	f     *Fabric
	qps   []*queuePair
	arena []byte
	busy  int64 // until then the device works
	out   int   // outstanding
	done  []completion
	wake  func() // set while the thread waits
}

type completion struct {
	b      *rdma.Batch
	i      int
	status rdma.Status
	result uint64
}

// queuePair executes the requests to one blade in posted order.
type queuePair struct {
	p        *port
	blade    rdma.BladeID
	broken   bool
	out      int
	arrived  int64 // when the last request arrives
	readDone int64 // when the last READ or atomic has done its work
	finished int64 // when the last request completes
	landing  []landing
	result   uint64 // of the last atomic
}

// landing is a piece of a WRITE that has arrived and is not visible yet, in the
// order in which they become so.
type landing struct {
	at   int64
	off  uint64
	data []byte
}

// pollNs is what a Poll takes.
const pollNs = 20

// NewPort makes a port. Queue pairs are never shared: Policy is ignored.
func (f *Fabric) NewPort(cfg rdma.PortConfig) (rdma.Port, error) {
	if cfg.Arena <= 0 || cfg.Arena > 1<<30 {
		return nil, fmt.Errorf("rdmatest: arena of %d bytes", cfg.Arena)
	}
	p := &port{f: f, arena: newArena((cfg.Arena + 63) &^ 63)}
	for i := range f.mem {
		p.qps = append(p.qps, &queuePair{p: p, blade: rdma.BladeID(i)})
	}
	f.ports = append(f.ports, p)
	return p, nil
}

func (p *port) Post(b *rdma.Batch, first int) {
	for i := first; i < b.Len(); i++ {
		w := b.WR(i)
		p.out++
		if int(w.Blade) >= len(p.qps) {
			p.f.at(p.f.now, func() { p.complete(nil, completion{b: b, i: i, status: rdma.StatusNoBlade}) })
			continue
		}
		q := p.qps[w.Blade]
		for q.out >= p.f.o.Caps.MaxBatch {
			p.Wait(forever)
		}
		q.out++
		p.busy = max(p.busy, p.f.now) + p.f.o.ServiceNs(p.out)
		q.arrived = max(q.arrived+1, p.busy+p.f.o.LatencyNs/2)
		if w.Flags&rdma.FlagFence != 0 && p.f.o.Bug != FenceFlagIgnored {
			q.arrived = max(q.arrived, q.readDone)
		}
		if w.Op != rdma.OpWrite && w.Op != rdma.OpFlush {
			q.readDone = max(q.readDone, q.arrived+p.f.o.SpreadNs)
		}
		if p.f.o.Bug == KeysCheckedEarly && !p.f.opens(w.Blade, w.Key) {
			w.Op = rdma.NumOps
		}
		p.f.at(q.arrived, func() { q.execute(b, i) })
	}
	for p.f.o.Caps.Synchronous && p.out > 0 {
		p.Wait(forever)
	}
}

// execute is the arrival of request i of b at the blade.
func (q *queuePair) execute(b *rdma.Batch, i int) {
	f, w := q.p.f, b.WR(i)
	c := completion{b: b, i: i, status: rdma.StatusFlushed}
	if !q.broken {
		c.status = f.check(w, len(q.p.arena))
		if c.status == rdma.StatusOK && f.o.Fail != nil {
			c.status = f.o.Fail(w)
		}
		q.broken = c.status != rdma.StatusOK && f.o.Bug != NoErrorState
		if q.broken && f.o.Bug == OneErrorState {
			for _, other := range q.p.qps {
				other.broken = true
			}
		}
	}
	end := f.now
	switch {
	case c.status != rdma.StatusOK:
		if c.status == rdma.StatusBounds && f.o.Bug == BoundsLate && w.Op == rdma.OpWrite {
			copy(f.bytes(w.Blade, w.Off, uint64(w.Len)), q.p.arena[w.Local:])
		}
	case w.Op == rdma.OpWrite:
		end = q.write(w)
	case w.Op == rdma.OpRead:
		end = q.read(w)
	case w.Op == rdma.OpFlush:
		if f.o.Bug != FlushIgnored {
			q.place(forever)
			f.persist(w.Blade, w.Off, uint64(w.Len))
		}
	default:
		c.result = q.atomic(w)
	}
	q.finished = max(q.finished, end+f.o.LatencyNs/2)
	if f.o.Bug == CompletionsReordered {
		q.finished = end + f.o.LatencyNs/2 + f.rng.Int64N(f.o.SpreadNs)
	}
	f.at(q.finished, func() { q.p.complete(q, c) })
}

// atomic executes an atomic and returns its result.
func (q *queuePair) atomic(w *rdma.WR) uint64 {
	f := q.p.f
	if f.o.Bug != AtomicsOvertake {
		q.place(forever)
	}
	word := f.bytes(w.Blade, w.Off, 8)
	if len(word) < 8 {
		return 0
	}
	old, next := f.atomic(w, word, q.p.arena)
	put := func() {
		binary.LittleEndian.PutUint64(word, next)
		f.changed(w.Blade, w.Off, 8)
	}
	if f.o.Bug == AtomicsSplit {
		f.at(f.now+f.o.LatencyNs/2, put)
	} else {
		put()
	}
	result := old
	if f.o.Bug == ResultsMixedUp {
		result = q.result
	}
	q.result = old
	return result
}

// write takes the data and plans when it becomes visible, not before what is
// landing already; it returns when the WRITE completes.
func (q *queuePair) write(w *rdma.WR) int64 {
	f := q.p.f
	at := f.now
	if n := len(q.landing); n > 0 {
		at = q.landing[n-1].at
	}
	off, data := w.Off, slices.Clone(q.p.arena[w.Local:w.Local+w.Len])
	if f.o.Arrive != nil {
		f.o.Arrive(w, data)
	}
	switch f.o.Bug {
	case WholeWords:
		low := off &^ 7
		whole := slices.Clone(f.bytes(w.Blade, low, (uint64(len(data))+off-low+7)&^7))
		copy(whole[off-low:], data)
		off, data = low, whole
	case LongRequestsCut:
		data = data[:min(len(data), 1<<16)]
	case BlindToOddLengths:
		data = data[:len(data)&^7]
	}
	for _, c := range f.cut(f.now, off, uint64(len(data)), f.o.Caps.OrderedLine) {
		at = max(at, c.at)
		q.landing = append(q.landing, landing{at, off + c.off, data[c.off : c.off+c.size]})
		f.at(at, func() { q.place(f.now) })
	}
	if f.o.Caps.Placed {
		return at
	}
	return f.now
}

// place makes what has arrived and is due visible.
func (q *queuePair) place(due int64) {
	if q.p.f.o.Bug == WritesReordered {
		q.p.f.rng.Shuffle(len(q.landing), func(i, j int) {
			x, y := &q.landing[i], &q.landing[j]
			x.off, x.data, y.off, y.data = y.off, y.data, x.off, x.data
		})
	}
	n := 0
	for n < len(q.landing) && q.landing[n].at <= due {
		l := &q.landing[n]
		copy(q.p.f.bytes(q.blade, l.off, forever), l.data)
		q.p.f.changed(q.blade, l.off, uint64(len(l.data)))
		n++
	}
	q.landing = slices.Delete(q.landing, 0, n)
}

// read sees the WRITEs before it, and copies piece by piece; it returns when it is done.
func (q *queuePair) read(w *rdma.WR) int64 {
	f := q.p.f
	if f.o.Bug != ReadsOvertake {
		q.place(forever)
	}
	off, local := w.Off, uint64(w.Local)
	end := f.now
	for _, c := range f.cut(f.now, off, uint64(w.Len), f.o.Bug != LinesDownwards) {
		f.at(c.at, func() {
			copy(q.p.arena[local+c.off:local+c.off+c.size], f.bytes(q.blade, off+c.off, c.size))
		})
		end = c.at
	}
	return end
}

func (p *port) complete(q *queuePair, c completion) {
	p.out--
	if q != nil {
		q.out--
	}
	p.done = append(p.done, c)
	if p.wake != nil {
		p.wake()
	}
}

func (p *port) reap() {
	for len(p.done) > 0 {
		c := p.done[0]
		p.done = slices.Delete(p.done, 0, 1)
		if w := c.b.WR(c.i); c.status == rdma.StatusOK && w.Op != rdma.OpRead && w.Op != rdma.OpWrite {
			w.Result = c.result
		}
		c.b.Complete(c.i, c.status)
	}
}

func (p *port) Poll() {
	for until := p.f.now + pollNs; p.f.now < until; {
		p.f.wait(until, &p.wake)
	}
	p.reap()
}

func (p *port) Wait(until int64) {
	for len(p.done) == 0 && p.f.now < until {
		p.f.wait(until, &p.wake)
	}
	p.reap()
}

func (p *port) Now() int64 { return p.f.now }

func (p *port) Arena() []byte { return p.arena }

func (p *port) Reset(b rdma.BladeID) error {
	if int(b) >= len(p.qps) || p.f.down[b] {
		return fmt.Errorf("rdmatest: blade %d: %w", b, rdma.ErrBladeDown)
	}
	if p.qps[b].out > 0 {
		return errors.New("rdmatest: Reset of a queue pair with outstanding requests")
	}
	p.qps[b].broken = p.f.o.Bug == NoRecovery && p.qps[b].broken
	return nil
}

func (p *port) Close() error {
	if p.out > 0 || len(p.done) > 0 {
		return errors.New("rdmatest: Close of a port with outstanding requests")
	}
	for _, q := range p.qps {
		q.place(forever)
	}
	if i := slices.Index(p.f.ports, p); i >= 0 {
		p.f.ports = slices.Delete(p.f.ports, i, i+1)
	}
	freeArena(p.arena)
	p.arena = nil
	return nil
}

// arenas are some of those of closed ports, for the next. They are not cleared: what lies in
// registered memory is undefined until it is written, and clearing it took a quarter of the
// time of tests that open the tools' large arena for each of some thousand cases.
var (
	arenas   [4][]byte
	arenasMu sync.Mutex
)

func newArena(size int) []byte {
	arenasMu.Lock()
	defer arenasMu.Unlock()
	for i, a := range arenas {
		if len(a) == size {
			arenas[i] = nil
			return a
		}
	}
	return make([]byte, size)
}

func freeArena(a []byte) {
	arenasMu.Lock()
	defer arenasMu.Unlock()
	copy(arenas[1:], arenas[:])
	arenas[0] = a
}
