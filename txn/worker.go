package txn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"txnode/internal/sentinel"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// Worker runs transactions one after another, on a thread of the fabric that
// belongs to it, or as a coroutine that shares its thread with others (DB.Run).
// It belongs to one goroutine, or coroutine, at a time.
type Worker struct {
	db      *DB
	thread  *rdma.Thread
	session *occ.Session
	coro    *rdma.Coro
	tx      *Tx  // of the transaction in progress, or of the last one
	unused  []Tx // handles for the next transactions
	o       *occ.Tx
	owner   bool // closes thread and session
	pooled  bool // of DB.pool
	closed  bool
	hungry  bool // DB.hungry is what it waits for
	patient bool // DB.patient counts its transaction
	missing bool // see miss
	ticks   uint32
	sweeper *recovery.Sweeper // in progress

	// Of a transaction that is patient: the lock that its last attempt has met, how long it has
	// waited then, and how many attempts it has spent in waiting for one lock.
	metLock record.Guard
	waited  int64
	idle    int
	away    retries // with a catalog that is away, in the transaction in progress

	call context.Context       // of the call that has made the worker for itself, nil: none, or it has no end
	left <-chan struct{}       // not nil: a goroutine has the worker until it is closed: see within
	why  atomic.Pointer[error] // why the session could not rejoin, the last time

	maintained int64 // when maintenance was done last

	illIndex   layout.Addr // where an index was found damaged last
	illRepairs uint64      // how often an index of the database had been repaired then

	keyBuf, valueBuf []byte

	committed, rolledBack uint64
	own                   Metrics // the rest of what it counts by itself
	began                 int64   // when the transaction began, if it is timed; else untimed
	timeNext, asideNext   uint32  // of ticks: see aside
	mu                    sync.Mutex
	published             totals
}

// newWorker makes a worker on an own thread, for the pool or for the caller.
func (db *DB) newWorker(ctx context.Context, pooled bool) (*Worker, error) {
	t, s, err := db.newSession(ctx, pooled)
	if err != nil {
		return nil, err
	}
	w, err := db.workerOn(t, s, t.Plain(), pooled)
	if err != nil {
		return nil, errors.Join(err, db.endSession(t, s, pooled))
	}
	w.owner = true
	return w, nil
}

func (db *DB) workerOn(t *rdma.Thread, s *occ.Session, c *rdma.Coro, pooled bool) (*Worker, error) {
	o, err := s.NewTx(c)
	if err != nil {
		return nil, err
	}
	w := &Worker{
		db: db, thread: t, session: s, coro: c, o: o, pooled: pooled,
		keyBuf: make([]byte, 0, 64), valueBuf: make([]byte, 0, 256), maintained: t.Now(),
		began: untimed, timeNext: 1, asideNext: 1,
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.isClosed() {
		return nil, ErrClosed
	}
	if r := db.opts.History; r != nil {
		o.Record(r.Session(), db.fabric.Now)
	}
	db.workers[w] = struct{}{}
	return w, nil
}

// Close ends the worker; no transaction of it may be open. Closing it again does
// nothing, and its transactions end with ErrClosed from then on.
func (w *Worker) Close() error {
	if err := w.regain(context.Background()); err != nil {
		return err
	}
	if w.o.Active() {
		if w.closed {
			return nil
		}
		return errOpenTx
	}
	if !w.retire() {
		return nil
	}
	defer w.shut()
	if !w.owner {
		return nil // thread and session are those of DB.Run
	}
	return w.db.endSession(w.thread, w.session, w.pooled)
}

// retire takes the worker out of the list of those that are open; false: it was not on it.
func (w *Worker) retire() bool {
	w.publish()
	db := w.db
	db.mu.Lock()
	defer db.mu.Unlock()
	_, open := db.workers[w]
	if open {
		delete(db.workers, w)
		db.retired.add(&w.published)
	}
	return open
}

// shut says that the worker is closed, and its memory may be gone. That no transaction is to begin
// is told by the one thing that is looked at anyway before one does.
func (w *Worker) shut() {
	w.closed = true
	w.o.Shut()
}

// Update runs fn in a transaction, again after each conflict (with backoff, at
// most Options.Retries times, then the error is ErrConflict), and commits it when
// fn returns nil. When fn returns an error the transaction is rolled back and the
// error returned as it is. fn may run several times and must not keep tx.
func (w *Worker) Update(ctx context.Context, fn func(tx *Tx) error) error {
	return w.run(ctx, fn, false)
}

// View is Update for a function that writes nothing.
func (w *Worker) View(ctx context.Context, fn func(tx *Tx) error) error {
	return w.run(ctx, fn, true)
}

func (w *Worker) run(ctx context.Context, fn func(tx *Tx) error, readOnly bool) (err error) {
	if err := w.regain(ctx); err != nil {
		return err
	}
	o := w.o
	if o.Active() {
		return w.inUse()
	}
	if w.ticks++; int32(w.ticks-w.asideNext) >= 0 || w.session.Due() {
		if w.within(ctx, w.aside, nil) {
			return w.leftWith(ctx, 0, nil)
		}
	}
	if w.db.hungry.Load() != 0 {
		w.yieldToStarving(0)
	}
	tx := w.handle()
	w.tx = tx
	tx.ctx, tx.readOnly = ctx, readOnly || w.db.opts.ReadOnly
	w.coro.BeginOp()
	w.away = retries{db: w.db, ctx: ctx}
	w.heed(ctx)
	// It captures nothing but the worker, where it finds everything.
	defer func() {
		if w.left == nil {
			w.end()
		}
	}()
	for attempt := 0; ; attempt++ {
		if e := o.Begin(); e != nil {
			if err = w.beginAgain(ctx, e); err != nil {
				if w.left != nil {
					return err
				}
				w.gaveUp(err)
				break
			}
		}
		tx.open, tx.err = w.db, nil
		tx.told, tx.committing = false, false
		if attempt >= insistAfter && tx.insists {
			tx.open = nil // what looks at it there takes the long way, which locks
		}
		e := fn(tx)
		if e == nil {
			tx.committing = true
			if tx.ended() {
				e = tx.refrain()
			} else {
				e = o.Commit()
			}
			if e == nil {
				w.committed++
				break
			}
		} else {
			var own bool
			if own, e = w.withdraw(e); own {
				err = e
				break
			}
		}
		again, e := w.recoupWithin(ctx, e, attempt)
		if w.left != nil {
			return e
		}
		if !again {
			if err = e; err != nil && (tx.err != nil || tx.committing) {
				w.gaveUp(err)
			}
			break
		}
		w.own.Retries++
	}
	if w.missing || w.o.HasServed() || w.o.Owing() != nil {
		if w.within(ctx, w.trail, w.end) {
			return err
		}
	}
	if !w.pooled && !w.rest(ctx) {
		w.session.Break(fmt.Errorf("a blade has not answered to what was committed before %w", canceled(ctx)))
		return err // it rejoins before its next transaction, and its lease is not renewed until then
	}
	// no commit logs any more, so the transaction is still in its log
	if w.session.Broken() != nil && w.within(ctx, w.rejoinIfBroken, w.end) {
		return err
	}
	return err
}

// end is the end of a transaction of run.
func (w *Worker) end() {
	if w.o.Active() {
		w.unwind()
	}
	w.heed(once)
	w.tx.end()
	if w.patient {
		w.endured()
	}
	w.coro.EndOp()
	if w.began != untimed {
		w.timed(w.tx.readOnly)
	}
}

// trail is what is left to do behind a transaction that has met something: for other transactions,
// and for its own next ones.
func (w *Worker) trail() {
	if w.missing {
		w.missed()
	}
	if w.o.HasServed() {
		w.repairServed()
	}
	if t := w.o.Owing(); t != nil {
		w.post(t)
	}
}

// rest waits until what the worker has posted has completed, where that is not the case anyway
// and no other coroutine of the thread would notice a failure: the caller may have nothing more
// to do, and others would wait for a lock whose release the change of an epoch has failed. When
// ctx ends before, as beside a blade that hangs, it is false, and the caller sees to it that the
// worker does not stay so.
func (w *Worker) rest(ctx context.Context) bool {
	if !w.owner || !w.db.rests {
		return true
	}
	grace := restGrace
	if w.pooled {
		grace = 0 // another goroutine waits on
	}
	for ctx.Done() != nil && !w.session.RestFor(restSliceNs) {
		if ctx.Err() != nil {
			if grace--; grace < 0 {
				return false
			}
		}
	}
	_ = w.session.Rest() // a failure breaks the session, which rejoins
	return true
}

// restSliceNs is how often rest looks whether its context has ended, and restGrace how often after
// that: to break a session costs all an epoch when it rejoins.
const (
	restSliceNs = 1_000_000
	restGrace   = 100
)

// handles is how many handles are allocated together: a page of them.
const handles = 56

// handle returns a handle that no transaction has had, so that one which its function has
// kept stays that of a transaction that has ended.
func (w *Worker) handle() *Tx {
	if len(w.unused) == 0 {
		w.unused = make([]Tx, handles)
	}
	tx := &w.unused[0]
	w.unused = w.unused[1:]
	tx.w, tx.o = w, w.o
	return tx
}

// inUse is why no transaction may begin when w.o is active.
func (w *Worker) inUse() error {
	if w.closed {
		return shutError{}
	}
	return errNested
}

// aside is what run does before one transaction in some: it notes when that began, if it is to be
// timed, and pauses. The two are at different ones, so that those that are timed have their share
// of pauses, and no more.
func (w *Worker) aside() {
	w.time()
	if w.ticks%yieldEvery == 0 || w.session.Due() {
		w.pause()
	}
	w.asideNext = w.ticks + min(w.timeNext-w.ticks, yieldEvery-w.ticks%yieldEvery)
}

// time notes when a transaction begins, that of w.ticks, if it is to be timed.
func (w *Worker) time() {
	if int32(w.ticks-w.timeNext) >= 0 {
		w.began = w.thread.Now()
		w.timeNext = w.ticks + uint32(w.db.opts.LatencySample)
	}
}

// untimed is w.began of a transaction that is not timed.
const untimed = math.MinInt64

// pause is what run does now and then between two transactions: before one begins, not
// when it has committed. Its client would be without an answer meanwhile, and other
// coroutines of the thread could use its log space, without which the others have none.
func (w *Worker) pause() {
	w.coro.Yield()
	if w.ticks%maintainEvery == 0 || w.session.Due() {
		w.maintain()
	}
}

// unwind ends a transaction whose function has panicked, or whose thread was stopped.
func (w *Worker) unwind() {
	if w.coro.Unwinding() {
		w.o.Abandon() // what it has posted may still be read from the arena, in which a rollback would write
		return
	}
	if w.tx.committing {
		w.o.Abandon() // whatever the rollback will say
	} else {
		defer w.o.Abandon()
	}
	w.tx.rollback()
}

// withdraw rolls back an attempt whose function has returned err, and returns what it has
// failed with. own: that is the function's own decision, and final.
func (w *Worker) withdraw(err error) (own bool, _ error) {
	tx := w.tx
	// A function that met no error of the engine's rolls itself back.
	own = tx.err == nil && (!sentinel.Is(err, ErrConflict) || isSpent(err))
	if own && !w.db.likeFORD() {
		// What it saw must have been true.
		if certain := w.o.Certify(); certain != nil {
			tx.err, err = certain, certain
			own = false
		}
	}
	tx.rollback()
	if tx.err != nil {
		err = tx.err
	} else {
		w.rolledBack++
	}
	return own && !tx.told && w.session.Broken() == nil && !w.db.opts.SingleAttempt, err
}

// rejoinIfBroken has the session rejoin if it is broken after all, by what a transaction had
// left to be done when its outcome was known. The worker may not be
// used again for long, and until then others would meet its locks.
func (w *Worker) rejoinIfBroken() {
	if w.session.Broken() == nil {
		return
	}
	if err := w.settle(once, nil); err != nil {
		w.db.opts.Logger.Warn("rejoining has failed, and will be tried again", errField(err))
	}
}

// maintain does what is done between transactions, now and then.
func (w *Worker) maintain() {
	w.publish()
	if err := w.maintainAll(maintainMostNs); err != nil && w.session.Broken() == nil {
		w.failed(err, "maintenance between transactions failed")
	}
}

// begin begins an attempt, after the session has rejoined if it is broken. When ctx ends before,
// the worker may be left behind.
func (w *Worker) begin(ctx context.Context) error {
	err := w.o.Begin()
	if err != nil {
		err = w.beginAgain(ctx, err)
	}
	return err
}

func (w *Worker) beginAgain(ctx context.Context, err error) error {
	for tries := 0; ; tries++ {
		x, e := &became{err: err}, err
		if w.within(ctx, func() { x.err = w.settle(ctx, e) }, nil) {
			return w.leftWith(ctx, 0, e)
		}
		if err = x.err; !errors.Is(err, ErrFenced) || tries >= maxRejoins {
			return err
		}
		if err = w.o.Begin(); err == nil {
			return nil
		}
	}
}

// insist calls fn, which posts verbs outside of transactions, or by one attempt of a
// transaction, and may be called again from its beginning: that is done when the epoch has moved
// meanwhile, or a blade was lost.
func (w *Worker) insist(ctx context.Context, fn func() error) error {
	if err := w.regain(ctx); err != nil {
		return err
	}
	w.heed(ctx)
	defer func() {
		if w.left == nil {
			w.heed(once)
		}
	}()
	for tries := 0; ; tries++ {
		x, e := &became{}, fn()
		if e != nil || w.session.Broken() != nil {
			if w.within(ctx, func() { x.err = w.settle(ctx, e) }, nil) {
				return w.leftWith(ctx, tries, e)
			}
		}
		err := x.err
		if !errors.Is(err, ErrFenced) || isSpent(err) || ctx.Err() != nil || tries == maxRejoins {
			return err
		}
	}
}

// maxRejoins is how often in a row a worker rejoins before it gives up.
const maxRejoins = 100

// yieldEvery is how many transactions a coroutine runs before the others of its
// thread get a turn, on a fabric whose verbs complete at once: there nothing else
// makes it wait.
const yieldEvery = 32

// maintainEvery is how many transactions pass between two rounds of maintenance.
const maintainEvery = 64

// Sleep waits for d nanoseconds of the fabric's clock, while other coroutines of
// the thread run.
func (w *Worker) Sleep(d int64) { w.coro.Sleep(d) }

// Expects reports whether [Table.Expect] does anything for this worker at present.
func (w *Worker) Expects() bool { return w.o.Expects() }

// Now is the fabric's clock in nanoseconds.
func (w *Worker) Now() int64 { return w.thread.Now() }

// Phases returns running totals of verbs by phase of the protocol.
func (w *Worker) Phases() [occ.NumPhases]rdma.Counters { return *w.o.Phases() }

// Counters returns commits, conflicts by occ.AbortReason and verbs by occ.Phase, cheaply: the
// arrays are the worker's own, which go on counting, and are to be read where it runs.
func (w *Worker) Counters() (committed uint64, conflicts *[occ.NumAbortReasons]uint64,
	phases *[occ.NumPhases]rdma.Counters) {
	return w.committed, w.o.Aborts(), w.o.Phases()
}

// likeFORD says that transactions are counted as FORD's programs do. They believe
// whatever a transaction saw that ends itself.
func (db *DB) likeFORD() bool { return db.opts.SingleAttempt && db.opts.Policy == PolicyFORD }
