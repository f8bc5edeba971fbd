package runner

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"time"

	"txnode/benchmarks/workload"
)

// worker drives one client. It belongs to one goroutine or coroutine.
type worker struct {
	round  *round
	sw     workload.Worker
	client workload.Client
	now    func() int64
	slot   *slot

	warmEnd   int64 // clock at which measuring begins
	deadline  int64 // and ends
	measuring bool
	begin     int64 // of what was measured
	last      int64 // clock when it was last read
	ended     int64 // transactions
	warmed    int64 // of them, in the warm-up

	budget, window int64                // claimed and not used
	snapshots      [2]workload.Counters // of sw, before and after a transaction in turn
	newest         uint8                // of them
	pacer          workload.Pacer       // nil: the client waits for nothing
	types          []typeCounts
	samples        sampleBuffer
	commits        uint64 // that inSeries was not told of
	interval       inSeries
	phases         [workload.NumPhases]workload.PhaseCounters // of sw, when measuring began
}

// typeCounts are those of Type that a worker counts by itself.
type typeCounts struct {
	outcomes [workload.NumOutcomes]uint64
	cost     [workload.NumOutcomes]workload.Counters
}

func newWorker(rd *round, id int, sw workload.Worker) *worker {
	return &worker{
		round:   rd,
		sw:      sw,
		now:     rd.store.Now,
		slot:    &rd.board.slots[id],
		types:   make([]typeCounts, len(rd.types)),
		samples: sampleBuffer{to: rd.latency},
	}
}

// closedLoop runs one transaction after another until a limit is reached.
func (w *worker) closedLoop(ctx context.Context) error {
	every := w.round.cfg.LatencySample
	w.snapshots[w.newest] = w.sw.Counters()
	w.pacer, _ = w.client.(workload.Pacer)
	for skip := 0; w.goesOn(); skip-- {
		if w.pacer != nil && !w.pause() {
			break
		}
		if skip > 0 {
			if _, _, err := w.transaction(ctx); err != nil {
				return w.fail(err)
			}
			continue
		}
		skip = every
		start := w.now()
		if w.last = start; start >= w.deadline {
			return nil
		}
		if !w.measuring && start >= w.warmEnd {
			w.measure(start)
			if !w.goesOn() { // the budget is counted from here
				return nil
			}
		}
		typ, outcome, err := w.transaction(ctx)
		if err != nil {
			return w.fail(err)
		}
		if outcome == workload.Committed && w.measuring {
			w.last = w.now()
			w.samples.add(typ, w.last-start)
		}
		w.publish()
	}
	w.last = w.now()
	return nil
}

// pause waits for what the client wants before its next transaction. False: the run is over.
func (w *worker) pause() bool {
	ns := w.pacer.Pause()
	if ns <= 0 {
		return true
	}
	until := w.now() + ns
	now, ok := w.waitUntil(min(until, w.deadline))
	return ok && now < w.deadline
}

// transaction runs the next transaction and counts it.
func (w *worker) transaction(ctx context.Context) (typ int, outcome workload.Outcome, err error) {
	typ = w.client.Next()
	outcome, err = w.client.Run(ctx)
	if err != nil {
		return typ, outcome, err
	}
	before := &w.snapshots[w.newest]
	w.newest ^= 1
	after := &w.snapshots[w.newest]
	*after = w.sw.Counters()
	t := &w.types[typ]
	t.outcomes[outcome]++
	if outcome == workload.Committed {
		w.commits++
	}
	addDifference(&t.cost[outcome], after, before)
	if w.round.timeline != nil && outcome == workload.Committed {
		w.round.commit(w.now())
	}
	w.ended++
	w.window--
	if w.measuring {
		w.budget--
	}
	return typ, outcome, nil
}

// goesOn says whether the worker may begin another transaction, claiming more
// of the limits when it has used up what it had.
func (w *worker) goesOn() bool {
	rd := w.round
	if rd.stop.Load() {
		return false
	}
	if w.window == 0 {
		if rd.windowBatch == 0 {
			w.window = math.MaxInt64
		} else if w.window = claim(&rd.window, rd.windowBatch); w.window == 0 {
			rd.windowed.Store(true)
			return false
		}
	}
	if w.budget == 0 && w.measuring {
		if rd.budgetBatch == 0 {
			w.budget = math.MaxInt64
		} else if w.budget = claim(&rd.budget, rd.budgetBatch); w.budget == 0 {
			return false
		}
	}
	return true
}

// measure ends the warm-up of this worker.
func (w *worker) measure(begin int64) {
	w.measuring, w.begin, w.warmed, w.commits = true, begin, w.ended, 0
	clear(w.types)
	if p, ok := w.sw.(workload.PhaseCounter); ok {
		w.phases = p.Phases()
	}
}

// publish shows the reporter how far the worker is.
func (w *worker) publish() {
	w.slot.ended.Store(w.ended)
	if w.measuring {
		w.slot.measured.Store(w.ended - w.warmed)
		w.inSeries(w.commits, w.last)
		w.commits = 0
	}
	w.slot.now.Store(w.last)
}

// fail stops the round.
func (w *worker) fail(err error) error {
	w.last = w.now()
	return err
}

// sleepSlice bounds a wait, so that an interruption is noticed.
const sleepSlice = int64(50 * time.Millisecond)

// coarse is by how much a sleep of the operating system may be late; the rest
// of a wait is spent giving way to others.
const coarse = int64(1500 * time.Microsecond)

// waitUntil waits for a time, and returns the time it is then; false if the
// round stops before.
func (w *worker) waitUntil(t int64) (now int64, ok bool) {
	sleeper, _ := w.sw.(workload.Sleeper)
	for {
		now = w.now()
		left := t - now
		switch {
		case left <= 0:
			return now, true
		case w.round.stop.Load():
			return now, false
		case sleeper != nil:
			sleeper.Sleep(min(left, sleepSlice))
		case left > coarse:
			time.Sleep(time.Duration(min(left-coarse, sleepSlice)))
		default:
			runtime.Gosched()
		}
	}
}

// addDifference adds after - before to c. Most transactions meet no conflict.
func addDifference(c, after, before *workload.Counters) {
	c.Committed += after.Committed - before.Committed
	c.Verbs += after.Verbs - before.Verbs
	c.RoundTrips += after.RoundTrips - before.RoundTrips
	c.BytesRead += after.BytesRead - before.BytesRead
	c.BytesWrite += after.BytesWrite - before.BytesWrite
	if after.Aborts != before.Aborts {
		for i := range c.Aborts {
			c.Aborts[i] += after.Aborts[i] - before.Aborts[i]
		}
	}
}

func newPanicError(value any) error { return &PanicError{Value: value, Stack: debug.Stack()} }
