package txn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
)

// What a process does about changes that all must know: see memory/rest.go.

// resting is what this process waits for before it says that all has ended which it had begun
// before such a change.
type resting struct {
	idle atomic.Bool // what holds ctlMu waits for others to rest, and has nothing under way

	mu    sync.Mutex
	rev   layout.Revision
	rest  *occ.Rest // of the transactions that had begun before rev was known; nil: nothing is waited for
	since int64     // when it was asked first
}

// Pauses between two looks.
const (
	restPauseNs  = int64(1_000_000)
	restPausesNs = 16 * restPauseNs // at most, where the catalog is asked
)

// lookForRest does what is to be done about changes that all must know, and reports whether it is
// to be called again soon.
func (db *DB) lookForRest() (more bool) {
	x := &db.resting
	if !x.mu.TryLock() {
		return true
	}
	defer x.mu.Unlock()
	rev, below, due := db.space.RestDue()
	if !due {
		if x.rest = nil; db.space.Ending() {
			_ = db.space.Rested(0) // the next sign of life says so
		}
		return false
	}
	now := db.fabric.Now()
	if x.rest == nil { // else one that was asked for before, which ends first
		if !x.idle.Load() { // else what has no session may have begun before
			if db.sup.Maintaining() || !db.ctlMu.TryLock() {
				return true
			}
			db.ctlMu.Unlock()
		}
		x.rest, x.rev, x.since = occ.NewRest(now, below), rev, now
	}
	db.askIdle()
	if x.rest.Ended(db.engine, now) {
		x.rest = nil
		_ = db.space.Rested(x.rev) // likewise
		return true
	}
	if term := int64(db.opts.LeaseTerm); term > 0 && now-x.since > term {
		// A worker has begun nothing since, and does not end what it has begun: others do not wait
		// for it longer than for a process that is silent.
		x.since = now
		db.recoverLate(x.rest.Late())
	}
	return true
}

// recoverLate has workers recovered, by their coordinators, that are waited for and have not
// answered.
func (db *DB) recoverLate(late []uint32) {
	for _, id := range late {
		db.space.Abandon(id)
	}
	if len(late) > 0 {
		db.opts.Logger.Warn("workers have been idle, or in a transaction, since before tables were changed, or "+
			"segments left: they are recovered, and join again",
			zap.Uint32s("coordinators", late))
		db.sup.Hurry()
	}
}

// awaitRest waits until everything has ended, in all processes, that had begun before a change that
// all must know; in a database that is not shared, before the call. limit bounds it, in
// nanoseconds; 0: ctx alone does. The error of a wait that ends before names what is waited for.
// attend is called between two looks.
func (db *DB) awaitRest(ctx context.Context, c *rdma.Coro, attend func(), n memory.Notice, limit int64) (err error) {
	defer db.waits.Store(nil)
	from := c.Thread().Now()
	heard, pause := from, restPauseNs
	own, what := db.ownRest(), "workers that have a transaction"
	for {
		rested, left, err := db.allRested(n, own)
		now := c.Thread().Now()
		switch {
		case rested:
			return nil
		case err == nil && !left.None():
			heard, what = now, left.String()
			db.waits.Store(&left)
		case err != nil && (!errors.Is(err, memory.ErrAway) || now-heard > int64(db.opts.LeaseTerm)):
			return err
		}
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for %s: %w", what, canceled(ctx))
		case limit > 0 && now-from > limit:
			return fmt.Errorf("%w: waiting for %s", memory.ErrShared, what)
		}
		attend()
		c.Sleep(pause)
		pause = min(2*pause, restPausesNs)
	}
}

// ownRest is of what this process has begun by now, if it is the only one; nil: it says like
// others that it rests.
func (db *DB) ownRest() *occ.Rest {
	if db.space.Shared() {
		return nil
	}
	return occ.NewRest(db.fabric.Now(), db.space.NextCoordinator())
}

// allRested reports whether everything has ended, of which own is of this process, and
// what is waited for.
func (db *DB) allRested(n memory.Notice, own *occ.Rest) (rested bool, left memory.Restless, err error) {
	if own != nil {
		db.askIdle()
		return own.Ended(db.engine, db.fabric.Now()), left, nil
	}
	db.sup.RestSoon()
	left, err = db.space.Unrested(n)
	return err == nil && left.None(), left, err
}

// attend is what a coroutine does between two looks while it waits, in no transaction, for
// something that others do.
func (w *Worker) attend() {
	w.o.Attend()
	if w.session.Broken() != nil {
		w.rejoinIfBroken()
	}
	if !w.db.sup.Maintains() { // there is no goroutine for it
		w.maintain()
	}
}

// WaitsFor is what DropTable, DropIndex or Build waits for in this process: other processes and
// workers that have not ended yet what they had begun before the change, by their numbers. Nil:
// none of them waits. Safe for concurrent use.
func (db *DB) WaitsFor() *memory.Restless { return db.waits.Load() }
