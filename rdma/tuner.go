package rdma

import (
	"slices"
	"sync"
	"sync/atomic"
)

// TunerPolicy is how C_max, the limit of outstanding work requests of a thread, is found.
type TunerPolicy uint8

// Tuner policies.
const (
	// TunerThread lets each thread decide alone. It tries no limit first, then 4, 6, 8, 10, 12.
	TunerThread TunerPolicy = iota
	// TunerSMART is that of SMART's program: one decision for all threads of a process, on the
	// sum of their completions. It tries 4, 6, 8, 10, 12, and then no limit.
	TunerSMART
)

// TunerPolicies are all of them.
var TunerPolicies = []TunerPolicy{TunerThread, TunerSMART}

// String returns the policy's name as used on the command line.
func (p TunerPolicy) String() string {
	if p == TunerSMART {
		return "smart"
	}
	return "thread"
}

// Tuner chooses C_max for the threads that were made with it, in epochs (SMART, section 4.2,
// procedure UPDATE): an update phase tries each candidate for tuneSpanNs, then the best one is kept
// for stableSpans such spans. No limit is a candidate too, as in SMART's program. A limit has to
// complete unlimitedBonus as much: it is worth having only when the device's cache thrashes. A span
// in which nothing has completed decides nothing.
//
// What few threads have found out says nothing about many: when a tuner of all threads has more
// than twice the threads that it had at the beginning of its update phase, it begins a new one.
//
// Its methods are safe for concurrent use, but a fabric's clock must be the same for all threads.
type Tuner struct {
	policy TunerPolicy
	order  []int        // candidates in the order in which they are tried
	now    atomic.Int64 // C_max
	until  atomic.Int64 // when the span ends; 0: none has begun

	mu      sync.Mutex
	members []*tunerShare
	asked   int    // members when the update phase began
	left    uint64 // completions of threads that are gone
	from    int64  // of the span
	before  uint64 // completions until then
	phase   int    // index of the candidate that is tried; len(order): stable
	best    int
	score   float64 // of best
}

// tunerShare is what a tuner knows of a thread.
type tunerShare struct {
	done atomic.Uint64 // completions, as of the thread's last look
}

// noLimit is the candidate that limits nothing.
const noLimit = 0

const (
	tuneSpanNs  = 8_000_000 // Δ
	stableSpans = 60        // T = 60 Δ
	// The sample_cycles, execution_epochs and inf_credit_weight of SMART's configuration.
	unlimitedBonus = 1.05
	// lookNs is how old a thread's C_max, and what the tuner knows of its completions, may be.
	lookNs = tuneSpanNs / 64
)

var tunerOrders = [...][]int{
	TunerSMART:  {4, 6, 8, 10, 12, noLimit},
	TunerThread: {noLimit, 4, 6, 8, 10, 12},
}

// NewTuner returns a tuner for the threads of one compute blade's process.
func NewTuner(p TunerPolicy) *Tuner {
	u := &Tuner{policy: p, order: tunerOrders[p]}
	u.now.Store(int64(u.order[0]))
	return u
}

// join returns the tuner of a new thread.
func (u *Tuner) join(s *tunerShare) *Tuner {
	if u.policy == TunerThread {
		u = NewTuner(TunerThread)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.members = append(u.members, s)
	if len(u.members) > 2*u.asked {
		u.restart()
		u.until.Store(0)
	}
	return u
}

// restart begins an update phase.
func (u *Tuner) restart() {
	u.phase, u.score, u.asked = 0, 0, len(u.members)
	u.now.Store(int64(u.order[0]))
}

func (u *Tuner) leave(s *tunerShare) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i := slices.Index(u.members, s); i >= 0 {
		u.members = slices.Delete(u.members, i, i+1)
		u.left += s.done.Load()
	}
}

// limit is the present C_max, or noLimit.
func (u *Tuner) limit() int { return int(u.now.Load()) }

// advance ends the span when its time has come, and returns when to call it again. It waits for
// no other thread.
func (u *Tuner) advance(now int64) int64 {
	until := u.until.Load()
	if now < until {
		return min(until, now+lookNs)
	}
	if !u.mu.TryLock() {
		return now + lookNs
	}
	defer u.mu.Unlock()
	if until = u.until.Load(); now >= until {
		u.end(now, until > 0)
		until = u.until.Load()
	}
	return min(until, now+lookNs)
}

// end ends a span, if one has begun, and begins the next.
func (u *Tuner) end(now int64, begun bool) {
	sum := u.left
	for _, s := range u.members {
		sum += s.done.Load()
	}
	done, span := sum-u.before, now-u.from
	u.from, u.before = now, sum
	spans := int64(1)
	if begun && done > 0 {
		if u.phase == len(u.order) {
			u.restart()
		} else {
			u.note(float64(done) / float64(span))
			u.phase++
			c := u.best
			if u.phase < len(u.order) {
				c = u.order[u.phase]
			} else {
				spans = stableSpans
			}
			u.now.Store(int64(c))
		}
	}
	u.until.Store(now + spans*tuneSpanNs)
}

// note takes the rate of the candidate that was tried.
func (u *Tuner) note(rate float64) {
	c := u.order[u.phase]
	if c == noLimit {
		rate *= unlimitedBonus
	}
	if rate > u.score {
		u.best, u.score = c, rate
	}
}
