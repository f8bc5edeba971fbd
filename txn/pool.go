package txn

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"txnode/internal/outwait"
)

// pool is the workers that Update, View and Begin borrow. They are made when they
// are first needed. A worker that is not in use is in a slot of idle, or, after
// a borrower has waited, in handed. To borrow and to give back costs a
// compare-and-swap each.
type pool struct {
	idle   []atomic.Pointer[Worker]
	wanted atomic.Int32  // borrowers that wait
	nested atomic.Int32  // workers that those hold of them which are inside a transaction
	waits  atomic.Uint64 // how often one has waited
	waited atomic.Int64  // for so long, all of them, in nanoseconds of the fabric's clock
	handed chan *Worker  // a worker, or nil: look again

	// Under DB.mu:
	created int           // workers of the pool, borrowed ones and those being made included
	limit   int           // how many may be
	beside  int           // what Close waits for, too: see adopt
	shut    chan struct{} // closed while the database is, or is being, closed
}

func (p *pool) init(workers int) {
	p.idle = make([]atomic.Pointer[Worker], workers)
	p.handed = make(chan *Worker, workers)
	p.limit = workers
	p.shut = make(chan struct{})
}

// place is where in the pool the calling goroutine looks first. It depends on its
// stack, so that goroutines tend to get the same worker again and not to meet.
func (p *pool) place() uintptr {
	var here byte
	return uintptr(unsafe.Pointer(&here)) >> 12 * 0x9e3779b1 >> 8 % uintptr(len(p.idle))
}

// takeIdle takes a worker that is not in use, nil: there is none.
func (p *pool) takeIdle() *Worker {
	n := uintptr(len(p.idle))
	at := p.place()
	for i := uintptr(0); i < n; i++ {
		k := at + i
		if k >= n {
			k -= n
		}
		if p.idle[k].Load() != nil {
			if w := p.idle[k].Swap(nil); w != nil {
				return w
			}
		}
	}
	return nil
}

// putIdle puts a worker into a slot. There are as many as there can be workers.
func (p *pool) putIdle(w *Worker) {
	n := uintptr(len(p.idle))
	for i := p.place(); ; i++ {
		if p.idle[i%n].CompareAndSwap(nil, w) {
			return
		}
	}
}

// hand gives w, or nil, to a borrower that waits, and reports whether there was room
// for it. If not, there is something there already for every borrower that waits.
func (p *pool) hand(w *Worker) bool {
	select {
	case p.handed <- w:
		return true
	default:
		return false
	}
}

// take borrows a worker from the pool, makes one, or waits for one.
func (db *DB) take(ctx context.Context) (*Worker, error) {
	if db.isClosed() {
		return nil, ErrClosed
	}
	if w := db.pool.takeIdle(); w != nil {
		return w, nil
	}
	return db.takeSlow(ctx)
}

func (db *DB) takeSlow(ctx context.Context) (*Worker, error) {
	p := &db.pool
	for {
		db.mu.Lock()
		if db.isClosed() {
			db.mu.Unlock()
			return nil, ErrClosed
		}
		if p.created < p.limit {
			p.created++
			db.mu.Unlock()
			if w, err := db.makeWorker(ctx); w != nil || err != nil {
				return w, err
			}
			continue
		}
		shut, n := p.shut, p.created
		db.mu.Unlock()
		p.wanted.Add(1)
		w := p.takeIdle() // one may have come back meanwhile
		if w == nil {
			since := db.Now()
			var err error
			if w, err = db.await(ctx, shut, n); err != nil {
				p.hasWaited(db.Now() - since)
				p.wanted.Add(-1)
				return nil, err
			}
			p.hasWaited(db.Now() - since)
		}
		p.wanted.Add(-1)
		if db.isClosed() {
			if w != nil {
				db.put(w)
			}
			return nil, ErrClosed
		}
		if w != nil {
			return w, nil
		}
	}
}

// hasWaited counts a borrower's wait.
func (p *pool) hasWaited(ns int64) {
	p.waits.Add(1)
	p.waited.Add(ns)
}

// makeWorker makes a worker that has been counted. When there is no space for it, the pool stays as
// large as it is, and the caller shares it: both results are nil. A worker that is there when ctx
// has ended is put into the pool.
func (db *DB) makeWorker(ctx context.Context) (*Worker, error) {
	if !db.hears(ctx) {
		return db.madeWorker(db.newWorker(ctx, true))
	}
	var w *Worker
	var err error
	if left := outwait.Leave(ctx, func() {
		w, err = db.madeWorker(db.newWorker(ctx, true))
	}, func() {
		if w != nil {
			db.put(w)
		}
	}); left != nil {
		return nil, fmt.Errorf("txn: making a worker: %w", canceled(ctx))
	}
	return w, err
}

// madeWorker is the end of makeWorker.
func (db *DB) madeWorker(w *Worker, err error) (*Worker, error) {
	if err == nil {
		return w, nil
	}
	p := &db.pool
	db.mu.Lock()
	p.created--
	share := p.created > 0 && errors.Is(err, ErrNoSpace)
	if share {
		p.limit = p.created
	}
	db.mu.Unlock()
	p.hand(nil) // Close, too, may have been waiting for it
	if share {
		return nil, nil
	}
	return nil, err
}

// put gives a worker back. One whose session is broken, and cannot rejoin, is
// replaced.
func (db *DB) put(w *Worker) { db.putIn(context.Background(), w) }

// putIn is put for a caller that waits for what the worker has posted until ctx is done, and no
// longer.
func (db *DB) putIn(ctx context.Context, w *Worker) {
	p := &db.pool
	if w.left == nil && p.waiting(db) && w.session.Broken() == nil {
		w.thread.Push() // what has failed the borrower will meet
		if p.hand(w) {
			return
		}
	}
	if left := w.left; left != nil {
		go func() {
			<-left
			w.left = nil
			db.put(w)
		}()
		return
	}
	if !w.rest(ctx) {
		go db.put(w) // Close waits for it
		return
	}
	if w.session.Broken() != nil && w.within(ctx, func() { _ = w.settle(once, nil) }, nil) {
		db.putIn(ctx, w) // behind that
		return
	}
	if err := w.session.Broken(); err != nil {
		db.opts.Logger.Error("a worker has failed", errField(err))
		_ = w.Close() // its coordinator stays for recovery
		db.mu.Lock()
		p.created--
		db.mu.Unlock()
		p.hand(nil) // there is room for a new one
		return
	}
	if p.waiting(db) && p.hand(w) {
		return
	}
	p.putIdle(w)
	// A borrower may have started to wait since we looked.
	if p.waiting(db) {
		if w := p.takeIdle(); w != nil && !p.hand(w) {
			p.putIdle(w)
		}
	}
}

// askIdle has the idle workers answer queries for what they are at.
func (db *DB) askIdle() {
	for i := range db.pool.idle {
		if w := db.pool.idle[i].Swap(nil); w != nil {
			w.session.Reply()
			db.put(w)
		}
	}
}

// waiting reports whether borrowers wait, or Close.
func (p *pool) waiting(db *DB) bool { return p.wanted.Load() > 0 || db.isClosed() }

// Close ends the database. It waits for transactions that are running until ctx is done; then the
// database stays open. Borrowers that wait for a worker get ErrClosed. Close the workers of
// NewWorker and of Run first, and let backups end. Otherwise Close returns an error that says so,
// and the database stays open.
//
// If ctx ends when no transaction is running, and a blade or the catalog is silent that closing
// waits for, the error is an ErrClosing: the database closes itself, and Options.Closer. Until then
// fabric and catalog are in use. To call Close again waits on, and returns what becomes of it. A
// context that has ended before the call bounds the wait for transactions alone.
//
// After any other error the database is closed all the same. The next Open does what could not be
// done in order. A second Close gets ErrClosed at once, also while the first one is running.
func (db *DB) Close(ctx context.Context) error {
	if inside(0) > 0 && openDatabases.Load() == 1 {
		return errCloseInside
	}
	if x := db.closing.Swap(nil); x != nil {
		return x.await(ctx, db)
	}
	if !db.hears(ctx) || ctx.Err() != nil { // it has ended before: the database is closed in order
		return db.close(ctx, nil)
	}
	x := &closing{done: make(chan struct{})}
	go func() {
		defer close(x.done)
		x.err = db.close(ctx, &x.decided)
	}()
	return x.await(ctx, db)
}

// closing is a Close that may be left to its goroutine.
type closing struct {
	done    chan struct{}
	err     error
	left    bool        // a caller has left it
	decided atomic.Bool // the first to set it: the caller leaves it, or the database stays open
}

// await waits until the database is closed, or ctx ends.
func (x *closing) await(ctx context.Context, db *DB) error {
	if ctx.Done() != nil && outwait.Outlives(ctx, x.done) && (x.left || x.decided.CompareAndSwap(false, true)) {
		x.left = true
		db.closing.Store(x)
		return fmt.Errorf("%w: %w", ErrClosing, canceled(ctx))
	}
	<-x.done
	return x.err
}

// close is Close. stays, if not nil, is to be set before the database is opened again, since
// transactions are running: if it is set, they are waited for.
func (db *DB) close(ctx context.Context, stays *atomic.Bool) error {
	p := &db.pool
	db.mu.Lock()
	if db.isClosed() {
		db.mu.Unlock()
		return ErrClosed
	}
	if db.own > 0 {
		n := 0
		for w := range db.workers {
			if !w.pooled {
				n++
			}
		}
		db.mu.Unlock()
		return fmt.Errorf("txn: close: %d workers of NewWorker, Run or Backup are still open: close them first",
			max(n, 1))
	}
	db.open.Store(false)
	close(p.shut)
	db.mu.Unlock()

	var errs []error
	for ended := ctx.Done(); db.poolSize() > 0; {
		w := p.takeIdle()
		if w == nil {
			select {
			case w = <-p.handed:
			case <-ended:
				if stays != nil && !stays.CompareAndSwap(false, true) {
					ended = nil
					continue
				}
				db.mu.Lock()
				db.open.Store(true)
				p.shut = make(chan struct{})
				db.mu.Unlock()
				return errors.Join(append(errs,
					fmt.Errorf("txn: close: transactions are still running, the database stays open: %w",
						canceled(ctx)))...)
			}
		}
		if w != nil {
			errs = append(errs, w.Close())
			db.mu.Lock()
			p.created--
			db.mu.Unlock()
		}
	}
	openDatabases.Add(-1)
	errs = append(errs, db.sup.Close())
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	errs = append(errs, db.answer(ctx))
	if errors.Join(errs...) == nil {
		errs = append(errs, db.fulfil())
	}
	if db.owned == nil {
		errs = append(errs, db.withBlades(db.space.Close)) // others may begin an epoch
	}
	errs = append(errs, db.ctl.Close())
	if db.owned != nil {
		errs = append(errs, db.owned.Close())
	}
	if db.opts.Closer != nil {
		errs = append(errs, db.opts.Closer.Close())
	}
	if db.log != nil {
		db.log.Flush(logFlush)
	}
	return errors.Join(errs...)
}

func (db *DB) poolSize() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.pool.created + db.pool.beside
}
