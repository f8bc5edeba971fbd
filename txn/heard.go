package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"txnode/internal/outwait"
	"txnode/memory"
)

// A context that has ended is heard soon, whatever is silent: a blade, the catalog, or another
// process that has to answer first.
//
//	requests of a transaction              fail soon after that, as if the blade had not answered
//	                                       in time: rdma.Coro.Heed
//	what a transaction asks the catalog    is left to a goroutine, and its answer is dropped:
//	                                       rdma.Coro.Await
//	what a worker does between attempts    is left to a goroutine with the worker itself:
//	                                       Worker.within. That ends what it has begun: the session
//	                                       rejoins,
//	                                       or is broken, and rejoins later. The worker goes back
//	                                       to the pool then; one of NewWorker has its next
//	                                       transaction wait for that
//
// Coroutines that share a thread hear it between their waits: none of them can be left behind. Nor
// is anything left behind where time is virtual, or where one process alone has a database in its
// own memory: nothing is silent there.

// hears reports whether calls are to return when ctx ends, whatever is silent.
func (db *DB) hears(ctx context.Context) bool { return db.heeds && ctx != nil && ctx.Done() != nil }

// ask calls fn, which uses no worker, and may wait. If ctx ends before, fn goes on, and over, if
// not nil, is called behind it. If ctx has ended, nothing is called.
func (db *DB) ask(ctx context.Context, fn func() error, over func()) error {
	if db.hears(ctx) && ctx.Err() != nil {
		return fmt.Errorf("txn: %w", canceled(ctx))
	}
	return db.leave(ctx, fn, over)
}

// leave is ask that calls fn also when ctx has ended. DB.Close waits for what was left.
func (db *DB) leave(ctx context.Context, fn func() error, over func()) error {
	if !db.hears(ctx) {
		return fn()
	}
	var err error
	db.adopt(1, nil)
	if left := outwait.Leave(ctx, func() { err = fn() }, func() {
		if over != nil {
			over()
		}
		db.adopt(-1, nil)
	}); left != nil {
		return fmt.Errorf("txn: %w", canceled(ctx))
	}
	db.adopt(-1, nil)
	return err
}

// once is the context of what is done once, and waits as long as it takes.
var once context.Context

// heed has requests of the worker, and what its transaction asks the catalog, end with ctx; once:
// with the call that has made the worker, or not any more.
func (w *Worker) heed(ctx context.Context) {
	if ctx == nil {
		ctx = w.call
	}
	if w.db.heeds {
		w.coro.Heed(ctx)
	}
}

// ownWorker is NewWorker for a call of the database's own, which returns when ctx ends: see
// dismiss. While it is made, or closes itself, it counts beside the pool: DB.Close does not refuse
// because of it, and waits for it.
func (db *DB) ownWorker(ctx context.Context) (*Worker, error) {
	if db.isClosed() {
		return nil, ErrClosed
	}
	if !db.hears(ctx) {
		return db.newWorker(ctx, false)
	}
	var w *Worker
	var err error
	db.adopt(1, nil)
	if left := outwait.Leave(ctx, func() {
		if w, err = db.newWorker(ctx, true); err != nil {
			db.adopt(-1, nil)
		}
	}, func() {
		if err == nil {
			_ = w.Close() // its coordinator is left to recovery
			db.adopt(-1, nil)
		}
	}); left != nil {
		return nil, fmt.Errorf("txn: making a worker: %w", canceled(ctx))
	}
	if err != nil {
		return nil, err
	}
	if !db.adopt(-1, w) {
		err = errors.Join(ErrClosed, w.Close())
		db.adopt(-1, nil)
		return nil, err
	}
	w.call = ctx
	w.heed(ctx)
	return w, nil
}

// dismiss closes a worker of ownWorker, and returns what its call, which met err, does. If ctx ends
// before that is done, the worker closes itself.
func (w *Worker) dismiss(ctx context.Context, err error) error {
	db := w.db
	if !db.hears(ctx) {
		return errors.Join(err, w.Close())
	}
	// a blade has not answered in time, since the time was over
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", canceled(ctx), err)
	}
	w.call = nil
	w.heed(once)
	db.adopt(1, w)
	var closed error
	if left := outwait.Leave(ctx, func() {
		closed = w.Close()
		db.adopt(-1, nil)
	}, nil); left != nil {
		return err
	}
	return errors.Join(err, closed)
}

// adopt counts something that DB.Close waits for, beside the workers of the pool, or counts it no
// more, by n = 1 or -1. w, if not nil, is the database's own outside of the pool. false: it stays
// counted, since the database is being closed, which waits for that.
func (db *DB) adopt(n int, w *Worker) bool {
	p := &db.pool
	db.mu.Lock()
	defer db.mu.Unlock()
	if n < 0 && w != nil && db.isClosed() {
		return false
	}
	p.beside += n
	if w != nil {
		db.own -= n
		w.pooled = n > 0
	}
	if n < 0 {
		p.hand(nil) // Close may have been waiting for it
	}
	return true
}

// within calls fn, which uses the worker between two attempts, and may wait. If ctx ends before it
// returns, left is true: a goroutine has the worker then, calls over behind fn, if that is not nil,
// and comes to an end. The caller must not touch the worker any more, but to give it back.
func (w *Worker) within(ctx context.Context, fn, over func()) (left bool) {
	if !w.db.hears(ctx) || w.coro.Multiplexed() {
		fn()
		return false
	}
	w.coro.Heed(once)
	if left := outwait.Leave(ctx, fn, over); left != nil {
		w.left = left
		return true
	}
	w.heed(ctx) // again
	return false
}

// regain waits until a worker that was left behind is its caller's again.
func (w *Worker) regain(ctx context.Context) error {
	if w.left == nil {
		return nil
	}
	if ctx.Done() == nil {
		<-w.left
	} else if outwait.Outlives(ctx, w.left) {
		return fmt.Errorf("txn: the worker rejoins still, since an earlier call: %w", canceled(ctx))
	}
	w.left = nil
	return nil
}

// leftWith is what a call returns that has left its worker behind, after so many attempts, of which
// the last one has met err.
func (w *Worker) leftWith(ctx context.Context, attempts int, err error) error {
	if errors.Is(err, ErrOutcomeUnknown) {
		return err
	}
	why := err
	if p := w.why.Load(); p != nil {
		why = *p
	}
	if errors.Is(why, ErrCutOff) {
		return fmt.Errorf("txn: given up after %d attempts: %w; the last attempt: %w", attempts, canceled(ctx), why)
	}
	last := ""
	if why != nil {
		last = "; the last attempt: " + why.Error() // in words alone: what has ended it is no conflict
	}
	return fmt.Errorf("txn: given up after %d attempts: %w%s", attempts, canceled(ctx), last)
}

// retries is how a call waits for a catalog that is away: until its context ends, or, if that
// never ends, for so many lease terms.
type retries struct {
	db    *DB
	ctx   context.Context // nil: it does not wait
	since int64
	pause int64
	tries int
}

const (
	patientTerms  = 5
	patientPause  = int64(5_000_000)
	patientPauses = int64(100_000_000) // at most
)

// concern reports whether an error is one that can be waited for.
func (p *retries) concern(err error) bool {
	return p.ctx != nil && p.db.heeds && errors.Is(err, memory.ErrAway) && !errors.Is(err, ErrOutcomeUnknown)
}

// over is the error of a call that is not tried again: err, and that ctx has ended if that is why.
func (p *retries) over(err error) error {
	if p.concern(err) && p.ctx.Err() != nil && !errors.Is(err, p.ctx.Err()) {
		return fmt.Errorf("%w: %w", canceled(p.ctx), err)
	}
	return err
}

// again reports whether a call that has failed with err is to be tried again, and waits before:
// nothing of it has happened.
func (p *retries) again(err error) bool {
	if !p.concern(err) || p.db.isClosed() {
		return false
	}
	now := p.db.fabric.Now()
	if p.since == 0 {
		p.since, p.pause = now, patientPause
	}
	if p.ctx.Err() != nil || p.ctx.Done() == nil && now-p.since >= patientTerms*p.db.sup.Term() {
		return false
	}
	rest := time.NewTimer(time.Duration(p.pause))
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-p.ctx.Done():
	}
	p.tries++
	p.pause = min(2*p.pause, patientPauses)
	return p.ctx.Err() == nil
}
