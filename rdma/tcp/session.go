package tcp

import (
	"fmt"
	"net"
	"runtime"
	"time"

	"txnode/rdma"
	"txnode/rdma/region"
)

// Buffers of a session: the first takes the longest frame and the second the longest reply,
// with room for more.
const (
	inSize  = 256 << 10
	outSize = 256 << 10
	turnMax = 256 // requests that are executed at one go
	_       = -uint((requestSize + maxPiece) / (inSize + 1))
	_       = -uint((replySize + maxPiece) / (outSize + 1))
)

// session is the blade's side of a data connection: it executes frames on a lane and replies.
// The lane's arena is its buffers, so a WRITE's payload is copied from where it was received to
// the region, and a READ's from the region to where it is sent from.
//
//	arena: | in: received, [start, end) not executed yet | out: replies of this turn |
//
// A turn executes what has been received completely, in order, at most turnMax requests and as
// many as surely have room for their replies. Then all replies are sent at once, and other
// sessions get the processor. One goroutine runs a session.
type session struct {
	conn  net.Conn
	lane  *region.Lane
	blade rdma.BladeID
	size  uint64 // of the region

	in, out    []byte // parts of the lane's arena
	start, end int    // of what was received
	full       int    // bytes of out
	number     uint32 // of the next frame

	wrs     [turnMax]rdma.WR
	places  [turnMax]uint32 // of the replies in out
	timeout time.Duration
	since   time.Time
	mayRead time.Duration // since since, for the rest of a frame; 0: no deadline
	readAt  uint32        // number when that was set
	mayTake time.Duration // as mayRead, for the client's taking of replies
	// stopping reports whether the server closes.
	stopping func() bool
	tally    tally
}

func newSession(set *region.Set, blade rdma.BladeID, timeout time.Duration) (*session, error) {
	lane, err := set.NewLane(inSize + outSize)
	if err != nil {
		return nil, err
	}
	a := lane.Arena()
	return &session{
		lane: lane, blade: blade, size: set.Blades()[blade].Size, timeout: timeout, since: time.Now(),
		in: a[:inSize:inSize], out: a[inSize : inSize+outSize],
	}, nil
}

// serve executes what the client sends until the connection ends: nil if the client has closed
// it between two frames, or the server is to close (stopping) and all that has been received
// is executed.
func (s *session) serve() error {
	for {
		more, err := s.turn()
		if s.full > 0 {
			if err := s.reply(); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		if more {
			runtime.Gosched()
			continue
		}
		if err := s.receive(); err != nil {
			if s.stopping() || s.start == s.end && closedByPeer(err) {
				return nil
			}
			return err
		}
	}
}

// reply sends the replies of a turn.
func (s *session) reply() error {
	// The deadline is set anew when half of it has passed: to set it costs as much as a verb.
	if now := time.Since(s.since); now > s.mayTake-s.timeout/2 {
		s.mayTake = now + s.timeout
		if err := s.conn.SetWriteDeadline(s.since.Add(s.mayTake)); err != nil {
			return err
		}
	}
	_, err := s.conn.Write(s.out[:s.full])
	s.full = 0
	return err
}

// receive waits for more of what the client sends: for ever between frames, within a frame not
// longer than the timeout.
func (s *session) receive() error {
	switch {
	case s.start == s.end:
		s.start, s.end = 0, 0
	case s.end == len(s.in) || s.start > len(s.in)/2:
		// Frames are multiples of 8 bytes, so payloads stay aligned.
		s.end = copy(s.in, s.in[s.start:s.end])
		s.start = 0
	}
	if err := s.limit(s.end > s.start); err != nil {
		return err
	}
	n, err := s.conn.Read(s.in[s.end:])
	s.end += n
	if n > 0 {
		return nil
	}
	return err
}

// limit sets the deadline of the next Read: within a frame, or between two. It stays as it is for a
// frame whose rest is still awaited, and while half of it is left for the next one.
func (s *session) limit(within bool) error {
	until := time.Time{}
	switch {
	case !within && s.mayRead == 0:
		return nil
	case !within:
		s.mayRead = 0
	case s.mayRead != 0 && s.number == s.readAt:
		return nil
	default:
		now := time.Since(s.since)
		if s.mayRead != 0 && now < s.mayRead-s.timeout/2 {
			return nil
		}
		s.mayRead, s.readAt = now+s.timeout, s.number
		until = s.since.Add(s.mayRead)
	}
	if err := s.conn.SetReadDeadline(until); err != nil {
		return err
	}
	if s.stopping() { // which ends a Read by its deadline
		return errStopping
	}
	return nil
}

// turn executes requests that have been received, and encodes their replies. More says that
// there are complete requests left. An error says that the client breaks the protocol.
func (s *session) turn() (more bool, err error) {
	n, results := 0, false
	var r request
	for s.end-s.start >= requestSize {
		if k := s.reads(n); k > 0 {
			n += k
			continue
		}
		p := s.in[s.start:s.end]
		if err = r.get(p); err != nil {
			break
		}
		size, reply := r.size(), r.replySize()
		if len(p) < size {
			break
		}
		if n == turnMax || s.full+reply > len(s.out) || r.op == opReset && n > 0 {
			more = true
			break
		}
		if r.op == opReset {
			s.reset()
			continue
		}
		results = s.take(&r, p, n) || results
		s.answer(n, reply)
		s.start += size
		n++
	}
	if n == 0 {
		return more, err
	}
	failures := s.lane.Execute(s.wrs[:n])
	if failures > 0 || results {
		s.finish(n)
	}
	s.tally.now[countFailed] = uint64(failures)
	s.tally.publish()
	return more, err
}

// reads takes the READs at the head of what has been received, as requests n and behind,
// and returns how many. Most requests are such, and this is take for those of one piece
// and of whole words.
func (s *session) reads(n int) int {
	in, out := s.in[s.start:s.end], s.out
	full, number := s.full, s.number
	first := n
	for n < turnMax && len(in) >= requestSize {
		a, b := wire.Uint64(in), wire.Uint64(in[8:])
		size := uint32(a >> 32)
		if uint32(a) != uint32(opRead) || size > maxPiece || size&7 != 0 || b>>32 != 0 ||
			full+replySize+int(size) > len(out) {
			break
		}
		w := &s.wrs[n]
		w.Op, w.Blade, w.Key, w.Status = rdma.OpRead, s.blade, rdma.Key(b), rdma.StatusOK
		w.Off, w.Len, w.Local = wire.Uint64(in[16:]), size, uint32(inSize+full+replySize)
		s.places[n] = uint32(full)
		putReply(out[full:], number, rdma.StatusOK)
		full += replySize + int(size)
		in = in[requestSize:]
		number++
		n++
	}
	k := n - first
	s.tally.now[rdma.OpRead] += uint64(k)
	s.tally.now[countRead] += uint64(full - s.full - k*replySize)
	s.start += k * requestSize
	s.full, s.number = full, number
	return k
}

// take makes request n of the frame at the head of p; true: it has a result.
func (s *session) take(r *request, p []byte, n int) bool {
	w := &s.wrs[n]
	*w = rdma.WR{Blade: s.blade, Key: r.key, Off: r.off, Len: r.len}
	body := p[requestSize:]
	switch r.op {
	case opRead:
		s.tally.now[countRead] += uint64(r.len)
		w.Op, w.Local = rdma.OpRead, uint32(inSize+s.full+replySize)
		if r.len&7 != 0 { // the client gets no bytes that were left there
			wire.PutUint64(s.out[s.full+replySize+padded(r.len)-8:], 0)
		}
	case opWrite:
		s.tally.now[countWritten] += uint64(r.len)
		w.Op, w.Local = rdma.OpWrite, uint32(s.start+requestSize)
	case opCAS:
		w.Op, w.Cmp, w.Swap = rdma.OpCAS, wire.Uint64(body), wire.Uint64(body[8:])
	case opFAA:
		w.Op, w.Swap = rdma.OpFAA, wire.Uint64(body)
	case opMaskedCAS:
		w.Op, w.Cmp, w.Swap = rdma.OpMaskedCAS, wire.Uint64(body), wire.Uint64(body[8:])
		w.Local = uint32(s.start + requestSize + 16)
	case opFlush:
		w.Op = rdma.OpFlush
	default:
		w.Op = rdma.NumOps // the lane fails it, and whatever is behind
	}
	if r.rest == 0 && w.Op < rdma.NumOps {
		s.tally.now[w.Op]++
	}
	if r.rest != 0 && !s.fits(r) {
		w.Off = ^uint64(0) // no piece of a request that goes past the end has an effect
		w.Len = max(w.Len, 1)
	}
	return r.replySize() == replySize+8 && r.op != opRead
}

// answer begins the reply to request n, of so many bytes if it succeeds.
func (s *session) answer(n, size int) {
	s.places[n] = uint32(s.full)
	putReply(s.out[s.full:], s.number, rdma.StatusOK)
	s.full += size
	s.number++
}

// fits reports whether all of a request that comes in pieces is within the region, from this
// piece on.
func (s *session) fits(r *request) bool {
	n := uint64(r.len) + uint64(r.rest)
	return n <= s.size && r.off <= s.size-n
}

// finish puts results and failures into the replies to the last n frames.
func (s *session) finish(n int) {
	for i := range s.wrs[:n] {
		w := &s.wrs[i]
		if w.Status != rdma.StatusOK {
			s.fail(i, n)
			return
		}
		switch w.Op {
		case rdma.OpCAS, rdma.OpFAA, rdma.OpMaskedCAS:
			wire.PutUint64(s.out[s.places[i]+replySize:], w.Result)
		}
	}
}

// fail replaces the replies from request i of n on, which has failed: all those behind it on
// this queue pair have failed, too, and the replies are shorter.
func (s *session) fail(i, n int) {
	first := s.number - uint32(n)
	s.full = int(s.places[i])
	for ; i < n; i++ {
		putReply(s.out[s.full:], first+uint32(i), s.wrs[i].Status)
		s.full += replySize
	}
}

// reset executes a frame opReset.
func (s *session) reset() {
	status := rdma.StatusOK
	if s.lane.Reset(s.blade) != nil {
		status = rdma.StatusNoBlade
	}
	putReply(s.out[s.full:], s.number, status)
	s.full += replySize
	s.number++
	s.start += requestSize
}

// close gives up lane and buffers.
func (s *session) close() error {
	if err := s.lane.Close(); err != nil {
		return fmt.Errorf("tcp: %w", err)
	}
	return nil
}
