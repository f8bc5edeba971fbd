package hashbench

import (
	"fmt"
	"slices"
	"time"
)

// A point is measured over windows of virtual time, because without conflict avoidance coroutines
// pile up at the hottest key over hundreds of operations each, and a window that ends before says
// nothing of what a published run of 10 s measures.
const (
	// agreeing successive windows make a point, if their throughputs lie within agreeWithin.
	agreeing    = 3
	agreeWithin = 0.05
	// A window is to contain queueTurns times what an operation takes on average, which by Little's
	// law is the number of coroutines by the throughput. Otherwise those that have waited longest
	// are missing in it, and the window is doubled.
	queueTurns = 4
)

// meter collects what ends in the measured time. The simulator runs everything on one
// goroutine, so it needs no lock.
type meter struct {
	window   int64 // ns
	from     int64 // of the present window; the warm-up is before the first one
	last     int64 // when the measurement ends at the latest
	begun    int64
	inFlight float64 // operations under way, those whose coroutines idle included
	present  tally
	past     []tally // the windows before, of the same length; at most agreeing
	settled  bool
	ended    bool
}

// tally is what has ended in a window.
type tally struct {
	ops       uint64
	updates   uint64
	retries   uint64
	most      int
	counts    [distribution]uint64
	verbs     uint64
	latencies []int64 // a sample when there are many
}

func newMeter(c *Config, now int64) *meter {
	from := now + c.Warmup.Nanoseconds()
	return &meter{
		window: c.Window.Nanoseconds(), from: from, begun: from, last: from + c.Limit.Nanoseconds(),
		inFlight: float64(c.Threads * c.Coroutines),
	}
}

// over closes the windows that end by now, and says that the measurement has ended.
func (m *meter) over(now int64) bool {
	for !m.ended && now >= m.from+m.window {
		m.close()
	}
	return m.ended
}

// close ends the present window, and begins another one unless it was the last.
func (m *meter) close() {
	m.from += m.window
	m.past = append(m.past, m.present)
	m.present = tally{}
	if takes := m.takes(&m.past[len(m.past)-1]); queueTurns*takes > float64(m.window) &&
		m.from+2*agreeing*m.window <= m.last {
		m.window *= 2
		m.past = m.past[:0] // they were of another length
		return
	}
	if len(m.past) > agreeing {
		m.past = slices.Delete(m.past, 0, 1)
	}
	m.settled = m.agree()
	m.ended = m.settled || m.from+m.window > m.last
}

// takes is what an operation took on average in a window, with the idling after it, ns.
func (m *meter) takes(t *tally) float64 {
	return m.inFlight * float64(m.window) / float64(max(t.ops, 1))
}

// agree says that the windows are enough, long enough for their queue, and of one throughput.
func (m *meter) agree() bool {
	if len(m.past) < agreeing {
		return false
	}
	least, most, sum := m.past[0].ops, uint64(0), uint64(0)
	for i := range m.past {
		least, most, sum = min(least, m.past[i].ops), max(most, m.past[i].ops), sum+m.past[i].ops
		if queueTurns*m.takes(&m.past[i]) > float64(m.window) {
			return false
		}
	}
	return float64(most-least) <= agreeWithin*float64(sum)/agreeing
}

// count counts an operation that has ended in the present window, but not what ends in the
// warm-up. had is what its update has retried as SMART's program counts.
func (m *meter) count(end int64, verbs uint64, took int64, update bool, retries, had int) {
	if end < m.begun {
		return
	}
	t := &m.present
	t.ops++
	t.verbs += verbs
	if stride := uint64(1 + len(t.latencies)>>20); t.ops%stride == 0 {
		t.latencies = append(t.latencies, took)
	}
	if update {
		t.updates++
		t.retries += uint64(retries)
		t.most = max(t.most, retries)
		t.counts[min(had, distribution-1)]++
	}
}

// fill sums the last windows up. A window in which nothing ends is an error, which names the
// length that would do.
func (m *meter) fill(p *Point) error {
	var t tally
	for i := range m.past {
		o := &m.past[i]
		t.ops, t.updates, t.retries, t.verbs = t.ops+o.ops, t.updates+o.updates, t.retries+o.retries, t.verbs+o.verbs
		t.most = max(t.most, o.most)
		for j, n := range o.counts {
			t.counts[j] += n
		}
		t.latencies = append(t.latencies, o.latencies...)
	}
	window := time.Duration(m.window)
	if t.ops == 0 {
		return fmt.Errorf("%w: no operation has ended in %d windows of %v: make Limit %v at least",
			ErrConfig, len(m.past), window, 2*time.Duration(m.last-m.begun))
	}
	p.Settled, p.WindowMs, p.TotalMs = m.settled, window.Seconds()*1e3, float64(m.from-m.begun)/1e6
	p.Ops, p.Updates = t.ops, t.updates
	p.Mops = float64(t.ops) * 1000 / float64(int64(len(m.past))*m.window)
	p.VerbsPerOp = float64(t.verbs) / float64(t.ops)
	slices.Sort(t.latencies)
	at := func(q float64) float64 {
		return float64(t.latencies[min(int(q*float64(len(t.latencies))), len(t.latencies)-1)]) / 1e3
	}
	p.P50us, p.P99us = at(0.5), at(0.99)
	if t.updates == 0 {
		return nil
	}
	p.Retries = float64(t.retries) / float64(t.updates)
	p.MostRetries = t.most
	for _, n := range t.counts {
		p.Distribution = append(p.Distribution, float64(n)/float64(t.updates))
	}
	return nil
}
