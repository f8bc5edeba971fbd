package rdma

// conflict is SMART's conflict avoidance (section 4.3): truncated exponential
// backoff after a failed attempt (equation 1), whose limit t_max and the number
// of coroutines c_max that may be in an operation at once follow the retry rate.
type conflict struct {
	tech    Techniques
	tmax    int64 // current limit of the exponential part, ns
	cmax    int   // coroutine credits
	active  int   // coroutines between BeginOp and EndOp
	waiters coroRing
	ops     int // attempts in this epoch
	retries int // of these, how many failed
	epoch   int64
}

// Constants of equation 1, in nanoseconds: SMART's t_0 is 4096 cycles at 2.4 GHz.
const (
	backoffUnitNs  = 1707
	backoffMaxNs   = backoffUnitNs << 10
	backoffEpochNs = 1_000_000
	retryRateHigh  = 0.5
	retryRateLow   = 0.1
	maxCoroCredits = 64
)

// opState is a coroutine's part of conflict avoidance.
type opState struct {
	retries int
	in      bool
}

func (x *conflict) init(tech Techniques) {
	x.tech = tech
	x.tmax = backoffUnitNs
	if !tech.DynLimit {
		x.tmax = backoffMaxNs
	}
	x.cmax = maxCoroCredits
}

// BeginOp starts an operation that may conflict with others and be retried; it
// waits while as many coroutines as conflict avoidance allows are in one.
func (c *Coro) BeginOp() {
	x := &c.t.conflict
	c.op.retries = 0
	if c.yield != nil && x.tech.CoroLimit {
		for x.active >= x.cmax {
			x.waiters.push(c)
			c.park()
		}
	}
	x.active++
	c.op.in = true
	x.ops++
}

// Backoff is called after an attempt failed because of a conflict, before the
// next one: it waits min(t0*2^i, t_max) + rand(t0) for the i-th retry, and
// adapts the limits. With backoff switched off it only yields.
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
	if c.op.retries < 20 {
		d = min(d, backoffUnitNs<<c.op.retries)
	}
	c.op.retries++
	c.Sleep(d + int64(t.Rand()%backoffUnitNs))
}

// EndOp ends what BeginOp began.
func (c *Coro) EndOp() {
	c.op.in = false
	c.t.conflict.release(c.t)
}

func (x *conflict) release(t *Thread) {
	x.active--
	for x.waiters.size > 0 && x.active < x.cmax {
		t.ready.push(x.waiters.pop())
		break
	}
}

// left is called when a coroutine ended, perhaps inside an operation.
func (x *conflict) left(t *Thread, c *Coro) {
	if c.op.in {
		c.op.in = false
		x.release(t)
	}
}

// adapt ends the epoch when its time has come. Like SMART's it is evaluated
// only on retries: without retries there is nothing to adapt.
func (x *conflict) adapt(t *Thread) {
	now := t.port.Now()
	if now-x.epoch < backoffEpochNs {
		return
	}
	rate := float64(x.retries) / float64(max(x.ops, 1))
	x.epoch, x.ops, x.retries = now, 0, 0
	switch {
	case rate > retryRateHigh:
		if x.tech.CoroLimit && x.cmax > 1 {
			x.cmax /= 2
		} else if x.tech.DynLimit {
			x.tmax = min(2*x.tmax, backoffMaxNs)
		}
	case rate < retryRateLow:
		if x.tech.CoroLimit && x.cmax < maxCoroCredits {
			x.cmax *= 2
			for x.waiters.size > 0 {
				t.ready.push(x.waiters.pop())
			}
		} else if x.tech.DynLimit {
			x.tmax = max(x.tmax/2, backoffUnitNs)
		}
	}
}
