package rdma

// conflict is SMART's conflict avoidance (section 4.3): truncated exponential
// backoff after a failed attempt (equation 1), whose limit t_max and the number
// of coroutines c_max that may be in an operation at once follow the retry rate.
//
// Three rules are ours. A credit that comes free goes to the coroutine that has
// waited longest, so that none starves. c_max shrinks from the number of
// coroutines that there are: SMART's starts at 64 and is no limit at all for its
// first halvings. And the rate is looked at when operations end too, as long as a
// limit is in force: SMART looks only on retries, and keeps its limits when the
// contention has gone.
type conflict struct {
	tech    Techniques
	opts    BackoffOptions
	tmax    int64 // current limit of the exponential part, ns
	cmax    int   // coroutine credits
	active  int   // credits in use: coroutines between BeginOp and EndOp
	queue   coroRing
	ops     int // attempts in this epoch
	retries int // of these, how many were retries
	epoch   int64
	limited bool // tmax or cmax is not where it started
}

// BackoffOptions are constants of conflict avoidance (SMART, section 4.3). Zero values are those of
// the paper. SMART's program has others: see SMARTBackoff.
type BackoffOptions struct {
	EpochNs   int64 // how often the limits follow the rate of retries; 0: a millisecond
	Doublings int   // of the first backoff to the longest one, without Techniques.DynLimit; 0: 10
}

// SMARTBackoff is what SMART's program has (include/smart/backoff.h at commit 19ed3fa, and its
// scripts): kEpochInterval is 20 ms, and the curve "+Backoff" of figure 14 was measured with
// MAX_BACKOFF_CYCLE_LOG2=-1, a limit of 2^20 units.
var SMARTBackoff = BackoffOptions{EpochNs: 20_000_000, Doublings: 20}

func (o BackoffOptions) withDefaults() BackoffOptions {
	if o.EpochNs == 0 {
		o.EpochNs = backoffEpochNs
	}
	if o.Doublings == 0 {
		o.Doublings = backoffDoublings
	}
	return o
}

// Constants of equation 1, in nanoseconds: SMART's t_0 is 4096 cycles at 2.4 GHz.
const (
	backoffUnitNs    = 1707                              // t_0
	backoffMaxNs     = backoffUnitNs << backoffDoublings // t_M, of the dynamic limit
	backoffDoublings = 10
	backoffEpochNs   = 1_000_000
	retryRateHigh    = 0.5
	retryRateLow     = 0.1
	maxCoroCredits   = 64
	maxDoublings     = 30
)

// opState is a coroutine's part of conflict avoidance.
type opState struct {
	retries int
	in      bool // holds a credit
}

func (x *conflict) init(tech Techniques, o BackoffOptions, now int64) {
	x.tech, x.opts = tech, o.withDefaults()
	x.tmax = backoffUnitNs
	if !tech.DynLimit {
		x.tmax = backoffUnitNs << x.opts.Doublings
	}
	x.cmax = maxCoroCredits
	x.epoch = now
}

// SetBackoff changes the constants of conflict avoidance; the present limits stay. A measurement
// uses it to let limits that move slowly find their places quickly before it begins.
func (t *Thread) SetBackoff(o BackoffOptions) { t.conflict.opts = o.withDefaults() }

// BeginOp starts an operation that may conflict with others and be retried; it
// waits while as many coroutines as conflict avoidance allows are in one. Inside
// an operation it starts over, with the same credit.
func (c *Coro) BeginOp() {
	x := &c.t.conflict
	c.op.retries = 0
	x.ops++
	if c.op.in {
		return
	}
	if x.active >= x.cmax && x.tech.CoroLimit && c.yield != nil {
		c.awaitCredit()
		return
	}
	x.active++
	c.op.in = true
}

// awaitCredit parks the coroutine until the end of another operation passes the credit on. It is a
// function of its own, so that BeginOp needs no frame.
//
//go:noinline
func (c *Coro) awaitCredit() {
	c.t.conflict.queue.push(c)
	c.park()
}

// Backoff is called after an attempt failed because of a conflict, before the
// next one: it waits min(t0*2^i, t_max) + rand(t0) for the i-th retry of the
// operation, i from 0, and adapts the limits. With backoff switched off it only
// yields.
func (c *Coro) Backoff() {
	t := c.t
	x := &t.conflict
	x.retries++
	x.ops++
	x.adapt(t)
	if !x.tech.Backoff {
		c.Yield()
		return
	}
	d := x.tmax
	if c.op.retries < maxDoublings {
		d = min(d, backoffUnitNs<<c.op.retries)
	}
	c.op.retries++
	c.Sleep(d + int64(t.Rand()%backoffUnitNs))
}

// EndOp ends what BeginOp began. What the coroutine of a thread without Run has posted
// leaves: see Thread.Push.
func (c *Coro) EndOp() {
	if c == c.t.plain {
		c.t.Push() // the caller may do something else for long, and no other coroutine waits
	}
	if !c.op.in {
		return
	}
	c.op.in = false
	x := &c.t.conflict
	x.active--
	if x.limited || x.queue.size > 0 {
		x.ended(c.t)
	}
}

// ended does after an operation what is seldom needed.
//
//go:noinline
func (x *conflict) ended(t *Thread) {
	if x.limited && x.ops&7 == 0 {
		x.adapt(t)
	}
	if x.queue.size > 0 {
		x.grant(t)
	}
}

// grant gives free credits to the coroutines that have waited longest.
func (x *conflict) grant(t *Thread) {
	for x.queue.size > 0 && x.active < x.cmax {
		c := x.queue.pop()
		c.op.in = true
		x.active++
		t.ready.push(c)
	}
}

// adapt ends the epoch when its time has come. t_max moves only when c_max has
// reached its bound.
func (x *conflict) adapt(t *Thread) {
	now := t.port.Now()
	if now-x.epoch < x.opts.EpochNs {
		return
	}
	rate := float64(x.retries) / float64(max(x.ops, 1))
	x.epoch, x.ops, x.retries = now, 0, 0
	coros := 1 // in use at most
	if x.tech.CoroLimit {
		coros = min(x.cmax, max(t.live, 1))
	}
	switch {
	case rate > retryRateHigh:
		if coros > 1 {
			x.cmax = coros / 2
		} else if x.tech.DynLimit {
			x.tmax = min(2*x.tmax, backoffMaxNs)
		}
	case rate < retryRateLow:
		if x.tech.CoroLimit && x.cmax < min(t.live, maxCoroCredits) {
			x.cmax *= 2
			x.grant(t)
		} else if x.tech.DynLimit {
			x.tmax = max(x.tmax/2, backoffUnitNs)
		}
	}
	x.limited = x.tech.CoroLimit && x.cmax < t.live || x.tech.DynLimit && x.tmax > backoffUnitNs
}
