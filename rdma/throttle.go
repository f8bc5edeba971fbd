package rdma

// throttle is SMART's work request throttling (section 4.2, Algorithm 1): a thread may have at
// most C_max work requests outstanding. Its Tuner chooses C_max.
//
// A batch whose requests fit goes at once, past batches that wait for more credits, as in SMART's
// program: a compare-and-swap that needs one credit does not wait behind READs that need three,
// while what it compares with grows old.
//
// Two rules are ours. The first bounds what a large batch waits for: when mostPasses batches have
// gone since it came, credits are handed out in the order of arrival until it has its own. So it
// waits for at most mostPasses batches and those that were waiting before it. The second lets a
// batch larger than C_max through alone, when nothing else is outstanding.
//
// Invariant: while a coroutine waits, some request is outstanding, whose completion looks at the
// queue again.
type throttle struct {
	on          bool
	limit       int // what counts as no limit: Caps.MaxBatch
	max         int // C_max
	outstanding int // credits in use
	waiting     []*Coro
	granted     uint64 // batches that have gone

	tuner *Tuner
	done  uint64 // completions
	share tunerShare
	next  int64 // when the tuner is looked at next
}

const (
	defaultLimit = 256
	mostPasses   = 64
)

func (th *throttle) init(on bool, maxBatch int, tuner *Tuner) {
	if maxBatch <= 0 {
		maxBatch = defaultLimit
	}
	th.on, th.limit = on, maxBatch
	if !on {
		th.max = maxBatch
		return
	}
	if tuner == nil {
		tuner = NewTuner(TunerThread)
	}
	th.tuner = tuner.join(&th.share)
	th.follow()
}

// follow takes the tuner's C_max.
func (th *throttle) follow() {
	if th.max = th.tuner.limit(); th.max == noLimit || th.max > th.limit {
		th.max = th.limit
	}
}

func (th *throttle) fits(n int) bool {
	return th.outstanding == 0 || th.outstanding+n <= th.max
}

// due says that nothing may pass the coroutine any more.
func (th *throttle) due(c *Coro) bool { return th.granted-c.since >= mostPasses }

func (th *throttle) take(n int) {
	th.outstanding += n
	th.granted++
}

// acquire takes n credits, waiting for them if need be. The plain coroutine
// cannot wait behind coroutines that cannot run while it does: during Run it
// takes the credits as a debt.
func (th *throttle) acquire(c *Coro, n int) {
	t := c.t
	switch {
	case th.fits(n) && (len(th.waiting) == 0 || !th.due(th.waiting[0])):
		th.take(n)
	case c.yield == nil:
		for t.live == 0 && !th.fits(n) {
			c.reap()
		}
		th.take(n)
	default:
		c.need, c.since = n, th.granted
		th.waiting = append(th.waiting, c)
		c.park()
	}
}

// grant gives credits to the coroutines whose batches fit, the oldest first.
func (th *throttle) grant(t *Thread) {
	if th.outstanding > 0 && th.outstanding >= th.max {
		return
	}
	left := th.waiting[:0]
	for _, c := range th.waiting {
		if th.fits(c.need) && (len(left) == 0 || !th.due(left[0])) {
			th.take(c.need)
			t.ready.push(c)
		} else {
			left = append(left, c)
		}
	}
	clear(th.waiting[len(left):])
	th.waiting = left
}

// release returns the credit of a completed request.
func (th *throttle) release(t *Thread) {
	th.outstanding--
	th.done++
	if len(th.waiting) > 0 {
		th.grant(t)
	}
}

// tick follows the tuner. Called after every poll.
func (th *throttle) tick(t *Thread) {
	if now := t.port.Now(); now >= th.next {
		th.look(t, now)
	}
}

// look tells the tuner what has completed, and takes its C_max.
//
//go:noinline
func (th *throttle) look(t *Thread, now int64) {
	th.share.done.Store(th.done)
	th.next = th.tuner.advance(now)
	if th.follow(); len(th.waiting) > 0 {
		th.grant(t)
	}
}

// leave ends the thread's part in its tuner.
func (th *throttle) leave() {
	if th.on {
		th.share.done.Store(th.done)
		th.tuner.leave(&th.share)
	}
}
