package runner

import (
	"sync"
	"time"
)

// Series is how many transactions committed in each interval of a run, of the store's clock. A
// stall shows as intervals with few commits, or none.
type Series struct {
	Interval time.Duration
	Commits  []uint64 // by interval of the time measured
}

// SeriesInterval is the interval of a Series. Workers say a few transactions later than they
// commit that they have.
const SeriesInterval = 100 * time.Millisecond

// series collects one. Each worker adds what it has committed when an interval is over.
type series struct {
	mu      sync.Mutex
	commits []uint64
}

// add counts n commits in interval i.
func (s *series) add(i int64, n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for int64(len(s.commits)) <= i {
		s.commits = append(s.commits, 0)
	}
	s.commits[i] += n
}

// result is what was collected, of a run that has measured for so long. The last interval counts if
// it is over, or is the only one: a part of one would look like a stall.
func (s *series) result(elapsed time.Duration) *Series {
	out := &Series{Interval: SeriesInterval, Commits: s.commits}
	n := max(int(elapsed/SeriesInterval), 1)
	for len(out.Commits) < n {
		out.Commits = append(out.Commits, 0)
	}
	out.Commits = out.Commits[:n]
	return out
}

// inSeries is a worker's part of the interval that it is in.
type inSeries struct {
	at      int64
	commits uint64
}

// inSeries notes that a worker has committed n transactions by a time of the store's clock,
// after the warm-up.
func (w *worker) inSeries(n uint64, now int64) {
	at := max((int64(w.round.elapsedBefore)+now-w.warmEnd)/int64(SeriesInterval), 0)
	if at != w.interval.at {
		w.endSeries()
		w.interval.at = at
	}
	w.interval.commits += n
}

// endSeries hands over what the worker has counted.
func (w *worker) endSeries() {
	if w.interval.commits > 0 {
		w.round.series.add(w.interval.at, w.interval.commits)
		w.interval.commits = 0
	}
}
