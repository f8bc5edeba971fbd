package sim

import (
	"math"
	"math/bits"
	"slices"
)

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

// eventQueue holds the events to come, in order. Nearly all of them happen within
// microseconds of their making, so those go into a wheel of narrow buckets, each
// a sorted list of few; the rest, timers and timeouts, into a heap. The wheel
// turns with the clock: an event in it is less than a turn ahead, and is taken
// before the clock passes it.
type eventQueue struct {
	heads   [buckets]uint32 // 1 + node; 0: none
	words   [buckets / 64]uint64
	summary uint64 // of words that are not 0
	nodes   []eventNode
	free    uint32 // 1 + node
	near    int    // events in the wheel
	far     eventHeap
	now     int64
}

type eventNode struct {
	event
	next uint32 // 1 + node
}

const (
	bucketBits = 13 // 8 ns
	buckets    = 4096
)

func (q *eventQueue) len() int { return q.near + len(q.far) }

func (q *eventQueue) push(e event) {
	if e.t>>bucketBits-q.now>>bucketBits >= buckets {
		q.far.push(e)
		return
	}
	i := q.free
	if i == 0 {
		q.nodes = append(q.nodes, eventNode{})
		i = uint32(len(q.nodes))
	} else {
		q.free = q.nodes[i-1].next
	}
	n := &q.nodes[i-1]
	n.event = e
	b := e.t >> bucketBits % buckets
	at := &q.heads[b]
	if *at == 0 {
		q.words[b/64] |= 1 << (b % 64)
		q.summary |= 1 << (b / 64)
	}
	for *at != 0 && q.nodes[*at-1].before(e) {
		at = &q.nodes[*at-1].next
	}
	n.next = *at
	*at = i
	q.near++
}

// first returns the first bucket that has events. The wheel must not be empty.
func (q *eventQueue) first() int64 {
	b := q.now >> bucketBits % buckets
	w := b / 64
	if x := q.words[w] >> (b % 64); x != 0 {
		return b + int64(bits.TrailingZeros64(x))
	}
	s := q.summary &^ (2<<w - 1)
	if s == 0 {
		s = q.summary
	}
	w = int64(bits.TrailingZeros64(s))
	return w*64 + int64(bits.TrailingZeros64(q.words[w]))
}

// next is the time of the next event; forever when there is none.
func (q *eventQueue) next() int64 {
	t := int64(forever)
	if q.near > 0 {
		t = q.nodes[q.heads[q.first()]-1].t
	}
	if len(q.far) > 0 {
		t = min(t, q.far[0].t)
	}
	return t
}

// pop takes the next event and turns the wheel to it.
func (q *eventQueue) pop() event {
	if q.near == 0 {
		e := q.far.pop()
		q.now = e.t
		return e
	}
	b := q.first()
	i := q.heads[b]
	n := &q.nodes[i-1]
	if len(q.far) > 0 && q.far[0].before(n.event) {
		e := q.far.pop()
		q.now = e.t
		return e
	}
	q.heads[b] = n.next
	if n.next == 0 {
		if q.words[b/64] &^= 1 << (b % 64); q.words[b/64] == 0 {
			q.summary &^= 1 << (b / 64)
		}
	}
	n.next = q.free
	q.free = i
	q.near--
	q.now = n.t
	return n.event
}

// turn moves the clock to t, before which there is no event.
func (q *eventQueue) turn(t int64) { q.now = max(q.now, t) }

// all returns the events to come, in order.
func (q *eventQueue) all() []event {
	var out []event
	for _, i := range &q.heads {
		for ; i != 0; i = q.nodes[i-1].next {
			out = append(out, q.nodes[i-1].event)
		}
	}
	out = append(out, q.far...)
	slices.SortFunc(out, func(a, b event) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	return out
}

// filter drops the events that keep refuses.
func (q *eventQueue) filter(keep func(event) bool) {
	rest := q.all()
	now := q.now
	*q = eventQueue{now: now}
	for _, e := range rest {
		if keep(e) {
			q.push(e)
		}
	}
}
