package rdma

import (
	"context"
	"iter"
	"math"
	"math/bits"
	"runtime/debug"
	"slices"
)

// Coro is one line of control on a thread: a transaction in progress. Its
// methods may be called only by the function that Thread.Run runs on it, or,
// for the coroutine of Thread.Plain, by the thread's goroutine.
type Coro struct {
	t     *Thread
	id    int
	yield func(struct{}) bool // nil: plain, waits poll
	next  func() (struct{}, bool)
	stop  func()
	wake  int64           // while sleeping
	need  int             // credits, while waiting for them
	since uint64          // throttle.granted when it began to
	done  bool            // fn has returned
	child bool            // of an Each
	heeds context.Context // see Heed; nil: none
	ended int64           // when it was seen first that heeds has ended; 0: it was not
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
// the calling goroutine, which must stay the same for all calls of Run, and take
// turns: one runs until it waits, then the one that has been ready longest. Run
// does not nest.
//
// When fn panics (or ends its goroutine, as testing.T.FailNow does), Run stops the
// other coroutines where they wait, running their deferred calls, and panics too. What
// these calls post is not posted: they do not know how far the coroutine had come.
// Requests may then be outstanding: the thread is good for Close only, unless
// the fabric is synchronous.
func (t *Thread) Run(n int, fn func(c *Coro)) {
	if t.live > 0 {
		panic("rdma: Thread.Run inside Thread.Run")
	}
	t.panicked = nil
	defer t.abandon()
	for i := range n {
		t.spawn(i, fn)
	}
	if d, ok := t.port.(Driver); ok && d.Drive(&Loop{t: t}) {
		return
	}
	for t.live > 0 {
		c := t.ready.pop()
		if c == nil {
			until := int64(forever)
			if len(t.sleepers) > 0 {
				until = t.sleepers[0].wake
			}
			t.wait(until)
		} else {
			c.next()
			t.poll()
		}
		if len(t.sleepers) > 0 {
			t.wakeSleepers()
		}
	}
}

// spawn makes a coroutine, which runs when its turn comes.
func (t *Thread) spawn(id int, fn func(c *Coro)) *Coro {
	c := &Coro{t: t, id: id}
	c.Count = &c.counters
	c.next, c.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() { c.end(recover()) }()
		c.yield = yield
		fn(c)
	})
	t.coros = append(t.coros, c)
	t.live++
	t.ready.push(c)
	return c
}

// stopped is what unwinds a coroutine whose Run is being abandoned.
type stopped struct{}

// end is deferred by every coroutine; r is what it panicked with.
func (c *Coro) end(r any) {
	c.EndOp()
	c.done = true
	c.t.live--
	if r != nil && r != (stopped{}) {
		if c.t.panicked == nil {
			c.t.panicked = debug.Stack()
		}
		panic(r)
	}
}

// Panicked returns the stack of the coroutine whose panic has ended the last Run, nil if none
// has: Run panics with the same value, but on its caller's stack.
func (t *Thread) Panicked() []byte { return t.panicked }

// abandon is deferred by Run: it collects the counters and, after a panic,
// unwinds the coroutines that are left.
func (t *Thread) abandon() {
	defer func() {
		clear(t.coros)
		t.coros = t.coros[:0]
		t.live = 0 // those that had not even begun
		t.ready, t.fences.queue, t.conflict.queue = coroRing{}, coroRing{}, coroRing{}
		t.throttle.waiting = nil
		t.sleepers = nil
		t.conflict.active = 0
		if t.plain.op.in {
			t.conflict.active = 1
		}
	}()
	port := t.port
	t.port = &unwinding{port}
	defer func() { t.port = port }()
	for _, c := range t.coros {
		if !c.done {
			c.unwind()
		}
		t.total.Add(&c.counters)
	}
}

// unwinding is the port of a thread whose coroutines are being unwound: any use of it is a mistake.
type unwinding struct{ Port }

func (*unwinding) Post(*Batch, int)    { panic(stopped{}) }
func (*unwinding) Poll()               { panic(stopped{}) }
func (*unwinding) Wait(int64)          { panic(stopped{}) }
func (*unwinding) Reset(BladeID) error { panic(stopped{}) }

// Unwinding reports whether the coroutine is being unwound since another one has panicked: see
// Thread.Run. Requests of the thread may be under way then, and read its arena.
func (c *Coro) Unwinding() bool {
	_, ok := c.t.port.(*unwinding)
	return ok
}

// unwind stops the coroutine where it waits. Its deferred calls may panic, on a thread
// that is gone: the panic that is under way already is the one that counts, and the
// other coroutines are to be stopped, too.
func (c *Coro) unwind() {
	defer func() { _ = recover() }()
	c.stop()
}

func (t *Thread) wakeSleepers() {
	now := t.port.Now()
	for len(t.sleepers) > 0 && t.sleepers[0].wake <= now {
		t.ready.push(t.sleepers.pop())
	}
}

// park gives up the thread until something has pushed c to the ready ring.
func (c *Coro) park() {
	if !c.yield(struct{}{}) {
		panic(stopped{})
	}
}

// Yield lets the other coroutines of the thread run, and the transport make
// progress.
func (c *Coro) Yield() {
	if c.yield == nil || c.t.live == 1 {
		c.t.poll()
		return
	}
	c.t.ready.push(c)
	c.park()
}

// Post hands the requests appended since the last Post to their queue pairs, one doorbell per
// blade. It waits for credits when the thread is throttled. If one is for a blade that the thread
// does without (Thread.Bar), none is posted, and the batch fails with ErrBarred.
func (c *Coro) Post(b *Batch) {
	first := b.posted
	n := len(b.wrs) - first
	if n == 0 {
		return
	}
	t := c.t
	if b.tally.blades&t.barred != 0 {
		b.refuse(c)
		return
	}
	if t.tracks {
		t.admit(c, b)
	}
	// Counting is written out here: a call would be a tenth of what a Post costs.
	k, y, ops := c.Count, &b.tally, b.tally.ops
	if n > opMask {
		k.recount(b.wrs[first:])
		ops = 0
	}
	k.Verbs[OpRead] += ops & opMask
	k.Verbs[OpWrite] += ops >> opBits & opMask
	if ops >>= 2 * opBits; ops != 0 {
		k.Verbs[OpCAS] += ops & opMask
		k.Verbs[OpFAA] += ops >> opBits & opMask
		k.Verbs[OpMaskedCAS] += ops >> (2 * opBits) & opMask
		k.Verbs[OpFlush] += ops >> (3 * opBits)
	}
	k.BytesRead += y.read
	k.BytesWrite += y.write
	k.Doorbells += uint64(bits.OnesCount64(y.blades))
	*y = tally{}

	b.posted = first + n
	b.pending += n
	b.owed, b.tracked = true, t.tracks
	b.c = c
	t.port.Post(b, first)
}

// admit does before a Post what a tracked thread has to do.
func (t *Thread) admit(c *Coro, b *Batch) {
	b.first = b.posted
	wrs := b.wrs[b.posted:]
	if t.throttle.on {
		t.throttle.acquire(c, len(wrs))
	}
	if t.fences.on {
		t.fences.posting(wrs)
	}
}

// Wait returns when everything posted of the batch has completed: nil, or the
// *VerbError of the first request that failed. It counts one round trip, unless
// nothing was posted since the last Wait.
func (c *Coro) Wait(b *Batch) error {
	if b.owed {
		c.Count.RoundTrips++
	}
	return c.Drain(b)
}

// Drain is Wait without counting a round trip, for requests that no coroutine waited for when they
// were posted.
func (c *Coro) Drain(b *Batch) error {
	b.owed = false
	if b.pending|b.failed == 0 {
		return nil
	}
	return c.drain(b)
}

// WaitFor waits for posted requests for d nanoseconds at most, on a coroutine that has its thread
// for itself, and reports whether all have completed. It counts no round trip, and leaves the
// outcome for Wait or Drain.
func (c *Coro) WaitFor(b *Batch, d int64) (done bool) {
	t := c.t
	for until := later(t.port.Now(), d); b.pending > 0 && t.port.Now() < until; {
		t.wait(until)
	}
	return b.pending == 0
}

func (c *Coro) drain(b *Batch) error {
	if b.pending > 0 {
		c.await(b)
	}
	return b.Err()
}

func (c *Coro) await(b *Batch) {
	if c.yield == nil {
		for b.pending > 0 {
			c.reap()
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
	if b.owed {
		b.owed = false
		c.Count.RoundTrips++
	}
	if b.pending|b.failed == 0 {
		return nil
	}
	return c.drain(b)
}

// Sleep waits for d nanoseconds of the fabric's clock.
func (c *Coro) Sleep(d int64) {
	t := c.t
	until := later(t.port.Now(), d)
	if c.yield == nil {
		for t.poll(); t.port.Now() < until; {
			t.wait(until)
		}
		return
	}
	c.wake = until
	t.sleepers.push(c)
	c.park()
}

// later is d nanoseconds after a moment, or as late as a clock can say.
func later(now, d int64) int64 {
	if d > math.MaxInt64-1-now { // the last moment is no limit to those that wait
		return math.MaxInt64 - 1
	}
	return now + d
}

// Wake ends the Sleep of c, which is another coroutine of the thread that calls it. If c does not
// sleep, nothing happens.
func (c *Coro) Wake() {
	if i := slices.Index(c.t.sleepers, c); i >= 0 {
		c.wake = c.t.port.Now()
		c.t.sleepers.up(i)
	}
}

// MaskedCAS executes a masked compare-and-swap of the word at a and returns the
// prior value; it took effect if prior&cmpMask == compare&cmpMask. On a fabric
// that lacks the verb it is emulated by READ and CAS, which is linearizable but
// not wait-free. local is 24 bytes of arena, 8-byte aligned, for masks and
// result; b is scratch.
func (c *Coro) MaskedCAS(b *Batch, a RemoteAddr, compare, cmpMask, swap, swapMask uint64,
	local uint32) (uint64, error) {
	t := c.t
	b.Reset()
	if t.caps.MaskedCAS {
		t.PutWord(local, cmpMask)
		t.PutWord(local+8, swapMask)
		i := b.MaskedCAS(a, compare, swap, local)
		if err := c.Do(b); err != nil {
			return 0, err
		}
		return b.wrs[i].Result, nil
	}
	if a.Off%8 != 0 {
		b.CAS(a, 0, 0) // fails, as the verb itself would
		return 0, c.Do(b)
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
		prior := b.wrs[i].Result
		if prior == old {
			return old, nil
		}
		old = prior
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
	r.buf[r.head] = nil
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
	h.up(len(*h) - 1)
}

// up puts the coroutine at i, which wakes earlier than its place says, into its place.
func (h sleepHeap) up(i int) {
	for s := h; i > 0; {
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

// Unwinds reports whether a panic is the one that unwinds the coroutines of a Run that is being
// abandoned. A function that recovers from it must return at once, and not wait again.
func Unwinds(r any) bool { _, ok := r.(stopped); return ok }
