package rdma

// Constants for tests.
const (
	BackoffUnitNs  = backoffUnitNs
	BackoffMaxNs   = backoffMaxNs
	BackoffEpochNs = backoffEpochNs
	MaxCoroCredits = maxCoroCredits
	TuneSpanNs     = tuneSpanNs
	StableSpans    = stableSpans
	LookNs         = lookNs
	MostPasses     = mostPasses
)

// TunerOrder are the values of C_max that are tried; 0: no limit.
func TunerOrder(p TunerPolicy) []int { return tunerOrders[p] }

// FixLimit sets C_max, and keeps the tuner from changing it for one stable phase.
func (t *Thread) FixLimit(n int) {
	th := &t.throttle
	th.max = n
	th.tuner.now.Store(int64(n))
	th.tuner.until.Store(t.Now() + stableSpans*tuneSpanNs)
}

// FixCredits sets c_max.
func (t *Thread) FixCredits(n int) { t.conflict.cmax = n }

// Outstanding is the number of credits in use.
func (t *Thread) Outstanding() int { return t.throttle.outstanding }

// Active is the number of coroutine credits in use.
func (t *Thread) Active() int { return t.conflict.active }

// Space is the arena's allocator on its own.
type Space struct{ s arenaSpace }

func NewSpace(size uint32) *Space {
	s := new(Space)
	s.s.init(size)
	return s
}

func (s *Space) Alloc(n int) (uint32, error) { return s.s.alloc(n) }
func (s *Space) Free(a uint32, n int)        { s.s.free(a, n) }

// Share is a thread's part in a tuner, without the thread.
type Share struct {
	u *Tuner
	s *tunerShare
}

// Join adds a thread.
func (u *Tuner) Join() Share {
	s := &tunerShare{}
	return Share{u.join(s), s}
}

func (s Share) Done(n uint64)     { s.s.done.Add(n) }
func (s Share) Advance(now int64) { s.u.advance(now) }
func (s Share) Limit() int        { return s.u.limit() }
func (s Share) Leave()            { s.u.leave(s.s) }
