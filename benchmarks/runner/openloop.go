package runner

import (
	"context"
	"math"
	"time"

	"txnode/benchmarks/workload"
)

// openLoop serves arrivals at even intervals from base on. All workers take
// arrivals from one queue in order, so that none waits behind a busy worker
// while another is idle.
func (w *worker) openLoop(ctx context.Context, base int64) error {
	rd := w.round
	limit := rd.arrivalLimit()
	w.snapshots[w.newest] = w.sw.Counters()
	for w.goesOn() {
		k := rd.arrived.Add(1) - 1
		intended := base + rd.intended(k)
		if k >= limit || intended >= w.deadline {
			w.waitForEnd(min(w.deadline, base+rd.intended(limit)))
			return nil
		}
		now, ok := w.waitUntil(intended)
		if w.last = now; !ok || now >= w.deadline {
			return nil
		}
		if !w.measuring && intended >= w.warmEnd {
			w.measure(intended)
		}
		w.budget = math.MaxInt64 // arrivals are counted instead
		typ, outcome, err := w.transaction(ctx)
		if err != nil {
			return w.fail(err)
		}
		w.last = w.now()
		if outcome == workload.Committed && w.measuring {
			w.samples.add(typ, w.last-intended)
		}
		w.publish()
	}
	return nil
}

// waitForEnd waits until no arrival could be due any more, when all are served: a run lasts as long
// as it says. Where the window of a verification is full, it goes on in another round.
func (w *worker) waitForEnd(end int64) {
	for rd := w.round; !rd.windowed.Load(); {
		now, ok := w.waitUntil(min(end, w.now()+sleepSlice))
		if w.last = now; !ok || now >= end {
			return
		}
	}
}

// intended is when arrival k is due, after the base of the round.
func (rd *round) intended(k int64) int64 {
	if k == math.MaxInt64 { // there is no such arrival
		return math.MaxInt64 / 2
	}
	return int64(math.Round(float64(k) * 1e9 / rd.cfg.Rate))
}

// due is the number of arrivals that are due less than ns after the base.
func (rd *round) due(ns int64) int64 {
	k := max(int64(float64(ns)*rd.cfg.Rate/1e9)-1, 0)
	for rd.intended(k) < ns {
		k++
	}
	return k
}

// arrivalLimit is the number of the arrival at which the round ends.
func (rd *round) arrivalLimit() int64 {
	if rd.txns == 0 {
		return math.MaxInt64
	}
	return rd.due(int64(rd.warmup)) + rd.txns
}

// closeOpenLoop adds times and arrivals to the run's. The time measured ends
// with the last arrival's turn, or with the last transaction if that is later.
func (rd *round) closeOpenLoop(base, warmEnd int64) {
	var measured int64
	for i := range rd.types {
		measured += int64(rd.types[i].Ended())
	}
	begun := measured - (rd.arrivals - rd.backlog)
	first := rd.due(int64(rd.warmup))
	end := rd.last
	arrivals := begun
	switch {
	case rd.windowed.Load(): // the queue was dropped on purpose
	case rd.stop.Load():
		arrivals = rd.due(max(rd.last-base, 0)) - first
	case rd.duration > 0:
		end = max(end, min(warmEnd+int64(rd.duration), base+rd.intended(rd.arrivalLimit())))
		arrivals = min(rd.due(int64(rd.warmup+rd.duration)), rd.arrivalLimit()) - first
	default:
		end = max(end, base+rd.intended(rd.arrivalLimit()))
		arrivals = rd.txns
	}
	arrivals = max(arrivals, begun)
	rd.arrivals += arrivals
	rd.backlog += arrivals - begun
	if end > warmEnd {
		rd.elapsed += time.Duration(end - warmEnd)
	}
}
