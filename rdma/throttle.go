package rdma

// throttle is SMART's adaptive work request throttling (section 4.2,
// Algorithm 1): a thread may have at most C_max work requests outstanding, and
// C_max is tuned again in epochs: an update phase tries each candidate for
// tuneSpanNs, then the best one is kept for stableSpans such spans.
//
// Two rules are ours. Credits are handed out in the order in which coroutines
// asked for them, so that large batches do not starve behind small ones. A batch
// larger than C_max is let through alone, when nothing else is outstanding, so
// that it cannot wait for ever.
type throttle struct {
	on          bool
	limit       int // what counts as no limit: Caps.MaxBatch
	max         int // C_max
	outstanding int // credits in use
	queue       coroRing

	phase   int    // index of the candidate being tried; -1: no limit; len: stable
	started int64  // of the phase
	running bool   // started is set
	done    uint64 // completions since started
	best    float64
	bestMax int
}

const (
	tuneSpanNs  = 8_000_000 // Δ
	stableSpans = 60        // T = 60 Δ
	// No limit beats a candidate unless the candidate is this much better, as in
	// SMART's code: a limit is worth having only when the device's cache thrashes.
	unlimitedBonus = 1.05
	defaultLimit   = 256
)

var throttleCandidates = [...]int{4, 6, 8, 10, 12}

func (th *throttle) init(on bool, maxBatch int) {
	if maxBatch <= 0 {
		maxBatch = defaultLimit
	}
	th.on, th.limit, th.max, th.bestMax = on, maxBatch, maxBatch, maxBatch
	th.phase = -1
}

func (th *throttle) fits(n int) bool {
	return th.outstanding == 0 || th.outstanding+n <= th.max
}

// acquire takes n credits, waiting for them if need be. The plain coroutine
// cannot wait behind coroutines that cannot run while it does: during Run it
// takes the credits as a debt.
func (th *throttle) acquire(c *Coro, n int) {
	t := c.t
	switch {
	case th.queue.size == 0 && th.fits(n):
		th.outstanding += n
	case c.yield == nil:
		for t.live == 0 && !th.fits(n) {
			t.wait(forever)
		}
		th.outstanding += n
	default:
		c.need = n
		th.queue.push(c)
		c.park()
	}
}

// grant gives credits to the coroutines at the head of the queue.
func (th *throttle) grant(t *Thread) {
	for th.queue.size > 0 && th.fits(th.queue.peek().need) {
		c := th.queue.pop()
		th.outstanding += c.need
		t.ready.push(c)
	}
}

// release returns the credit of a completed request.
func (th *throttle) release(t *Thread) {
	th.outstanding--
	th.done++
	th.grant(t)
}

// tick moves the epoch on. Called after every poll.
func (th *throttle) tick(t *Thread) {
	now := t.port.Now()
	if !th.running {
		th.running, th.started = true, now
		return
	}
	span := now - th.started
	if span < tuneSpanNs {
		return
	}
	rate := float64(th.done) / float64(span)
	switch {
	case th.phase < 0:
		th.best, th.bestMax = rate*unlimitedBonus, th.limit
	case th.phase < len(throttleCandidates):
		if rate > th.best {
			th.best, th.bestMax = rate, th.max
		}
	case span < stableSpans*tuneSpanNs:
		return
	}
	th.started, th.done = now, 0
	switch th.phase++; {
	case th.phase < len(throttleCandidates):
		th.max = min(throttleCandidates[th.phase], th.limit)
	case th.phase == len(throttleCandidates):
		th.max = th.bestMax
	default:
		th.phase, th.max = -1, th.limit
	}
	th.grant(t)
}
