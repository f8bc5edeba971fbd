package log

// Ring allocates the space of a coordinator's log areas, which all have the same
// layout: a record has the same offset on every blade that it is written to. What the
// newest complete record takes is not given away, although its transaction is at rest:
// a coordinator that is killed in the middle of writing the next one, and has written half
// of it, must be known to have come so far (layout.Verdict). Not safe for concurrent use.
type Ring struct {
	size  uint32 // of what is in use
	max   uint32 // of the areas
	next  uint32
	spans []span // oldest first
	base  uint64 // token of spans[0]
	last  span   // of the newest complete record at rest; n 0: there is none
	lastT Token
}

type span struct {
	off, n uint32
	done   bool
	seq    uint64 // that was given to Reserve
}

// end is where what is behind the span begins.
func (s *span) end() uint32 { return s.off + s.n }

// Token names a reservation.
type Token uint64

// recordAlign keeps records on lines of their own.
const recordAlign = 64

// NewRing makes a ring over the first size bytes of areas that have limit.
func NewRing(size, limit uint32) *Ring { return &Ring{size: size, max: limit} }

// Max is the length of the largest record that fits, when all is in use: beside it there is
// always room for a mark.
func (r *Ring) Max() int { return int(r.max) - recordAlign }

// Size is how long a record may be as long as no more of the areas is in use.
func (r *Ring) Size() int { return int(r.size) - recordAlign }

// Full reports whether all of the areas are in use.
func (r *Ring) Full() bool { return r.size >= r.max }

// Grow takes more of the areas into use.
func (r *Ring) Grow(size uint32) { r.size = max(r.size, min(size, r.max)) }

// Reserve finds n bytes, or ok is false: the caller waits until something was released, lets
// the ring grow, or, if Blocked, writes a mark. seq is the newest number that the
// coordinator has given to a transaction.
func (r *Ring) Reserve(n int, seq uint64) (off uint32, t Token, ok bool) {
	if n > r.Size() {
		return 0, 0, false
	}
	need := (uint32(n) + recordAlign - 1) &^ (recordAlign - 1)
	if len(r.spans) == 0 { // nothing pending: stay on the lines that are warm
		if need > r.last.off && r.last.n > 0 {
			if off = r.last.end(); off+need > r.size {
				return 0, 0, false
			}
		}
		return off, r.take(off, need, seq), true
	}
	off = r.next
	if off+need > r.size {
		off = 0
	}
	if off < r.last.end() && r.last.off < off+need {
		if off = r.last.end(); off+need > r.size {
			return 0, 0, false
		}
	}
	for i := range r.spans {
		if s := &r.spans[i]; off < s.end() && s.off < off+need {
			return 0, 0, false
		}
	}
	return off, r.take(off, need, seq), true
}

func (r *Ring) take(off, n uint32, seq uint64) Token {
	r.next = off + n
	r.spans = append(r.spans, span{off: off, n: n, seq: seq})
	return Token(r.base + uint64(len(r.spans)) - 1)
}

// Blocked reports, when Reserve has failed, whether nothing but the newest complete record
// is in the way. A mark, when it is complete, is not: it lies at an end of what is in use.
func (r *Ring) Blocked() bool { return len(r.spans) == 0 && r.last.n > 0 }

// Mark reserves the space of a record without entries, of HeaderSize, at the beginning or
// the end of what is in use. No acknowledged transaction has a larger number than seq. The
// ring is Blocked.
func (r *Ring) Mark() (off uint32, t Token, seq uint64) {
	if r.last.off < recordAlign {
		off = r.size - recordAlign
	}
	return off, r.take(off, recordAlign, r.last.seq), r.last.seq
}

// Release gives a reservation back; in any order. complete: its record was written to all
// the blades that it is for, and is durable where that counts.
func (r *Ring) Release(t Token, complete bool) {
	if len(r.spans) == 1 { // the usual case, and then it is t's
		if complete {
			r.last, r.lastT = r.spans[0], t
		}
		r.base++
		r.spans = r.spans[:0]
		return
	}
	s := &r.spans[uint64(t)-r.base]
	if complete && (t > r.lastT || r.last.n == 0) {
		r.last, r.lastT = *s, t
	}
	s.done = true
	k := 0
	for k < len(r.spans) && r.spans[k].done {
		k++
	}
	if k > 0 {
		r.base += uint64(k)
		r.spans = r.spans[:copy(r.spans, r.spans[k:])]
	}
}
