package rdma

import (
	"iter"
	"math"
)

// Coro is one line of control on a thread: a transaction in progress. Its
// methods may be called only by the function that Thread.Run runs on it, or,
// for the coroutine of Thread.Plain, by the thread's goroutine.
type Coro struct {
	t     *Thread
	id    int
	yield func(struct{}) bool // nil: plain, waits poll
	next  func() (struct{}, bool)
	wake  int64 // while sleeping
	// Count is where posted verbs are counted; never nil. A caller that wants
	// them by phase points it elsewhere, and adds up itself.
	Count    *Counters
	counters Counters
	op       opState
}

// Thread returns the thread that the coroutine runs on.
func (c *Coro) Thread() *Thread { return c.t }

// ID is the coroutine's number on its thread, from 0.
func (c *Coro) ID() int { return c.id }

// Multiplexed reports whether other coroutines of the thread run while this one waits.
func (c *Coro) Multiplexed() bool { return c.yield != nil && c.t.live > 1 }

// Plain returns the thread's coroutine for use without Run: its waits poll the
// port on the calling goroutine.
func (t *Thread) Plain() *Coro { return t.plain }

// Run runs n coroutines, fn once in each, until all have returned. They share
// the calling goroutine, which must stay the same for all calls of Run.
func (t *Thread) Run(n int, fn func(c *Coro)) {
	for i := range n {
		c := &Coro{t: t, id: i}
		c.Count = &c.counters
		next, stop := iter.Pull(func(yield func(struct{}) bool) {
			c.yield = yield
			fn(c)
		})
		defer stop()
		c.next = next
		t.live++
		t.ready.push(c)
	}
	for t.live > 0 {
		c := t.ready.pop()
		if c == nil {
			until := int64(math.MaxInt64)
			if len(t.sleepers) > 0 {
				until = t.sleepers[0].wake
			}
			t.wait(until)
			t.wakeSleepers()
			continue
		}
		t.cur = c
		if _, more := c.next(); !more {
			t.live--
			t.total.Add(&c.counters)
			t.conflict.left(t, c)
		}
		t.port.Poll()
		t.tick()
		if len(t.sleepers) > 0 {
			t.wakeSleepers()
		}
	}
	t.cur = nil
}

func (t *Thread) wakeSleepers() {
	if len(t.sleepers) == 0 {
		return
	}
	now := t.port.Now()
	for len(t.sleepers) > 0 && t.sleepers[0].wake <= now {
		t.ready.push(t.sleepers.pop())
	}
}

// park gives up the thread until something has pushed c to the ready ring.
func (c *Coro) park() { c.yield(struct{}{}) }

// Yield lets the other coroutines of the thread run. On a plain coroutine it polls once.
func (c *Coro) Yield() {
	if c.yield == nil {
		c.t.port.Poll()
		return
	}
	if c.t.live > 1 {
		c.t.ready.push(c)
		c.park()
	}
}

// Post hands the requests appended since the last Post to their queue pairs,
// one doorbell per blade. It waits for credits when the thread is throttled.
func (c *Coro) Post(b *Batch) {
	n := len(b.wrs) - b.posted
	if n == 0 {
		return
	}
	t := c.t
	if t.throttle.on {
		t.throttle.acquire(c, n)
	}
	k := c.Count
	for i := range b.n {
		k.Verbs[i] += uint64(b.n[i])
		b.n[i] = 0
	}
	k.BytesRead += b.rbytes
	k.BytesWrite += b.wbytes
	k.Doorbells += uint64(b.doorbells())
	b.rbytes, b.wbytes, b.blades = 0, 0, 0
	first := b.posted
	b.posted = len(b.wrs)
	b.pending += n
	b.c = c
	if t.fences.on {
		t.fences.posted(b, first)
	}
	t.port.Post(b, first)
}

// Wait returns when everything posted of the batch has completed: nil, or the
// *VerbError of the first request that failed. It counts one round trip.
func (c *Coro) Wait(b *Batch) error {
	c.Count.RoundTrips++
	if b.pending > 0 {
		c.await(b)
	}
	if c.t.fences.on {
		c.t.fences.completed(b)
	}
	if b.failed != 0 {
		return b.Err()
	}
	return nil
}

// Drain is Wait without counting a round trip, for requests that nobody waited
// for when they were posted.
func (c *Coro) Drain(b *Batch) error {
	if b.pending > 0 {
		c.await(b)
	}
	if c.t.fences.on {
		c.t.fences.completed(b)
	}
	return b.Err()
}

func (c *Coro) await(b *Batch) {
	t := c.t
	if c.yield == nil {
		for b.pending > 0 {
			t.wait(math.MaxInt64)
		}
		return
	}
	b.c = c
	for b.pending > 0 {
		b.waiting = true
		c.park()
	}
}

// Do is Post and Wait.
func (c *Coro) Do(b *Batch) error {
	c.Post(b)
	return c.Wait(b)
}

// Sleep waits for d nanoseconds of the fabric's clock.
func (c *Coro) Sleep(d int64) {
	t := c.t
	until := t.port.Now() + d
	if c.yield == nil {
		for t.port.Now() < until {
			t.wait(until)
		}
		return
	}
	c.wake = until
	t.sleepers.push(c)
	c.park()
}

// MaskedCAS executes a masked compare-and-swap of the word at a and returns the
// prior value; it took effect if prior&cmpMask == compare&cmpMask. On a fabric
// that lacks the verb it is emulated by READ and CAS, which is linearizable but
// not wait-free. local is 24 bytes of arena for masks and result.
func (c *Coro) MaskedCAS(b *Batch, a RemoteAddr, compare, cmpMask, swap, swapMask uint64, local uint32) (uint64, error) {
	t := c.t
	b.Reset()
	if t.caps.MaskedCAS {
		t.PutWord(local, cmpMask)
		t.PutWord(local+8, swapMask)
		i := b.MaskedCAS(a, compare, swap, local)
		err := c.Do(b)
		return b.wrs[i].Result, err
	}
	b.Read(a, local+16, 8)
	if err := c.Do(b); err != nil {
		return 0, err
	}
	old := t.Word(local + 16)
	for {
		if old&cmpMask != compare&cmpMask {
			return old, nil
		}
		b.Reset()
		i := b.CAS(a, old, old&^swapMask|swap&swapMask)
		if err := c.Do(b); err != nil {
			return 0, err
		}
		if prior := b.wrs[i].Result; prior == old {
			return old, nil
		} else {
			old = prior
		}
	}
}

// coroRing is a FIFO of coroutines.
type coroRing struct {
	buf        []*Coro
	head, size int
}

func (r *coroRing) push(c *Coro) {
	if r.size == len(r.buf) {
		grown := make([]*Coro, max(16, 2*len(r.buf)))
		for i := range r.size {
			grown[i] = r.buf[(r.head+i)%len(r.buf)]
		}
		r.buf, r.head = grown, 0
	}
	r.buf[(r.head+r.size)&(len(r.buf)-1)] = c
	r.size++
}

func (r *coroRing) pop() *Coro {
	if r.size == 0 {
		return nil
	}
	c := r.buf[r.head]
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.size--
	return c
}

// sleepHeap orders sleeping coroutines by wake time, then number.
type sleepHeap []*Coro

func (h sleepHeap) less(i, j int) bool {
	return h[i].wake < h[j].wake || h[i].wake == h[j].wake && h[i].id < h[j].id
}

func (h *sleepHeap) push(c *Coro) {
	*h = append(*h, c)
	s := *h
	for i := len(s) - 1; i > 0; {
		p := (i - 1) / 2
		if !s.less(i, p) {
			break
		}
		s[i], s[p] = s[p], s[i]
		i = p
	}
}

func (h *sleepHeap) pop() *Coro {
	s := *h
	top := s[0]
	n := len(s) - 1
	s[0] = s[n]
	s[n] = nil
	s = s[:n]
	*h = s
	for i := 0; ; {
		l := 2*i + 1
		if l >= n {
			break
		}
		if l+1 < n && s.less(l+1, l) {
			l++
		}
		if !s.less(l, i) {
			break
		}
		s[i], s[l] = s[l], s[i]
		i = l
	}
	return top
}
