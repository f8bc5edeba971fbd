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
// was refused here, which waits for those before it. The slots of requests that follow each other in a
// batch are a burst, of which the first alone says what they are.
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
	following  unsafe.Pointer // last.next, while the device has the chain
	since      int64          // when it was first seen that nothing completes; 0: it was not

	// Of a request in parts whose last part has not completed: a part had effect, and with what the
	// first one ended that failed.
	begun bool
	whole rdma.Status
}

// slot is the first of n requests, i and those behind it, that have not completed.
type slot struct {
	b       *rdma.Batch // nil: a part of the next one
	i       int32
	n       uint16
	refused rdma.Status // StatusOK: the device has it; else n is 1
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
		r.next = unsafe.Pointer(&q.requests[(i+1)%depth])
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
	for i := first; i < len(wrs); {
		w := &wrs[i]
		if int(w.Blade) >= len(p.pairs) {
			b.Complete(i, rdma.StatusNoBlade)
			i++
			continue
		}
		q := &p.pairs[w.Blade]
		n := q.burst(b, wrs, i)
		if i += n; n == 0 {
			q.post(b, i, w)
			i++
		}
	}
	p.ring()
}

// post hands over one request of any kind.
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

// burst encodes wrs[i:] for as long as they are for this queue pair, in order, and such as the engine
// has them, and returns how many these were. Everything that post does for them is in one loop,
// because what it does costs less than the calls would.
func (q *queuePair) burst(b *rdma.Batch, wrs []rdma.WR, i int) int {
	out := q.tail - q.head
	if out == 0 {
		q.origin = q.tail // the slots that were used last are in the cache
	}
	if q.dead != rdma.StatusOK || q.readOnly {
		return 0
	}
	requests := q.requests
	slots := uint32(len(requests))
	wrs = wrs[i:min(len(wrs), i+int(slots-out))]
	first := (q.tail - q.origin) & (slots - 1)
	at, tail := first, q.tail
	size, base, mask := q.size, q.base, q.mask
	arena, memory, longest := uint64(len(q.p.arena)), q.p.memory, q.p.longest
	var n int
	for n = range wrs {
		w := &wrs[n]
		off, key := w.Off, uint32(w.Key^mask)
		if w.Blade != q.blade || w.Key == 0 || off > size {
			goto done
		}
		r := &requests[at&uint32(len(requests)-1)]
		switch w.Op {
		case rdma.OpRead, rdma.OpWrite:
			if w.Len-1 >= longest || uint64(w.Local)+uint64(w.Len) > arena || uint64(w.Len) > size-off {
				goto done
			}
			r.opcode, r.flags = opcodeRead, uint32(w.Flags&rdma.FlagFence) // the same bit
			if w.Op == rdma.OpWrite {
				if r.opcode = opcodeWrite; w.Len <= q.inline {
					r.flags |= flagInline
				}
			}
			r.second = uint64(key)
			r.element.address, r.element.length = memory+uint64(w.Local), w.Len
		case rdma.OpCAS, rdma.OpFAA:
			if off&7 != 0 || size-off < 8 {
				goto done
			}
			r.opcode, r.flags, r.second, r.swap = opcodeCAS, uint32(w.Flags&rdma.FlagFence), w.Cmp, w.Swap
			if w.Op == rdma.OpFAA {
				r.opcode, r.second, r.swap = opcodeFAA, w.Swap, 0
			}
			r.key = key
			r.element.address, r.element.length = q.p.words+uint64(8*(q.results+at)), 8
		default:
			goto done
		}
		r.id = q.id | uint64(tail+uint32(n))
		r.address = base + off
		at = (at + 1) & (slots - 1)
	}
	n = len(wrs)
done:
	if n == 0 {
		return 0
	}
	q.slots[first] = slot{b: b, i: int32(i), n: uint16(n)}
	q.chain(first, (at-1)&(slots-1), uint32(n))
	return n
}

// chain adds n encoded requests, which are in slots from first to last, to what ring posts.
// Requests are linked as they follow each other, and those of a chain do.
func (q *queuePair) chain(first, last, n uint32) {
	if q.first == nil {
		q.first = &q.requests[first]
		q.p.ringing = append(q.p.ringing, q)
	}
	q.last = &q.requests[last]
	q.tail += n
	q.p.out += int(n)
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
	q.slots[q.at(q.tail)] = slot{b: b, i: int32(i), n: 1, refused: s}
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
	q.slots[at] = slot{b: b, i: int32(i), n: 1}
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
		r.opcode, r.address, r.second, r.swap, r.key = opcodeCAS, q.base+w.Off, w.Cmp, w.Swap, key
		r.element.address, r.element.length = q.p.words+uint64(8*(q.results+at)), 8
	case w.Op == rdma.OpFAA:
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
	q.chain(at, at, 1)
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
		q.following, q.last.next = q.last.next, nil
		c := chain{pair: q.handle, first: unsafe.Pointer(q.first)}
		if q.built {
			c.built, q.built = 1, false
		}
		p.chains = append(p.chains, c)
	}
	n := p.queue.ring(p.chains, p.reaped)
	for _, q := range p.ringing {
		q.last.next = q.following
		q.first = nil
	}
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
	for q.head != q.tail {
		at := q.at(q.head)
		s := q.slots[at]
		left := int32(to - q.head)
		if s.refused == rdma.StatusOK && left <= 0 {
			break
		}
		if status == rdma.StatusOK && s.refused == rdma.StatusOK && s.b != nil && !q.begun && q.whole == rdma.StatusOK {
			k := min(int(s.n), int(left))
			q.consume(&s, k)
			q.resultsOf(s.b, int(s.i), k, at)
			s.b.CompleteRun(int(s.i), int(s.i)+k-1, k)
			continue
		}
		q.consume(&s, 1)
		end := status
		if s.refused != rdma.StatusOK {
			end = s.refused
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
		if end == rdma.StatusOK {
			q.resultsOf(s.b, int(s.i), 1, at)
		}
		s.b.Complete(int(s.i), end)
	}
	q.p.finished(q, q.head-n)
}

// consume takes k requests of a burst from the head.
func (q *queuePair) consume(s *slot, k int) {
	q.head += uint32(k)
	if int(s.n) > k {
		q.slots[q.at(q.head)] = slot{b: s.b, i: s.i + int32(k), n: s.n - uint16(k)}
	}
}

// resultsOf gives n requests from i on, which have slots from at on, what atomics have found.
func (q *queuePair) resultsOf(b *rdma.Batch, i, n int, at uint32) {
	wrs := b.WRs()[i : i+n]
	for k := range wrs {
		if w := &wrs[k]; w.Op == rdma.OpCAS || w.Op == rdma.OpFAA {
			w.Result = q.result((at + uint32(k)) & uint32(len(q.slots)-1))
		}
	}
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
