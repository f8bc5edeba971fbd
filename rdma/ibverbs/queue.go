package ibverbs

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"txnode/rdma"
)

// queuePair is a queue pair to one blade. Its slots are a ring: those from head to tail have not
// completed, in the order in which they were posted. A slot is a request of the device, or one that
// was refused here, which waits for those before it.
//
// Only the last request of a chain is signalled: its completion says that all before it have
// succeeded. After a failure the device reports every request that is left.
type queuePair struct {
	p      *port
	blade  rdma.BladeID
	server int
	index  uint16
	pair   pair // nil: there is none
	handle unsafe.Pointer

	base     uint64 // address of the region at the blade
	size     uint64
	mask     rdma.Key
	readOnly bool
	flushes  bool // both sides know FLUSH
	built    bool // the chain has one
	inline   uint32

	// dead is with what requests end that are posted now; StatusOK: it is in order.
	dead rdma.Status
	// broken: the device's queue pair is not connected any more. Else requests that were refused
	// here are all that is wrong.
	broken  bool
	failed  bool        // the device has reported a failure, and
	flushed rdma.Status // this is how those behind it end

	head, tail uint32
	origin     uint32 // of the numbers: number n has slot (n - origin) mod the number of slots
	slots      []slot
	requests   []request
	results    uint32 // of the words of the port: where those of this one begin
	id         uint64 // blade and generation, of completions
	first      *request
	last       *request
	since      int64 // when it was first seen that nothing completes; 0: it was not

	// Of a request in parts whose last part has not completed: a part had effect, and with what the
	// first one ended that failed.
	begun bool
	whole rdma.Status
}

// slot is a request that has not completed.
type slot struct {
	b       *rdma.Batch // nil: a part of the next one
	i       int32
	refused rdma.Status // StatusOK: the device has it
	atomic  bool
}

func (q *queuePair) init(p *port, b rdma.BladeID, depth int, requests []byte) {
	*q = queuePair{p: p, blade: b, dead: rdma.StatusNoBlade, broken: true, slots: make([]slot, depth)}
	q.results = uint32(depth) * uint32(b)
	q.requests = unsafe.Slice((*request)(unsafe.Pointer(&requests[0])), depth)
	q.id = uint64(b) << 48
	for i := range q.requests {
		r := &q.requests[i]
		r.elements = 1
		r.list = unsafe.Pointer(&r.element)
		r.element.key = p.lkey
	}
}

// renew has a queue pair of the device that was never used: one that is reset to be used again may
// still hear late packets of its former partner, by which Soft-RoCE puts it into the error state.
// Nothing is outstanding.
func (q *queuePair) renew() (err error) {
	q.dead, q.broken, q.failed = rdma.StatusNoBlade, true, false
	q.id += 1 << 32 // completions of before are none of this one's
	if q.id>>48 != uint64(q.blade) {
		q.id = uint64(q.blade) << 48
	}
	if q.pair != nil {
		_ = q.pair.close() // the next one is made all the same
		q.pair = nil
	}
	if q.pair, err = q.p.queue.newPair(len(q.slots), q.p.f.flush); err != nil {
		return err
	}
	q.handle, q.inline = q.pair.handle(), q.pair.inline()
	return nil
}

// attach connects the device's queue pair to its partner.
func (q *queuePair) attach(theirs *ends, r *row, a *answer) error {
	if a.result != resultDone {
		return down(q.blade, refusal(a.result))
	}
	if err := q.pair.connect(meet(&q.p.f.ends, theirs, a.number, r.first, a.first)); err != nil {
		return err
	}
	q.base, q.size, q.mask, q.readOnly = a.address, a.size, rdma.Key(a.mask), a.readOnly
	q.flushes = a.flush && q.pair.flushes()
	q.dead, q.broken, q.failed, q.since = rdma.StatusOK, false, false, 0
	return nil
}

// Post hands requests to the device, one doorbell for each blade.
func (p *port) Post(b *rdma.Batch, first int) {
	wrs := b.WRs()
	for i := first; i < len(wrs); i++ {
		w := &wrs[i]
		if int(w.Blade) >= len(p.pairs) {
			b.Complete(i, rdma.StatusNoBlade)
			continue
		}
		if q := &p.pairs[w.Blade]; !q.quick(b, i, w) {
			q.post(b, i, w)
		}
	}
	p.ring()
}

// post is quick for all requests, in order or not.
func (q *queuePair) post(b *rdma.Batch, i int, w *rdma.WR) {
	s := q.dead
	if s == rdma.StatusOK {
		if s = q.check(w); s == rdma.StatusOK {
			q.append(b, i, w)
			return
		}
		q.dead = rdma.StatusFlushed
	}
	q.refuse(b, i, s)
}

// quick is post for requests as the engine has them, in one function, because what it does costs as
// much as calls would. false: it is another one, and nothing was done.
func (q *queuePair) quick(b *rdma.Batch, i int, w *rdma.WR) bool {
	out := q.tail - q.head
	if out == 0 {
		q.origin = q.tail // the slots that were used last are in the cache
	}
	if out >= uint32(len(q.slots)) || q.dead != rdma.StatusOK || w.Key == 0 || q.readOnly {
		return false
	}
	off := w.Off
	at := (q.tail - q.origin) & uint32(len(q.slots)-1)
	r, s := &q.requests[at], &q.slots[at]
	switch w.Op {
	case rdma.OpRead, rdma.OpWrite:
		n := w.Len
		if n-1 >= q.p.longest || uint64(w.Local)+uint64(n) > uint64(len(q.p.arena)) || off > q.size ||
			uint64(n) > q.size-off {
			return false
		}
		s.atomic = false
		r.second = uint64(uint32(w.Key ^ q.mask))
		r.element.address, r.element.length = q.p.memory+uint64(w.Local), n
		r.opcode, r.flags = opcodeRead, uint32(w.Flags&rdma.FlagFence) // the same bit
		if w.Op == rdma.OpWrite {
			if r.opcode = opcodeWrite; n <= q.inline {
				r.flags |= flagInline
			}
		}
	case rdma.OpCAS, rdma.OpFAA:
		if off&7 != 0 || off > q.size || q.size-off < 8 {
			return false
		}
		s.atomic = true
		r.key = uint32(w.Key ^ q.mask)
		r.element.address, r.element.length = q.p.words+uint64(8*(q.results+at)), 8
		r.opcode, r.flags, r.second, r.swap = opcodeCAS, uint32(w.Flags&rdma.FlagFence), w.Cmp, w.Swap
		if w.Op == rdma.OpFAA {
			r.opcode, r.second, r.swap = opcodeFAA, w.Swap, 0
		}
	default:
		return false
	}
	s.b, s.i, s.refused = b, int32(i), rdma.StatusOK
	r.id = q.id | uint64(q.tail)
	r.address = q.base + off
	q.link(r)
	return true
}

// link adds an encoded request to the chain.
func (q *queuePair) link(r *request) {
	if q.first == nil {
		q.first = r
		q.p.ringing = append(q.p.ringing, q)
	} else {
		q.last.next = unsafe.Pointer(r)
	}
	q.last = r
	q.tail++
	q.p.out++
}

// check finds what can be found here. The device checks again.
func (q *queuePair) check(w *rdma.WR) rdma.Status {
	off, n := w.Off, uint64(w.Len)
	switch w.Op {
	case rdma.OpRead, rdma.OpWrite:
		if uint64(w.Local)+n > uint64(len(q.p.arena)) {
			if n > q.size {
				return rdma.StatusBounds
			}
			return rdma.StatusLocal
		}
	case rdma.OpCAS, rdma.OpFAA:
		if n = 8; off&7 != 0 {
			return rdma.StatusAlign
		}
	case rdma.OpFlush:
	default:
		return rdma.StatusBadOp
	}
	switch {
	case off > q.size || n > q.size-off:
		return rdma.StatusBounds
	case q.readOnly && w.Op != rdma.OpRead && w.Op != rdma.OpFlush:
		return rdma.StatusAccess
	case w.Key == 0:
		return rdma.StatusKey
	}
	return rdma.StatusOK
}

// at is the slot of a number.
func (q *queuePair) at(n uint32) uint32 { return (n - q.origin) & uint32(len(q.slots)-1) }

// refuse fails a request that is not posted, behind those that are outstanding.
func (q *queuePair) refuse(b *rdma.Batch, i int, s rdma.Status) {
	if q.head == q.tail {
		q.p.done++
		b.Complete(i, s)
		return
	}
	if int(q.tail-q.head) == len(q.slots) {
		q.p.room(q)
		if q.head == q.tail {
			q.p.done++
			b.Complete(i, s)
			return
		}
	}
	q.slots[q.at(q.tail)] = slot{b: b, i: int32(i), refused: s}
	q.tail++
	q.p.out++
}

// append adds a request to the chain.
func (q *queuePair) append(b *rdma.Batch, i int, w *rdma.WR) {
	n := w.Len
	for off := uint32(0); n > q.p.longest && (w.Op == rdma.OpRead || w.Op == rdma.OpWrite); {
		// A part: the whole is checked, and the device executes the parts in order.
		part := *w
		part.Off, part.Local, part.Len = w.Off+uint64(off), w.Local+off, q.p.longest
		if !q.take(nil, i, &part) {
			q.refuse(b, i, rdma.StatusTimeout) // parts of it may have taken effect
			return
		}
		off += q.p.longest
		if n -= q.p.longest; n <= q.p.longest {
			part = *w
			part.Off, part.Local, part.Len = w.Off+uint64(off), w.Local+off, n
			if !q.take(b, i, &part) {
				q.refuse(b, i, rdma.StatusTimeout)
			}
			return
		}
	}
	if !q.take(b, i, w) {
		q.refuse(b, i, q.dead)
	}
}

// take encodes a request of the device; false: the queue pair broke before there was room.
func (q *queuePair) take(b *rdma.Batch, i int, w *rdma.WR) bool {
	if int(q.tail-q.head) == len(q.slots) {
		if q.p.room(q); q.dead != rdma.StatusOK {
			return false
		}
	}
	at := q.at(q.tail)
	s := &q.slots[at]
	s.b, s.i, s.refused, s.atomic = b, int32(i), rdma.StatusOK, false
	r := &q.requests[at]
	r.id = q.id | uint64(q.tail)
	r.flags = uint32(w.Flags & rdma.FlagFence) // the same bit
	key := uint32(w.Key ^ q.mask)
	switch {
	case w.Op == rdma.OpRead && w.Len > 0:
		r.opcode, r.address, r.second = opcodeRead, q.base+w.Off, uint64(key)
		r.element.address, r.element.length = q.p.memory+uint64(w.Local), w.Len
	case w.Op == rdma.OpWrite && w.Len > 0:
		r.opcode, r.address, r.second = opcodeWrite, q.base+w.Off, uint64(key)
		r.element.address, r.element.length = q.p.memory+uint64(w.Local), w.Len
		if w.Len <= q.inline {
			r.flags |= flagInline
		}
	case w.Op == rdma.OpCAS:
		s.atomic = true
		r.opcode, r.address, r.second, r.swap, r.key = opcodeCAS, q.base+w.Off, w.Cmp, w.Swap, key
		r.element.address, r.element.length = q.p.words+uint64(8*(q.results+at)), 8
	case w.Op == rdma.OpFAA:
		s.atomic = true
		r.opcode, r.address, r.second, r.swap, r.key = opcodeFAA, q.base+w.Off, w.Swap, 0, key
		r.element.address, r.element.length = q.p.words+uint64(8*(q.results+at)), 8
	case w.Op == rdma.OpFlush && w.Len > 0 && q.flushes:
		r.opcode, r.address, r.second, r.swap = opcodeFlush, q.base+w.Off, uint64(key), uint64(w.Len)
		q.built = true
	default:
		// A request of no bytes, of which a device would look at neither memory nor key, or a
		// FLUSH that it does not know: a READ behind the WRITEs has them placed.
		last := w.Off
		if w.Len > 0 {
			last += uint64(w.Len) - 1
		}
		r.opcode, r.address, r.second = opcodeRead, q.base+min(last&^7, q.size-8), uint64(key)
		r.element.address, r.element.length = q.p.scratch, 8
	}
	q.link(r)
	return true
}

// ring posts the chains, one doorbell each, and reaps what is there.
func (p *port) ring() {
	if len(p.ringing) == 0 {
		return
	}
	p.chains = p.chains[:0]
	for _, q := range p.ringing {
		q.last.flags |= flagSignaled
		q.last.next = nil
		c := chain{pair: q.handle, first: unsafe.Pointer(q.first)}
		if q.built {
			c.built, q.built = 1, false
		}
		p.chains = append(p.chains, c)
		q.first, q.last = nil, nil
	}
	n := p.queue.ring(p.chains, p.reaped)
	var bad *queuePair
	for i := range p.chains {
		if p.chains[i].errno != 0 {
			bad = p.ringing[i]
			bad.broken, bad.dead = true, rdma.StatusFlushed
		}
	}
	p.ringing = p.ringing[:0]
	p.take(n)
	if bad != nil {
		p.mend()
	}
}

// mend severs queue pairs that the device has not taken requests of: what it has not taken does not
// complete.
func (p *port) mend() {
	for i := range p.pairs {
		if q := &p.pairs[i]; q.broken && !q.failed && q.head != q.tail {
			q.sever()
		}
	}
}

// room waits until a queue pair has room.
func (p *port) room(q *queuePair) {
	p.ring()
	for int(q.tail-q.head) == len(q.slots) {
		p.Wait(p.Now() + pollEvery)
	}
}

// take completes what was reaped, and reaps on.
func (p *port) take(n int) {
	for {
		for i := range p.reaped[:n] {
			c := &p.reaped[i]
			if b := c.id >> 48; b < uint64(len(p.pairs)) {
				p.pairs[b].completed(c)
			}
		}
		if n < len(p.reaped) {
			return
		}
		n = p.queue.poll(p.reaped)
	}
}

// completed takes a completion of the device.
func (q *queuePair) completed(c *completion) {
	if c.id>>32 != q.id>>32 {
		return
	}
	at := uint32(c.id)
	if at-q.head >= q.tail-q.head { // it has completed: those before may be flushed twice
		return
	}
	switch {
	case c.status == wcSuccess && !q.failed:
		q.finish(at+1, rdma.StatusOK)
	case !q.failed:
		q.failed, q.broken = true, true
		if q.dead == rdma.StatusOK {
			q.dead = rdma.StatusFlushed
		}
		if q.flushed = rdma.StatusTimeout; refused(c.status) {
			q.flushed = rdma.StatusFlushed
		}
		if report := q.p.f.o.Report; report != nil && c.status != wcRemoteAccess && c.status != wcFlushed {
			report(fmt.Errorf("ibverbs: blade %d: a request has failed: %s", q.blade, words(c.status)))
		}
		q.finish(at, rdma.StatusOK)
		q.finish(at+1, statusOf(c.status))
	default:
		q.finish(at+1, q.flushed)
	}
}

// finish completes the requests before one, which the device had, with a status. Those that were
// refused here have their own, also right behind.
func (q *queuePair) finish(to uint32, status rdma.Status) {
	n := q.head
	for ; q.head != q.tail; q.head++ {
		if status == rdma.StatusOK && !q.begun && q.whole == rdma.StatusOK && q.run(to) && q.head == q.tail {
			break
		}
		s := &q.slots[q.at(q.head)]
		end := status
		switch {
		case s.refused != rdma.StatusOK:
			end = s.refused
		case int32(to-q.head) <= 0:
			q.p.finished(q, q.head-n)
			return
		}
		if s.b == nil {
			q.begun = q.begun || end == rdma.StatusOK
			if q.whole == rdma.StatusOK {
				q.whole = end
			}
			continue
		}
		if q.begun || q.whole != rdma.StatusOK {
			end = q.together(end)
		}
		if s.atomic && end == rdma.StatusOK {
			s.b.WR(int(s.i)).Result = q.result(q.at(q.head))
		}
		s.b.Complete(int(s.i), end)
	}
	q.p.finished(q, q.head-n)
}

// run completes requests of one batch before number to, from the head on, which have succeeded; false:
// there is none at the head.
func (q *queuePair) run(to uint32) bool {
	at := q.at(q.head)
	first := q.slots[at]
	if first.b == nil || first.refused != rdma.StatusOK || int32(to-q.head) <= 0 {
		return false
	}
	last, n := first.i, 0
	for {
		s := &q.slots[at]
		if s.b != first.b || s.refused != rdma.StatusOK {
			break
		}
		if last = s.i; s.atomic {
			first.b.WR(int(s.i)).Result = q.result(at)
		}
		n++
		q.head++
		if q.head == to || q.head == q.tail {
			break
		}
		at = (at + 1) & uint32(len(q.slots)-1)
	}
	first.b.CompleteRun(int(first.i), int(last), n)
	return true
}

// result is the word that the device has written for the atomic of a slot.
func (q *queuePair) result(at uint32) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&q.p.mem[q.p.wordsAt+8*int(q.results+at)])))
}

// together is how a request in parts ends, whose last part has ended so. If a part had effect, and
// another one has none, the request is uncertain.
func (q *queuePair) together(last rdma.Status) rdma.Status {
	end := last
	if q.whole != rdma.StatusOK {
		end = q.whole
	}
	if end != rdma.StatusOK && q.begun && !end.Uncertain() {
		end = rdma.StatusInternal
	}
	q.begun, q.whole = false, rdma.StatusOK
	return end
}

// finished counts requests that have completed.
func (p *port) finished(q *queuePair, n uint32) {
	p.out -= int(n)
	p.done += uint64(n)
	q.since = 0
}

// sever ends whatever is outstanding: the device's queue pair is put into the error state, or
// destroyed.
func (q *queuePair) sever() {
	q.broken = true
	if q.dead == rdma.StatusOK {
		q.dead = rdma.StatusFlushed
	}
	if q.head == q.tail {
		return
	}
	var err error
	if !q.failed {
		err = q.pair.fail()
	}
	for until := q.p.Now() + severNs; err == nil && q.head != q.tail && q.p.Now() < until; {
		if !q.p.reap() {
			time.Sleep(50 * time.Microsecond)
		}
	}
	if q.head != q.tail { // the device is gone, or has not taken all
		_ = q.pair.close()
		q.pair = nil
		q.finish(q.tail, rdma.StatusTimeout)
	}
}

// severNs is how long a device may take to end what is outstanding.
const severNs = int64(time.Second)

// reap completes what is there; true: something.
func (p *port) reap() bool {
	if p.out == 0 {
		return false
	}
	was := p.done
	p.take(p.queue.poll(p.reaped))
	return p.done != was
}

// Poll completes what is there.
func (p *port) Poll() {
	if p.out == 0 {
		return
	}
	p.reap()
	if p.polls++; p.polls%256 == 0 {
		p.expire()
	}
}

// nearNs is how long before its end Wait does not sleep any more.
const nearNs = 20_000

// Wait returns when something has completed, or at the time.
func (p *port) Wait(until int64) {
	if p.out == 0 {
		p.idle(until)
		return
	}
	if p.reap() {
		return
	}
	now := p.Now()
	if spin := min(until, now+p.f.spin); spin > now {
		for p.Now() < spin {
			runtime.Gosched()
			if p.reap() {
				return
			}
		}
	}
	for was := p.done; p.done == was; {
		now = p.Now()
		if now >= until {
			return
		}
		if until-now < nearNs {
			runtime.Gosched()
			p.reap()
			continue
		}
		p.sleeper.sleep(min(until, now+pollEvery))
		if p.done == was {
			p.expire()
		}
	}
}

// idle waits for the time only: nothing is outstanding.
func (p *port) idle(until int64) {
	for until != forever {
		left := until - p.Now()
		if left <= 0 {
			return
		}
		if left > 2*nearNs {
			time.Sleep(time.Duration(left - nearNs))
			continue
		}
		runtime.Gosched()
	}
}

// expire severs the queue pairs that have waited too long, or whose server, or device, is gone.
func (p *port) expire() {
	now := p.Now()
	for i := range p.pairs {
		q := &p.pairs[i]
		switch {
		case q.broken && q.head == q.tail:
		case p.f.gone.Load(), !p.links[q.server].alive():
			q.sever()
		case q.head == q.tail:
		case q.since == 0:
			q.since = max(now, 1)
		case now-q.since >= int64(p.f.o.TCP.Verb):
			if q.sever(); p.f.o.Report != nil {
				p.f.o.Report(down(q.blade, errSilentVerb))
			}
		}
	}
}

// Quit severs the queue pairs that have something outstanding: rdma.Quitter.
func (p *port) Quit() {
	p.reap()
	for i := range p.pairs {
		if q := &p.pairs[i]; q.head != q.tail {
			q.sever()
		}
	}
}
