package sim

import "math"

// event is one entry of the queue: 24 bytes without pointers, so that moving it
// costs no write barrier and the collector never looks at it.
type event struct {
	t   int64  // when, ps
	seq uint64 // ties: order of creation
	arg uint64 // kind 8 | b 24 | a 32, from high to low
}

// eventKind says what happens; a and b of the argument are given behind it.
type eventKind uint8

const (
	evResume   eventKind = iota // process a goes on, if its generation is b
	evTimer                     // process a waits no longer, if it still does
	evSubmit                    // the doorbell of group a reaches the device
	evEffect                    // request b of group a reaches memory
	evEffect2                   // second half of a divided request
	evPlace                     // a delayed WRITE is placed
	evComplete                  // group a has completed
	evRelease                   // lock a becomes free
	evFault                     // timed fault a begins
)

const (
	argB    = 24 // bits
	maskB   = 1<<argB - 1
	forever = math.MaxInt64
)

func (e event) kind() eventKind { return eventKind(e.arg >> (32 + argB)) }
func (e event) a() uint32       { return uint32(e.arg) }
func (e event) b() uint32       { return uint32(e.arg>>32) & maskB }

func (e event) before(x event) bool { return e.t < x.t || e.t == x.t && e.seq < x.seq }

// eventHeap is a 4-ary heap: half the levels of a binary one, and the children
// of a node share cache lines.
type eventHeap []event

func (h *eventHeap) push(e event) {
	s := append(*h, e)
	*h = s
	i := len(s) - 1
	for i > 0 {
		p := (i - 1) >> 2
		if !e.before(s[p]) {
			break
		}
		s[i] = s[p]
		i = p
	}
	s[i] = e
}

func (h *eventHeap) pop() event {
	s := *h
	top := s[0]
	n := len(s) - 1
	e := s[n]
	s = s[:n]
	*h = s
	if n == 0 {
		return top
	}
	i := 0
	for {
		c := i<<2 + 1
		if c >= n {
			break
		}
		m := c
		for j := c + 1; j < min(c+4, n); j++ {
			if s[j].before(s[m]) {
				m = j
			}
		}
		if !s[m].before(e) {
			break
		}
		s[i] = s[m]
		i = m
	}
	s[i] = e
	return top
}
