package rdma

// throttle is SMART's adaptive work request throttling (section 4.2,
// Algorithm 1): a thread may have at most credit work requests outstanding, and
// the maximum is re-tuned in epochs: an update phase tries each candidate for
// tuneSpan, then the best one is kept for stableSpans spans.
//
// A batch larger than the maximum is let through alone, when nothing else is
// outstanding, so that it cannot wait for ever.
type throttle struct {
	on          bool
	max         int // C_max
	outstanding int
	waiters     coroRing

	phase    int // index of the candidate being tried; len(candidates): stable
	started  int64
	done     uint64 // completions since started
	best     float64
	bestMax  int
	stableNs int64
}

const (
	tuneSpanNs  = 8_000_000 // Δ
	stableSpans = 60        // T = 60 Δ
	// unlimited beats a candidate unless the candidate is this much better, as
	// in SMART's code: a limit is worth having only when the cache thrashes.
	unlimitedBonus = 1.05
)

var throttleCandidates = [...]int{4, 6, 8, 10, 12}

func (th *throttle) init(on bool, maxBatch int) {
	if maxBatch <= 0 {
		maxBatch = 256
	}
	th.on, th.max = on, maxBatch
	th.bestMax = maxBatch
	th.phase = -1
}

// acquire takes n credits, waiting for them if need be.
func (th *throttle) acquire(c *Coro, n int) {
	for th.outstanding > 0 && th.outstanding+n > th.max {
		if c.yield == nil {
			c.t.wait(1<<63 - 1)
			continue
		}
		th.waiters.push(c)
		c.park()
	}
	th.outstanding += n
}

// release returns n credits and wakes the coroutines that wait for some.
func (th *throttle) release(t *Thread, n int) {
	th.outstanding -= n
	th.done += uint64(n)
	for th.waiters.size > 0 && th.outstanding < th.max {
		t.ready.push(th.waiters.pop())
		// Each re-checks; waking all of them keeps them in order.
	}
}

// tick moves the epoch on. Called after every poll.
func (th *throttle) tick(t *Thread) {
	now := t.port.Now()
	if th.started == 0 {
		th.started = now
		return
	}
	span := now - th.started
	if span < tuneSpanNs {
		return
	}
	switch {
	case th.phase < 0: // the sample without a limit
		th.best = float64(th.done) / float64(span) * unlimitedBonus
		th.bestMax = th.max
		th.phase = 0
		th.max = throttleCandidates[0]
	case th.phase < len(throttleCandidates):
		if rate := float64(th.done) / float64(span); rate > th.best {
			th.best, th.bestMax = rate, throttleCandidates[th.phase]
		}
		th.phase++
		if th.phase < len(throttleCandidates) {
			th.max = throttleCandidates[th.phase]
		} else {
			th.max = th.bestMax
		}
	default:
		if span < stableSpans*tuneSpanNs {
			return
		}
		th.phase = -1
		th.max = max(t.caps.MaxBatch, 256)
	}
	th.started, th.done = now, 0
}
