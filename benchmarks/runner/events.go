package runner

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Event is something that is done to the store in the middle of a run, such as
// stopping a blade.
type Event struct {
	Name string
	At   time.Duration // of the time measured
	Do   func() error
}

// Timeline is when transactions committed in a run with events.
type Timeline struct {
	Bucket  time.Duration
	Commits []uint32 // by bucket of the time measured, to its end; those of the warm-up are not there
	Events  []Happened
}

// Happened is an event that has been.
type Happened struct {
	Name  string
	At    time.Duration // when it began, of the time measured
	Took  time.Duration
	Clock int64 // of the store, when it began
	Err   error // what Do returned
}

// timelineBucket is the resolution of a timeline.
const timelineBucket = 100 * time.Microsecond

// Gap returns the longest time without a commit, and when it began.
func (t *Timeline) Gap() (longest, at time.Duration) {
	return t.GapIn(0, time.Duration(len(t.Commits))*t.Bucket)
}

// GapIn is Gap for the time from one moment to another. What is before the first commit in it,
// and after the last, counts.
func (t *Timeline) GapIn(from, to time.Duration) (longest, at time.Duration) {
	lo, hi := max(int(from/t.Bucket), 0), min(int(to/t.Bucket), len(t.Commits))
	last := lo - 1
	for i := lo; i <= hi; i++ {
		if i < hi && t.Commits[i] == 0 {
			continue
		}
		if d := time.Duration(i-last-1) * t.Bucket; d > longest {
			longest, at = d, time.Duration(last+1)*t.Bucket
		}
		last = i
	}
	return longest, at
}

// GapAfter is the longest gap that begins between a moment, or shortly before it, and d
// after it: the one that belongs to what happened then.
func (t *Timeline) GapAfter(moment, d time.Duration) (longest, at time.Duration) {
	const before = 10 * time.Millisecond
	end := min(int((moment+d)/t.Bucket), len(t.Commits))
	for end < len(t.Commits) && t.Commits[end] == 0 { // to where the last one ends
		end++
	}
	return t.GapIn(moment-before, time.Duration(end+1)*t.Bucket)
}

// PerSecond is the rate of commits from one time to another.
func (t *Timeline) PerSecond(from, to time.Duration) float64 {
	lo, hi := max(int(from/t.Bucket), 0), min(int(to/t.Bucket), len(t.Commits))
	if hi <= lo {
		return 0
	}
	n := uint64(0)
	for _, x := range t.Commits[lo:hi] {
		n += uint64(x)
	}
	return float64(n) / (time.Duration(hi-lo) * t.Bucket).Seconds()
}

// Each sums the commits up by intervals of d, a multiple of the bucket.
func (t *Timeline) Each(d time.Duration) []uint64 {
	k := max(int(d/t.Bucket), 1)
	out := make([]uint64, (len(t.Commits)+k-1)/k)
	for i, n := range t.Commits {
		out[i/k] += uint64(n)
	}
	return out
}

// timeline collects one.
type timeline struct {
	commits []atomic.Uint32
	due     []Event // not yet happened
	events  []Happened

	mu   sync.Mutex
	late map[int64]uint32 // what has no room in commits: transactions that took very long
}

func newTimeline(events []Event, d time.Duration) *timeline {
	return &timeline{
		due: append([]Event(nil), events...), commits: make([]atomic.Uint32, int((d+time.Second)/timelineBucket)),
	}
}

// result is what was collected, of a run that has measured for so long: a store that does not
// commit any more is seen by it.
func (t *timeline) result(elapsed time.Duration) *Timeline {
	out := &Timeline{Bucket: timelineBucket, Events: t.events}
	n := int((elapsed + timelineBucket - 1) / timelineBucket)
	for i := range t.commits {
		if t.commits[i].Load() != 0 {
			n = max(n, i+1)
		}
	}
	for i := range t.late {
		n = max(n, int(i)+1)
	}
	out.Commits = make([]uint32, n)
	for i := range min(n, len(t.commits)) {
		out.Commits[i] = t.commits[i].Load()
	}
	for i, k := range t.late {
		out.Commits[i] = k
	}
	return out
}

// commit counts a commit at a time of the store's clock.
func (rd *round) commit(now int64) {
	t := rd.timeline
	at := (int64(rd.elapsedBefore) + now - rd.warmEnd()) / int64(timelineBucket)
	switch {
	case at < 0:
	case at < int64(len(t.commits)):
		t.commits[at].Add(1)
	default:
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.late == nil {
			t.late = map[int64]uint32{}
		}
		t.late[at]++
	}
}

// warmEnd is the clock when this round's warm-up ends.
func (rd *round) warmEnd() int64 {
	base := rd.base.Load()
	if base == notYet {
		return math.MaxInt64 / 2
	}
	return base + int64(rd.warmup)
}

// playEvents lets the events of a round happen until the function that it returns
// is called.
func (rd *round) playEvents() (stop func()) {
	t := rd.timeline
	if t == nil {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for len(t.due) > 0 {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			now := rd.store.Now()
			if at := int64(rd.elapsedBefore) + now - rd.warmEnd(); at >= int64(t.due[0].At) {
				e := t.due[0]
				err := e.Do()
				t.events = append(t.events, Happened{
					Name: e.Name, At: time.Duration(at),
					Took: time.Duration(rd.store.Now() - now), Clock: now, Err: err,
				})
				t.due = t.due[1:]
			}
		}
	}()
	return func() { close(quit); <-done }
}
