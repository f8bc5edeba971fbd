package log

import "txnode/internal/mutant"

// Ring allocates the space of a coordinator's log areas, which all have the same
// layout: a record has the same offset on every blade that it is written to.
// Not safe for concurrent use.
type Ring struct {
	size  uint32 // of what is in use
	max   uint32 // of the areas
	next  uint32
	spans []span // oldest first
	base  uint64 // token of spans[0]
}

type span struct {
	off, n uint32
	done   bool
}

// Token names a reservation.
type Token uint64

// recordAlign keeps records on lines of their own.
const recordAlign = 64

// NewRing makes a ring over the first size bytes of areas that have limit.
func NewRing(size, limit uint32) *Ring { return &Ring{size: size, max: limit} }

// Max is the length of the largest record that fits, when all is in use.
func (r *Ring) Max() int { return int(r.max) }

// Size is how many bytes are in use of the areas.
func (r *Ring) Size() int { return int(r.size) }

// Full reports whether all of the areas are in use.
func (r *Ring) Full() bool { return r.size >= r.max }

// Grow takes more of the areas into use.
func (r *Ring) Grow(size uint32) { r.size = max(r.size, min(size, r.max)) }

// Reserve finds n bytes, or ok is false: the caller waits until something was released,
// or lets the ring grow.
func (r *Ring) Reserve(n int) (off uint32, t Token, ok bool) {
	if n > int(r.size) {
		return 0, 0, false
	}
	need := (uint32(n) + recordAlign - 1) &^ (recordAlign - 1)
	need = min(need, r.size)
	if len(r.spans) == 0 { // nothing pending: stay on the lines that are warm
		r.next = need
		r.spans = append(r.spans, span{n: need})
		return 0, Token(r.base), true
	}
	off = r.next
	if off+need > r.size {
		off = 0
	}
	for i := range r.spans {
		if s := &r.spans[i]; off < s.off+s.n && s.off < off+need && !mutant.RingOverlap {
			return 0, 0, false
		}
	}
	r.next = off + need
	r.spans = append(r.spans, span{off: off, n: need})
	return off, Token(r.base + uint64(len(r.spans)) - 1), true
}

// Release gives a reservation back; in any order.
func (r *Ring) Release(t Token) {
	if len(r.spans) == 1 { // the usual case, and then it is t's
		r.base++
		r.spans = r.spans[:0]
		return
	}
	r.spans[uint64(t)-r.base].done = true
	k := 0
	for k < len(r.spans) && r.spans[k].done {
		k++
	}
	if k > 0 {
		r.base += uint64(k)
		r.spans = r.spans[:copy(r.spans, r.spans[k:])]
	}
}
