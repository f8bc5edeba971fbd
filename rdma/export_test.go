package rdma

// Constants for tests.
const (
	BackoffUnitNs  = backoffUnitNs
	BackoffMaxNs   = backoffMaxNs
	BackoffEpochNs = backoffEpochNs
	MaxCoroCredits = maxCoroCredits
	TuneSpanNs     = tuneSpanNs
	StableSpans    = stableSpans
)

// ThrottleCandidates are the values of C_max that are tried.
var ThrottleCandidates = throttleCandidates

// FixLimit sets C_max, and keeps the tuner from changing it for one stable phase.
func (t *Thread) FixLimit(n int) {
	t.throttle.max = n
	t.throttle.phase = len(throttleCandidates)
	t.throttle.running = false
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
