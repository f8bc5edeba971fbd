package runner

import (
	"sync/atomic"
	"time"
)

// Stage is what a Bench is doing.
type Stage uint8

// Stages, in the order in which a Bench passes through them.
const (
	Loading Stage = iota
	Waiting       // for another process that loads
	WarmingUp
	Measuring
	CheckingHistory
	CheckingBooks
)

// String returns the stage in the words that reports use.
func (s Stage) String() string {
	return [...]string{
		"loading", "waiting for the load", "warm-up", "measuring", "checking history", "checking books",
	}[s]
}

// Progress is how far a Bench is.
type Progress struct {
	Stage     Stage
	Run, Runs int // the current one, from 1; 0 while loading
	// Done of Total units of this stage: records' units while loading, nanoseconds
	// or transactions while driving. Total 0: not known.
	Done, Total int64
	// PerSecond is the rate of transactions ended since the last call.
	PerSecond float64
}

const progressInterval = 200 * time.Millisecond

// board is where workers publish how far they are, for the reporter to read.
type board struct {
	slots []slot
}

type slot struct {
	ended    atomic.Int64 // transactions of this round
	measured atomic.Int64 // of them, after the warm-up
	now      atomic.Int64 // clock
	_        [128 - 3*8]byte
}

func newBoard(workers int) *board { return &board{slots: make([]slot, workers)} }

// read sums the slots up; now is that of the worker furthest ahead.
func (b *board) read() (ended, measured, now int64) {
	for i := range b.slots {
		s := &b.slots[i]
		ended += s.ended.Load()
		measured += s.measured.Load()
		now = max(now, s.now.Load())
	}
	return ended, measured, now
}

// report calls Progress for a round until the function it returns is called.
func (r *run) report(rd *round) (stop func()) {
	if r.cfg.Progress == nil {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		var lastEnded, lastNow int64
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			ended, measured, now := rd.board.read()
			base := rd.base.Load()
			if now == 0 || base == 0 {
				continue
			}
			p := Progress{Run: r.number, Runs: r.cfg.Runs}
			warm := int64(rd.warmup)
			switch elapsed := now - base; {
			case elapsed < warm:
				p.Stage, p.Done, p.Total = WarmingUp, elapsed, warm
			case r.cfg.Duration > 0:
				p.Stage = Measuring
				p.Done = min(int64(r.cfg.Duration-rd.duration)+elapsed-warm, int64(r.cfg.Duration))
				p.Total = int64(r.cfg.Duration)
			default:
				p.Stage, p.Done, p.Total = Measuring, r.cfg.Txns-rd.txns+measured, r.cfg.Txns
			}
			if lastNow > 0 && now > lastNow {
				p.PerSecond = float64(ended-lastEnded) / float64(now-lastNow) * 1e9
			}
			lastEnded, lastNow = ended, now
			r.cfg.Progress(p)
		}
	}()
	return func() { close(quit); <-done }
}
