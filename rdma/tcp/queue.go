package tcp

import (
	"errors"
	"fmt"

	"txnode/rdma"
)

// queuePair is a port's connection to a blade, with what is under way there.
//
//	ring: | head: sent or to be sent, no reply yet | tail
//
// Frames are numbered from 0 in the order in which they are posted; head and tail are
// such numbers modulo 2^32. Invariants: tail - head <= depth; the replies come in the order of
// the frames; without a link nothing is outstanding.
type queuePair struct {
	p     *port
	blade rdma.BladeID
	link  *link       // nil: none; what is posted fails with dead
	dead  rdma.Status // see link

	ring       []entry // a power of two of them
	mask       uint32
	depth      uint32
	head, tail uint32
	stamped    uint32 // the frames before this one have a time

	out     []byte // frames; those before sent are with the system
	sent    int
	blocked bool // the system took no more: the waiter looks out for when it does

	in         []byte // received, [start, end) not consumed
	start, end int
	landing    bool   // the payload of the READ at head is coming
	landed     uint32 // so many bytes of it have

	partial bool        // the request at head comes in pieces, and some are done
	failed  rdma.Status // how the first of these has failed
	effect  bool        // one of them has changed the region
	resetTo rdma.Status // how the last reset ended
}

// entry is a frame that has no reply yet.
type entry struct {
	b     *rdma.Batch // nil: a reset
	i     int32       // index of the request in b
	op    opcode
	more  bool   // a later piece completes the request
	n     uint32 // READ: bytes of payload
	local uint32 // READ: where they go in the arena
	sent  int64  // when, on the port's clock
}

// Buffers of a queue pair. A longer payload is read right into the arena; what is
// shorter than direct is cheaper to copy than to receive apart.
const (
	inRoom  = 64 << 10
	outRoom = 32 << 10
	direct  = 4 << 10
)

func (q *queuePair) init(p *port, b rdma.BladeID, depth int) {
	size := uint32(1)
	for size < uint32(depth) {
		size *= 2
	}
	*q = queuePair{
		p: p, blade: b, dead: rdma.StatusNoBlade, ring: make([]entry, size), mask: size - 1, depth: uint32(depth),
	}
	q.in, q.out = make([]byte, inRoom), make([]byte, 0, outRoom)
}

// attach gives the queue pair a new connection.
func (q *queuePair) attach(l *link) error {
	if err := q.p.waiter.add(l.fd); err != nil {
		l.close()
		return err
	}
	q.link = l
	q.head, q.tail, q.stamped = 0, 0, 0
	return nil
}

// post encodes request i of b.
func (q *queuePair) post(b *rdma.Batch, i int, w *rdma.WR) {
	if q.link == nil {
		b.Complete(i, q.dead)
		return
	}
	// Most requests are READs, so these do without what the others have in common.
	if w.Op == rdma.OpRead && w.Len <= maxPiece && uint64(w.Local)+uint64(w.Len) <= uint64(len(q.p.arena)) &&
		q.room(requestSize) {
		at := len(q.out)
		q.out = q.out[:at+requestSize]
		p := q.out[at : at+requestSize]
		wire.PutUint64(p, uint64(opRead)|uint64(w.Len)<<32)
		wire.PutUint64(p[8:], uint64(w.Key))
		wire.PutUint64(p[16:], w.Off)
		e := &q.ring[q.tail&q.mask]
		e.b, e.i, e.op, e.more, e.n, e.local = b, int32(i), opRead, false, w.Len, w.Local
		q.tail++
		q.p.out++
		return
	}
	q.encode(b, i, w)
}

// encode is post for all requests.
func (q *queuePair) encode(b *rdma.Batch, i int, w *rdma.WR) {
	r := request{op: opWrong}
	arena := uint64(len(q.p.arena))
	switch end := uint64(w.Local) + uint64(w.Len); w.Op {
	case rdma.OpRead, rdma.OpWrite:
		if end > arena {
			break
		}
		if w.Len > maxPiece {
			q.pieces(b, i, w)
			return
		}
		r = request{op: opcodes[w.Op], len: w.Len, key: w.Key, off: w.Off}
	case rdma.OpMaskedCAS:
		if end = uint64(w.Local) + 16; end > arena {
			break
		}
		fallthrough
	case rdma.OpCAS, rdma.OpFAA:
		if w.Len == 8 {
			r = request{op: opcodes[w.Op], len: 8, key: w.Key, off: w.Off}
		}
	case rdma.OpFlush:
		r = request{op: opFlush, len: w.Len, key: w.Key, off: w.Off}
	}
	size := r.size()
	if !q.room(size) && !q.makeRoom(size) {
		b.Complete(i, rdma.StatusFlushed)
		return
	}
	e := q.push(&r, size)
	e.b, e.i, e.n, e.local = b, int32(i), w.Len, w.Local
	body := q.out[len(q.out)-size+requestSize:]
	switch r.op {
	case opWrite:
		q.payload(body, w.Local, w.Len)
	case opCAS:
		wire.PutUint64(body, w.Cmp)
		wire.PutUint64(body[8:], w.Swap)
	case opFAA:
		wire.PutUint64(body, w.Swap)
	case opMaskedCAS:
		wire.PutUint64(body, w.Cmp)
		wire.PutUint64(body[8:], w.Swap)
		copy(body[16:32], q.p.arena[w.Local:])
	}
}

// payload copies n bytes of the arena into a frame's body, and zeros behind them.
func (q *queuePair) payload(body []byte, local, n uint32) {
	clear(body[copy(body, q.p.arena[local:local+n]):])
}

// pieces encodes a request that is too long for one frame. Its pieces end where a line of the
// region ends, so no word comes in two of them.
func (q *queuePair) pieces(b *rdma.Batch, i int, w *rdma.WR) {
	r := request{op: opcodes[w.Op], key: w.Key, off: w.Off, rest: w.Len}
	local := w.Local
	status := rdma.StatusFlushed // what it ends with if there is no connection any more
	for r.rest > 0 {
		r.len = min(r.rest, maxPiece-uint32(r.off%rdma.LineSize))
		r.rest -= r.len
		size := r.size()
		if !q.room(size) && !q.makeRoom(size) {
			b.Complete(i, status)
			return
		}
		status = rdma.StatusTimeout // pieces before this one may have arrived
		e := q.push(&r, size)
		e.b, e.i, e.n, e.local, e.more = b, int32(i), r.len, local, r.rest > 0
		if r.op == opWrite {
			q.payload(q.out[len(q.out)-size+requestSize:], local, r.len)
		}
		r.off += uint64(r.len)
		local += r.len
	}
}

// room reports whether a frame of so many bytes can be posted.
func (q *queuePair) room(size int) bool {
	return q.tail-q.head < q.depth && len(q.out)+size <= cap(q.out)
}

// push puts a frame at the end of those that are under way, and the caller adds the body.
func (q *queuePair) push(r *request, size int) *entry {
	at := len(q.out)
	q.out = q.out[:at+size]
	r.put(q.out[at:])
	e := &q.ring[q.tail&q.mask]
	*e = entry{op: r.op}
	q.tail++
	q.p.out++
	return e
}

// makeRoom sends and reaps until a frame of so many bytes can be posted; false: there is no
// connection any more.
func (q *queuePair) makeRoom(size int) bool {
	for q.link != nil {
		if q.flush(); q.link == nil {
			return false
		}
		if size > cap(q.out) && len(q.out) == 0 {
			q.out = make([]byte, 0, outRoom+requestSize+maxPiece)
		}
		if q.room(size) {
			return true
		}
		q.p.advance()
	}
	return false
}

// flush hands frames to the system, as many as it takes.
func (q *queuePair) flush() {
	if q.link == nil || q.sent == len(q.out) && !q.link.pending() {
		return
	}
	if q.stamped != q.tail {
		for now := q.p.Now(); q.stamped != q.tail; q.stamped++ {
			q.ring[q.stamped&q.mask].sent = now
		}
	}
	err := q.link.flush()
	for err == nil && q.sent < len(q.out) {
		var n int
		n, err = q.link.write(q.out[q.sent:])
		q.sent += n
		q.p.moved = q.p.moved || n > 0
	}
	switch {
	case err == nil:
		q.out, q.sent = q.out[:0], 0
	case errors.Is(err, errAgain):
		q.out, q.sent = q.out[:copy(q.out, q.out[q.sent:])], 0
	default:
		q.reap() // replies may have come before the end
		q.sever()
		return
	}
	if more := len(q.out) > 0 || q.link.pending(); more != q.blocked {
		q.blocked = more
		if q.p.waiter.writable(q.link.fd, more) != nil {
			q.sever()
		}
	}
}

// reap takes the replies that have come.
func (q *queuePair) reap() {
	for q.link != nil && q.head != q.tail {
		if q.start > 0 { // what is left is a part of a reply, a few bytes
			q.end = copy(q.in, q.in[q.start:q.end])
			q.start = 0
		}
		to := q.in[q.end:]
		e := &q.ring[q.head&q.mask]
		straight := q.landing && e.n-q.landed >= direct
		if straight {
			to = q.p.arena[e.local+q.landed : e.local+e.n]
		}
		n, err := q.link.read(to)
		if straight {
			q.landed += uint32(n)
		} else {
			q.end += n
		}
		if n > 0 && q.consume() != nil {
			q.sever()
			return
		}
		if err != nil {
			if !errors.Is(err, errAgain) {
				q.sever()
			}
			return
		}
		if q.link.drained(n, to) {
			return
		}
	}
}

// consume completes the requests whose replies have been received. An error says that the blade
// breaks the protocol.
func (q *queuePair) consume() error {
	for q.head != q.tail {
		q.reads()
		if q.head == q.tail {
			break
		}
		have := q.in[q.start:q.end]
		e := &q.ring[q.head&q.mask]
		if q.landing {
			if !q.land(e, have) {
				return nil
			}
			q.done(e, rdma.StatusOK)
			continue
		}
		if len(have) < replySize {
			return nil
		}
		status, size := rdma.StatusOK, replySize
		if wire.Uint64(have) != uint64(q.head) { // not the reply of a success
			var err error
			if status, err = getReply(have, q.head); err != nil {
				return err
			}
		}
		if status == rdma.StatusOK {
			switch e.op {
			case opRead:
				if size += padded(e.n); size > len(have) {
					q.start += replySize
					q.landing = true
					continue
				}
				copy(q.p.arena[e.local:e.local+e.n], have[replySize:])
			case opCAS, opFAA, opMaskedCAS:
				if size += 8; size > len(have) {
					return nil
				}
				e.b.WR(int(e.i)).Result = wire.Uint64(have[replySize:])
			case opWrong:
				return fmt.Errorf("%w: a request that cannot succeed has", ErrProtocol)
			}
		}
		q.start += size
		q.done(e, status)
	}
	if q.start != q.end {
		return fmt.Errorf("%w: %d bytes that answer nothing", ErrProtocol, q.end-q.start)
	}
	return nil
}

// reads completes the READs at head whose replies have come as a whole: it is consume for most of
// them.
func (q *queuePair) reads() {
	if q.landing || q.partial {
		return
	}
	have, arena := q.in[q.start:q.end], q.p.arena
	for q.head != q.tail && len(have) >= replySize && wire.Uint64(have) == uint64(q.head) {
		e := &q.ring[q.head&q.mask]
		size := replySize + padded(e.n)
		if e.op != opRead || e.more || size > len(have) {
			return
		}
		copy(arena[e.local:e.local+e.n], have[replySize:])
		have = have[size:]
		q.start += size
		b := e.b
		e.b = nil
		q.head++
		q.p.out--
		b.Complete(int(e.i), rdma.StatusOK)
	}
}

// land takes more of a READ's payload; true: all of it has come.
func (q *queuePair) land(e *entry, have []byte) bool {
	k := copy(q.p.arena[e.local+q.landed:e.local+e.n], have)
	q.landed += uint32(k)
	q.start += k
	pad := padded(e.n) - int(e.n)
	if q.landed < e.n || q.end-q.start < pad {
		return false
	}
	q.start += pad
	q.landing, q.landed = false, 0
	return true
}

// done ends the frame at head.
func (q *queuePair) done(e *entry, s rdma.Status) {
	b, i := e.b, int(e.i)
	e.b = nil
	q.head++
	q.p.out--
	if e.more || q.partial || s != rdma.StatusOK || b == nil {
		var completes bool
		if s, completes = q.verdict(b, i, e, s); !completes {
			return
		}
	}
	b.Complete(i, s)
}

// verdict is how the request ends that a frame belongs to, if the frame completes it.
func (q *queuePair) verdict(b *rdma.Batch, i int, e *entry, s rdma.Status) (status rdma.Status, completes bool) {
	if b == nil {
		q.resetTo = s
		return 0, false
	}
	if e.more || q.partial {
		if q.failed == rdma.StatusOK {
			q.failed = s
		}
		q.effect = q.effect || s == rdma.StatusOK && e.op == opWrite
		if q.partial = e.more; e.more {
			return 0, false
		}
		if s = q.failed; s != rdma.StatusOK && !s.Uncertain() && q.effect {
			s = rdma.StatusInternal // a part of the WRITE has taken effect
		}
		q.failed, q.effect = rdma.StatusOK, false
	}
	if e.op == opWrong && s == rdma.StatusBadOp {
		s = wrong(b.WR(i))
	}
	return s, true
}

// wrong says what is wrong with a request that was posted as opWrong.
func wrong(w *rdma.WR) rdma.Status {
	switch {
	case w.Op >= rdma.NumOps:
		return rdma.StatusBadOp
	case (w.Op == rdma.OpCAS || w.Op == rdma.OpFAA || w.Op == rdma.OpMaskedCAS) && w.Len != 8:
		return rdma.StatusAlign
	}
	return rdma.StatusLocal
}

// sever gives up the connection: what is outstanding may have taken effect, or still may.
func (q *queuePair) sever() {
	if q.link == nil {
		return
	}
	q.p.waiter.remove(q.link.fd)
	q.link.close()
	q.link, q.dead = nil, rdma.StatusFlushed
	q.out, q.sent, q.blocked = q.out[:0], 0, false
	q.start, q.end, q.landing, q.landed = 0, 0, false, 0
	for q.head != q.tail {
		q.done(&q.ring[q.head&q.mask], rdma.StatusTimeout)
	}
	q.partial, q.failed, q.effect = false, rdma.StatusOK, false // its last piece was not even posted
}

// expires is when the frame that waits longest will have waited too long.
func (q *queuePair) expires() int64 {
	sent := q.ring[q.head&q.mask].sent
	if q.head == q.stamped { // it is not sent before now
		sent = q.p.Now()
	}
	return sent + int64(q.p.f.o.Verb)
}

// reset has the blade take its side out of the error state; false: there is no connection any more.
func (q *queuePair) reset() bool {
	q.drain()
	r := request{op: opReset}
	if q.link == nil || !q.room(requestSize) && !q.makeRoom(requestSize) {
		return false
	}
	q.push(&r, requestSize)
	q.drain()
	return q.link != nil
}

// drain waits until nothing is outstanding.
func (q *queuePair) drain() {
	for q.head != q.tail {
		q.p.Wait(forever)
	}
}
