package rdma

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"golang.org/x/sys/cpu"
)

// ThreadOptions configure a thread. The zero value is usable.
type ThreadOptions struct {
	// Index on this compute blade, from 0. Decides the doorbell and the random stream.
	Index int
	// Techniques to use.
	Techniques Techniques
	// Policy of queue pair allocation; PerThreadDoorbell needs Techniques.Doorbells.
	Policy QPPolicy
	// Tuner chooses the limit of outstanding requests with Techniques.Throttle. nil: one of the
	// thread's own, with TunerThread.
	Tuner *Tuner
	// Backoff are the constants of conflict avoidance.
	Backoff BackoffOptions
	// Arena is the registered memory in bytes; 0: 16 MiB, touched as used.
	Arena int
}

// DefaultArena is the size of a thread's registered memory in bytes.
const DefaultArena = 16 << 20

// Thread posts work requests: a queue pair per blade, one completion queue, one
// doorbell, an arena and credits. It belongs to the goroutine that runs it; no
// method is safe for concurrent use.
type Thread struct {
	port   Port
	pusher Pusher    // the port; nil: what is posted leaves at once
	maps   []Mapping // of the blades, if they are memory of this process
	fabric Fabric
	caps   Caps
	opts   ThreadOptions
	arena  []byte
	space  arenaSpace
	rng    uint64

	ready    coroRing  // coroutines that can go on
	sleepers sleepHeap // coroutines that wait for a time
	coros    []*Coro   // those of the Run in progress
	live     int       // of these, how many have not returned
	plain    *Coro
	panicked []byte // see Panicked

	owner     uint64 // see SetOwner
	tenure    any    // see SetTenure
	uncertain bool   // see Uncertain
	failed    bool   // see Failed
	// stale is the key of the last request to each blade that has failed by its key; nil: none has.
	stale  map[BladeID]Key
	barred uint64 // see Bar

	tracks   bool // completions are reported one by one: throttle or fences are on
	throttle throttle
	conflict conflict
	fences   fences

	sizes []uint64 // of the blades' regions, for errors
	total Counters // of coroutines that have ended
}

// errBigEndian: words of blades, which are little-endian, are looked at where they lie.
var errBigEndian = errors.New("rdma: this processor is big-endian, and the memory of blades is little-endian: use " +
	"another machine")

// NewThread makes a thread on the fabric.
func NewThread(f Fabric, o ThreadOptions) (*Thread, error) {
	if cpu.IsBigEndian {
		return nil, errBigEndian
	}
	if o.Arena == 0 {
		o.Arena = DefaultArena
	}
	if !o.Techniques.Doorbells && o.Policy == PerThreadDoorbell {
		o.Policy = PerThreadQP
	}
	p, err := f.NewPort(PortConfig{Index: o.Index, Policy: o.Policy, Arena: o.Arena})
	if err != nil {
		return nil, fmt.Errorf("rdma: thread %d: %w", o.Index, err)
	}
	t := &Thread{port: p, fabric: f, caps: f.Caps(), opts: o, arena: p.Arena()}
	if m, ok := p.(Mapped); ok {
		t.maps = m.Mappings()
	}
	t.pusher, _ = p.(Pusher)
	t.space.init(uint32(len(t.arena)))
	t.rng = mix64(f.Seed() ^ mix64(uint64(o.Index)+0x9e3779b97f4a7c15))
	t.throttle.init(o.Techniques.Throttle && !t.caps.Synchronous, t.caps.MaxBatch, o.Tuner)
	t.conflict.init(o.Techniques, o.Backoff, p.Now())
	for _, b := range f.Blades() {
		t.sizes = append(t.sizes, b.Size)
	}
	t.fences.init(len(t.sizes), &t.caps)
	t.tracks = t.throttle.on || t.fences.on
	t.plain = &Coro{t: t}
	t.plain.Count = &t.plain.counters
	return t, nil
}

// Push has what was posted leave, where the fabric keeps it until the thread waits: for a caller
// that is about to do something else. It waits for no completion.
func (t *Thread) Push() {
	if t.pusher != nil {
		t.pusher.Push()
	}
}

// Fabric returns the fabric that the thread is on.
func (t *Thread) Fabric() Fabric { return t.fabric }

// Caps returns the fabric's promises.
func (t *Thread) Caps() *Caps { return &t.caps }

// Index returns the thread's number on its compute blade.
func (t *Thread) Index() int { return t.opts.Index }

// Now is the fabric's clock in nanoseconds.
func (t *Thread) Now() int64 { return t.port.Now() }

// Rand returns 64 random bits of the thread's own stream, which starts from the
// fabric's seed and the thread's index.
func (t *Thread) Rand() uint64 {
	t.rng += 0x9e3779b97f4a7c15
	return mix64(t.rng)
}

func mix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Reconnect takes the queue pair of a blade out of the error state, after the
// requests that it flushed have completed.
func (t *Thread) Reconnect(b BladeID) error { return t.port.Reset(b) }

// Bar has the thread do without some blades, of which blades has the bits (BladeBit): a batch with
// a request for one of them fails with ErrBarred when it is posted, and nothing of it is. What was
// posted before is not concerned. 0: the thread uses all blades.
func (t *Thread) Bar(blades uint64) { t.barred = blades }

// Barred returns the blades that the thread does without.
func (t *Thread) Barred() uint64 { return t.barred }

// BarError is the error of a request that needs all blades, before it is posted: ErrBarred; nil:
// the thread does without none.
func (t *Thread) BarError() error {
	if t.barred == 0 {
		return nil
	}
	return &VerbError{Blade: BladeID(bits.TrailingZeros64(t.barred)), Status: StatusBarred} // 63 at most
}

// Uncertain reports whether a request of the thread has failed since the last call of
// ClearUncertain, and may have taken effect, or still may. Only a new access key makes sure that it
// does not.
func (t *Thread) Uncertain() bool { return t.uncertain }

// ClearUncertain notes that the keys have changed since, with which requests were posted
// that are uncertain.
func (t *Thread) ClearUncertain() { t.uncertain = false }

// Failed reports whether a request of the thread has failed, since the last call of ClearFailed,
// for another reason than its key: so there need not be a new one. A request that was flushed
// behind one with a stale key counts if its own key is another one: the queue pair was not
// connected again when the keys had changed.
func (t *Thread) Failed() bool { return t.failed }

// noteFailed notes that a request has failed, for Failed.
func (t *Thread) noteFailed(w *WR, s Status) {
	stale, keyed := t.stale[w.Blade]
	switch {
	case s == StatusKey:
		if t.stale == nil {
			t.stale = map[BladeID]Key{}
		}
		t.stale[w.Blade] = w.Key
	case s != StatusFlushed || !keyed || stale != w.Key:
		t.failed = true
	}
}

// ClearFailed notes that what has not been done by requests that have failed was seen to.
func (t *Thread) ClearFailed() { t.failed = false }

// SetOwner sets the number under which the thread takes locks in structures of the blades. A lock
// then names its owner after the owner has died. 0, the default: none.
func (t *Thread) SetOwner(id uint64) { t.owner = id }

// Owner returns the number that SetOwner has set.
func (t *Thread) Owner() uint64 { return t.owner }

// SetTenure notes under what the thread acts, for a layer above: package rdma does not look at it.
// nil, the default: nothing.
func (t *Thread) SetTenure(x any) { t.tenure = x }

// Tenure returns what SetTenure has noted.
func (t *Thread) Tenure() any { return t.tenure }

// Counters returns the totals of all coroutines of the thread, those that run
// included. What a coroutine counts elsewhere (Coro.Count) is not in them.
func (t *Thread) Counters() Counters {
	c := t.total
	c.Add(&t.plain.counters)
	for _, r := range t.coros {
		c.Add(&r.counters)
	}
	return c
}

// Limits are what SMART's techniques have found to be best for a thread.
type Limits struct {
	WorkRequests int   // C_max: outstanding work requests; 0: not throttled
	Coroutines   int   // c_max: coroutines in an operation; 0: not limited
	BackoffNs    int64 // t_max: the longest backoff, but for its random part
}

// Limits returns the present limits.
func (t *Thread) Limits() Limits {
	l := Limits{BackoffNs: t.conflict.tmax}
	if t.throttle.on {
		l.WorkRequests = t.throttle.max
	}
	if t.opts.Techniques.CoroLimit {
		l.Coroutines = t.conflict.cmax
	}
	return l
}

// Close releases the port. Nothing may be outstanding and no coroutine alive;
// the arena's memory is gone. To close again does nothing.
func (t *Thread) Close() error {
	if t.live > 0 {
		return fmt.Errorf("rdma: thread %d has %d coroutines left", t.opts.Index, t.live)
	}
	if t.arena == nil {
		return nil
	}
	t.arena = nil
	t.throttle.leave()
	return t.port.Close()
}

// forever is a time that never comes.
const forever = math.MaxInt64

// completed takes note of a completed request.
func (t *Thread) completed(w *WR) {
	if t.fences.on {
		t.fences.completed(t, w)
	}
	if t.throttle.on {
		t.throttle.release(t)
	}
}

// completedRun is completed for the n requests of wrs that are for the blade of the first, and that
// have succeeded.
func (t *Thread) completedRun(wrs []WR, n int) {
	if t.fences.on {
		t.fences.completedRun(t, wrs, n)
	}
	if t.throttle.on {
		for range n {
			t.throttle.release(t)
		}
	}
}

// wait drives the transport until a completion was reaped or the time has come.
func (t *Thread) wait(until int64) {
	t.port.Wait(until)
	t.tick()
}

// poll drives the transport once, without waiting.
func (t *Thread) poll() {
	t.port.Poll()
	t.tick()
}

func (t *Thread) tick() {
	if t.throttle.on {
		t.throttle.tick(t)
	}
}
