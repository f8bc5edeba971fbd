package runner

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"txnode/benchmarks/workload"
	"txnode/history"
)

// run is one measured run: one round, or one per window of a recorded history.
type run struct {
	*bench
	number int // from 1
	seed   uint64

	types    []Type
	latency  *histograms
	elapsed  time.Duration
	warm     time.Duration // of the warm-up, spent so far
	measured int64         // transactions
	arrivals int64
	backlog  int64
	rounds   int
	history  *historyCheck
	timeline *timeline // nil: no events
	series   series
	phases   *[workload.NumPhases]workload.PhaseCounters // nil: the store does not tell
}

// measure drives the workload until the run is over. After an error, what was
// measured until then is there.
func (r *run) measure() error {
	names, mix := r.driver.Types(), r.driver.Mix()
	r.latency = &histograms{}
	for i, name := range names {
		h := newHistogram()
		r.latency.byType = append(r.latency.byType, h)
		r.types = append(r.types, Type{Name: name, Share: mix[i], Latency: h})
	}
	if len(r.cfg.Events) > 0 {
		r.timeline = newTimeline(r.cfg.Events, r.cfg.Duration)
	}
	if !r.cfg.Verify {
		_, err := r.round()
		return err
	}
	r.history = newHistoryCheck()
	for {
		var rec history.Recorder
		r.recorder.Record(&rec)
		driven, err := r.round()
		r.recorder.Record(nil)
		r.progress(CheckingHistory, r.number)
		txns, failed := rec.Txns(), rec.Failed()
		if r.cfg.History != nil {
			if e := r.cfg.History(append(txns[:len(txns):len(txns)], failed...)); e != nil {
				return e
			}
		}
		if e := r.history.window(txns, failed); e != nil {
			return &verificationError{e}
		}
		if err != nil || driven == 0 || r.over() {
			return err
		}
	}
}

// over says that nothing is left to measure.
func (r *run) over() bool {
	return r.stop.Load() ||
		r.cfg.Duration > 0 && r.elapsed >= r.cfg.Duration ||
		r.cfg.Txns > 0 && r.measured >= r.cfg.Txns
}

// round starts the workers once, and returns how many transactions have ended.
func (r *run) round() (driven int64, err error) {
	rd := &round{
		run:           r,
		warmup:        max(r.cfg.Warmup-r.warm, 0),
		seed:          r.seed + uint64(r.rounds)<<32,
		board:         newBoard(r.cfg.workers()),
		begin:         math.MaxInt64,
		elapsedBefore: r.elapsed,
		end:           math.MinInt64,
	}
	r.rounds++
	rd.base.Store(notYet)
	if r.cfg.Duration > 0 {
		rd.duration = r.cfg.Duration - r.elapsed
	}
	if r.cfg.Txns > 0 {
		rd.txns = r.cfg.Txns - r.measured
		rd.budget.Store(rd.txns)
		rd.budgetBatch = batchOf(rd.txns, r.cfg.workers())
	}
	if r.cfg.Verify {
		rd.window.Store(r.cfg.VerifyWindow)
		rd.windowBatch = batchOf(r.cfg.VerifyWindow, r.cfg.workers())
	}
	stopReport := r.report(rd)
	stopEvents := rd.playEvents()
	err = r.store.Run(r.ctx, r.cfg.Threads, r.cfg.Coroutines, rd.work)
	stopEvents()
	stopReport()
	if err != nil && r.ctx.Err() != nil {
		err = ErrStuck
	}
	rd.close()
	return rd.driven, err
}

// result is what the run has measured.
func (r *run) result() Run {
	out := Run{
		Seed:        r.seed,
		Elapsed:     r.elapsed,
		Types:       r.types,
		Arrivals:    r.arrivals,
		Backlog:     r.backlog,
		Interrupted: r.stop.Load(),
		Series:      r.series.result(r.elapsed),
		Phases:      r.phases,
	}
	if r.history != nil {
		out.History = &r.history.found
	}
	if r.timeline != nil {
		out.Timeline = r.timeline.result(r.elapsed)
	}
	return out
}

// notYet is the base of a round that no worker has begun.
const notYet = math.MinInt64

// round is one start of the workers. Its limits are what the rounds before
// have left.
type round struct {
	*run
	warmup   time.Duration
	duration time.Duration // zero: no limit
	txns     int64         // to measure; zero: no limit
	seed     uint64
	board    *board

	elapsedBefore time.Duration // measured by earlier rounds of the run

	base     atomic.Int64 // clock when the first worker began
	arrived  atomic.Int64 // open loop: arrivals taken from the queue
	budget   atomic.Int64 // of txns, not handed out
	window   atomic.Int64 // transactions until the window is full, not handed out
	windowed atomic.Bool  // the window is full

	budgetBatch, windowBatch int64 // zero: no limit

	mu         sync.Mutex // guards what follows, and the run's totals
	begin, end int64      // of what was measured
	last       int64      // latest clock seen
	driven     int64      // transactions ended, with warm-up
}

// work is the function of Store.Run.
func (rd *round) work(ctx context.Context, id int, sw workload.Worker) (err error) {
	w := newWorker(rd, id, sw)
	defer func() {
		if p := recover(); p != nil {
			err = newPanicError(p)
		}
		if err != nil {
			rd.stop.Store(true)
		}
		rd.collect(w)
	}()
	w.client = rd.driver.NewClient(id, rd.seed, sw)
	now := w.now()
	if !rd.base.CompareAndSwap(notYet, now) {
		now = rd.base.Load()
	}
	w.warmEnd, w.deadline = now+int64(rd.warmup), math.MaxInt64
	if rd.duration > 0 {
		w.deadline = w.warmEnd + int64(rd.duration)
	}
	if rd.cfg.Rate > 0 {
		return w.openLoop(ctx, now)
	}
	return w.closedLoop(ctx)
}

// collect adds what a worker has measured.
func (rd *round) collect(w *worker) {
	w.samples.flush()
	rd.mu.Lock()
	defer rd.mu.Unlock()
	rd.driven += w.ended
	rd.last = max(rd.last, w.last)
	if !w.measuring {
		return
	}
	rd.begin, rd.end = min(rd.begin, w.begin), max(rd.end, w.last)
	w.inSeries(w.commits, w.last)
	w.endSeries()
	rd.addPhases(w)
	for i := range w.types {
		t, u := &rd.types[i], &w.types[i]
		for o := range u.outcomes {
			t.Outcomes[o] += u.outcomes[o]
			rd.measured += int64(u.outcomes[o])
			addCounters(&t.Cost[o], &u.cost[o])
		}
	}
}

// addPhases adds what a worker's phases have cost since it began to measure. The caller holds the
// lock.
func (rd *round) addPhases(w *worker) {
	p, ok := w.sw.(workload.PhaseCounter)
	if !ok {
		return
	}
	if rd.phases == nil {
		rd.phases = new([workload.NumPhases]workload.PhaseCounters)
	}
	for i, c := range p.Phases() {
		rd.phases[i].Add(c.Sub(w.phases[i]))
	}
}

// close adds the round's times to the run's.
func (rd *round) close() {
	base := rd.base.Load()
	if base == notYet {
		return
	}
	warmEnd := base + int64(rd.warmup)
	rd.warm += time.Duration(min(max(rd.last-base, 0), int64(rd.warmup)))
	if rd.cfg.Rate > 0 {
		rd.closeOpenLoop(base, warmEnd)
		return
	}
	if rd.end > rd.begin {
		rd.elapsed += time.Duration(rd.end - rd.begin)
	}
}

// claim takes up to batch from a counter that others take from as well.
func claim(left *atomic.Int64, batch int64) int64 {
	return min(batch, max(left.Add(-batch)+batch, 0))
}

// batchOf is how much of a limit a worker takes at a time: little enough that
// all end together, enough to leave the counter's cache line alone.
func batchOf(limit int64, workers int) int64 {
	return min(max(limit/int64(16*workers), 1), 64)
}
