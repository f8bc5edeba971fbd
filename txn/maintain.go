package txn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"txnode/index"
	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// maintainer is what a database does beside its transactions: it renews leases,
// recovers coordinators whose leases have expired, and sweeps what they have left. On a
// fabric that runs in real time it has a goroutine for that. On one with virtual time the
// workers do it between their transactions, and DB.Maintain does.
type maintainer struct {
	stop    chan struct{} // nil: there is no goroutine; never changed after Open
	hurry   chan struct{} // has its next round begin at once
	done    sync.WaitGroup
	unwatch context.CancelFunc // nil: nothing watches the catalog; never changed after Open
	sweeper *recovery.Sweeper  // of the goroutine, under DB.ctlMu
	// damaged is what the last sweep has come to its end beside, nil: nothing.
	damaged atomic.Pointer[damagedSweep]
}

// damagedSweep is a sweep that has found an index damaged. Another one finds the same.
type damagedSweep struct {
	generation uint64 // of the coordinators that had died before
	until      int64  // when it is looked whether it is still damaged
}

// Bounds on what the goroutine does at once.
const (
	minMaintenance = 10 * time.Millisecond
	sweepPart      = 64 // steps
	sweepPause     = 2 * time.Millisecond
	watchPause     = 100 * time.Millisecond // after the catalog has failed
	damagePauseNs  = int64(30_000_000_000)  // between sweeps beside a damaged index
)

// Bounds on what a worker does at once of what can wait, where there is no goroutine for it: a part of the time
// since it did so last, and no more than so many nanoseconds, between two transactions and when it has none.
const (
	maintainPart   = 8
	maintainMostNs = 2_000_000
	idleMostNs     = 50_000_000
)

// startWatching starts a goroutine that takes over what other processes change in the catalog: a new epoch is known
// in milliseconds, and not when a verb has met a key that has ended. Where time is virtual, workers look at the catalog
// between their transactions.
func (db *DB) startWatching() {
	if !db.fabric.Caps().RealTime {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	db.maintenance.unwatch = cancel
	if db.space.Shared() {
		db.startResting(ctx)
	}
	db.maintenance.done.Go(func() {
		for failed := false; ; {
			err := db.space.Await(ctx)
			if ctx.Err() != nil || errors.Is(err, memory.ErrClosed) {
				return
			}
			if err == nil {
				failed = false
				db.acknowledge()
				db.restSoon()
				db.lookForGaps()
				if len(db.space.Questions()) > 0 {
					db.failover.nudge()
				}
				if db.space.OwesSweep() { // the process that sweeps for all has come to the end
					db.hurry()
				}
				continue
			}
			if !failed {
				db.opts.Logger.Warn("the catalog cannot be followed, which will be tried again", errField(err))
			}
			failed = true
			select {
			case <-ctx.Done():
			case <-time.After(watchPause):
			}
		}
	})
}

// startMaintenance starts the goroutine.
func (db *DB) startMaintenance() {
	if !db.fabric.Caps().RealTime || db.space.ReadOnly() || db.opts.LeaseTerm < 0 {
		return
	}
	m := &db.maintenance
	m.stop, m.hurry = make(chan struct{}), make(chan struct{}, 1)
	every := max(db.opts.LeaseTerm/3, minMaintenance)
	m.done.Go(func() {
		t := time.NewTimer(every)
		defer t.Stop()
		for {
			select {
			case <-m.stop:
				return
			case <-m.hurry:
			case <-t.C:
			}
			more, err := db.maintainOnce()
			if err != nil {
				db.opts.Logger.Warn("maintenance has failed, and will be tried again", errField(err))
			}
			wait := every
			if more && err == nil {
				wait = min(sweepPause, every)
			}
			t.Reset(wait)
		}
	})
}

// hurry has maintenance look at once for what has expired.
func (db *DB) hurry() {
	select {
	case db.maintenance.hurry <- struct{}{}:
	default: // it will, or workers do
	}
}

// stopMaintenance ends the goroutines.
func (db *DB) stopMaintenance() {
	m := &db.maintenance
	if m.unwatch != nil {
		m.unwatch()
	}
	if m.stop != nil {
		close(m.stop)
	}
	m.done.Wait()
}

// maintainOnce is one round of maintenance. more: there is something left to sweep.
func (db *DB) maintainOnce() (more bool, err error) {
	if !db.space.Shared() { // else see renewing
		if err := db.engine.RenewAll(db.fabric.Now()); err != nil {
			return false, err
		}
	}
	if due, err := db.maintenanceDue(); !due || err != nil {
		return false, err
	}
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	if db.isClosed() {
		return false, nil
	}
	return db.maintainOn(db.ctl.Plain(), db.engine.Recovery(), &db.maintenance.sweeper, stint{steps: sweepPart})
}

// maintenanceDue reports whether there is anything to be maintained.
func (db *DB) maintenanceDue() (due bool, err error) {
	if err := db.engine.Answer(); err != nil {
		return false, err
	}
	now := db.fabric.Now()
	_, unswept := db.space.Unswept()
	return unswept || len(db.space.Expired(now)) > 0 || db.space.Deserted(now) || db.space.Loose() || db.space.ExtentsDue(now), nil
}

// tended reports whether maintenance is not left to workers: see Tenders.
func (db *DB) tended() bool { return db.maintenance.stop != nil || db.tending.Load() > 0 }

// stint is how much is done at once of what takes many steps: so many of them, and, but for
// the first, none after a time of the fabric's clock. Until 0: whenever.
type stint struct {
	steps int
	until int64
}

// goOn reports whether step i is to be done.
func (x stint) goOn(c *rdma.Coro, i int) bool {
	return i < x.steps && (i == 0 || x.until == 0 || c.Thread().Now() < x.until)
}

// maintainOn takes over what processes have left that are gone, recovers coordinators whose leases have expired, and
// does some steps of a sweep if there is something to be swept.
func (db *DB) maintainOn(c *rdma.Coro, o recovery.Options, sweeper **recovery.Sweeper, x stint) (more bool, err error) {
	defer func() {
		if errors.Is(err, rdma.ErrVerb) || errors.Is(err, rdma.ErrStaleKey) || errors.Is(err, rdma.ErrBladeDown) || errors.Is(err, memory.ErrUnrevoked) {
			*sweeper = nil
			err = errors.Join(err, db.reconnect(c))
		}
	}()
	db.space.Begin(c.Thread())
	if s := *sweeper; s != nil && s.Ended() {
		*sweeper = nil
	}
	if db.space.Deserted(c.Thread().Now()) {
		n, err := db.space.TakeOver(c.Thread().Now())
		if err != nil {
			return false, err
		}
		if n > 0 {
			db.opts.Logger.Info("processes have closed the database, or have died, and what they had has no owner", zap.Int("processes", n))
		}
	}
	if err := db.recoverExpired(c, o); err != nil {
		return false, err
	}
	generation, ok := db.space.Unswept()
	if !ok {
		*sweeper = nil
		_, err := recovery.FreeDeadExtents(c, o)
		return false, err
	}
	if *sweeper == nil {
		if x := db.maintenance.damaged.Load(); x != nil && x.generation == generation && c.Thread().Now() < x.until {
			return false, nil
		}
		if *sweeper = recovery.DueSweep(c, o); *sweeper == nil {
			return false, nil
		}
	}
	for i := 0; x.goOn(c, i); i++ {
		s := *sweeper
		done, err := s.Step(c)
		if done {
			*sweeper = nil
			err = errors.Join(err, db.sparedBy(s, c.Thread().Now()))
		}
		if done || err != nil {
			return false, err
		}
	}
	return true, nil
}

// sparedBy returns what a sweep that has come to its end has left, since it is damaged, and
// has the next one wait, unless there is something else left.
func (db *DB) sparedBy(s *recovery.Sweeper, now int64) error {
	if s.Report.Damage == nil {
		return nil
	}
	if !s.Left() {
		db.maintenance.damaged.Store(&damagedSweep{s.Generation(), now + damagePauseNs})
	}
	return fmt.Errorf("txn: an index is damaged, and what the dead have left in its table stays; the rest is swept: %w", s.Report.Damage)
}

// recoverExpired recovers the coordinators whose leases have expired.
func (db *DB) recoverExpired(c *rdma.Coro, o recovery.Options) error {
	dead := db.space.Expired(c.Thread().Now())
	for i, id := range dead {
		if id == o.By {
			dead = append(dead[:i:i], dead[i+1:]...)
			break
		}
	}
	if len(dead) == 0 {
		return nil
	}
	rep, err := recovery.Recover(c, o, dead...)
	if errors.Is(err, memory.ErrClaimed) {
		return nil
	}
	if err == nil && len(rep.Coordinators) > 0 {
		db.opts.Logger.Warn("coordinators were declared dead and recovered", zap.Uint32s("coordinators", rep.Coordinators),
			zap.Int("finished", rep.Finished), zap.Int("undone", len(rep.Aborted)))
	}
	return err
}

// Maintain renews the worker's lease, recovers coordinators whose leases have expired, and sweeps
// some of what they left. It takes an eighth of the time since its last call, or 50 ms if that is
// less. Workers call it every few dozen transactions, for 2 ms at most. On a
// fabric with virtual time, call it for a worker that is idle for longer than Options.LeaseTerm.
//
// No transaction of the worker may be open. A session that turns out to be fenced, because its
// lease expired or a blade was lost, rejoins. That is no error: nothing was lost.
func (w *Worker) Maintain() error {
	if w.o.Active() {
		return w.inUse()
	}
	if err := w.regain(context.Background()); err != nil {
		return err
	}
	err := w.settle(once, w.maintainAll(idleMostNs))
	if errors.Is(err, ErrFenced) && w.session.Broken() == nil {
		return nil
	}
	return err
}

// maintainAll is Maintain, and stops at the first error. What can wait takes so many nanoseconds at most.
func (w *Worker) maintainAll(most int64) error {
	if w.session.Broken() != nil {
		return w.session.Broken()
	}
	if err := w.session.Maintain(w.coro); err != nil {
		return err
	}
	if w.db.maintenance.unwatch == nil && !w.db.tended() {
		if err := w.db.space.Follow(); err != nil {
			return err
		}
		w.db.acknowledge()
		w.db.restSoon()
		if err := w.db.heedQuestions(w.coro); err != nil {
			return err
		}
	}
	if w.db.tended() {
		return nil // a goroutine does what is left, and the worker waits for no catalog
	}
	if err := errors.Join(w.session.Renew(), w.db.engine.Answer()); err != nil || w.db.space.ReadOnly() {
		return err
	}
	defer func() { w.maintained = w.thread.Now() }()
	if term := int64(w.db.opts.LeaseTerm); term > 0 {
		most = min(most, term/maintainPart) // the lease is not renewed meanwhile
	}
	now := w.thread.Now()
	x := stint{math.MaxInt, max(now+min((now-w.maintained)/maintainPart, most), 1)}
	err := w.maintainOn(&w.sweeper, x)
	if err == nil {
		err = w.session.WithSpare(func() error {
			_, err := w.db.keep(w.coro, x)
			return err
		})
	}
	if (err == nil || errors.Is(err, memory.ErrEnded)) && w.db.space.Lease(w.session.Coordinator(), 0) != memory.LeaseLive { // by what has just been done: see interrupt
		w.session.Break(rdma.ErrStaleKey)
		return w.session.Broken()
	}
	return err
}

// maintainOn is DB.maintainOn in the name of the worker's coordinator.
func (w *Worker) maintainOn(sweeper **recovery.Sweeper, x stint) error {
	return w.session.Chore(func() error {
		_, err := w.db.maintainOn(w.coro, w.session.Recovery(), sweeper, x)
		return err
	})
}

// settle has the worker's session rejoin if it is broken, and returns what err has
// become by that: nil if the transaction is committed after all, ErrFenced if it has
// had no effect and can be tried again, ErrBroken if the session could not rejoin. The
// attempt has ended. While the catalog is away, it is tried again until ctx ends, as retries says; once: it is not.
func (w *Worker) settle(ctx context.Context, err error) error {
	s := w.session
	if err == nil && s.Broken() == nil {
		return nil
	}
	if errors.Is(err, rdma.ErrVerb) || errors.Is(err, rdma.ErrBladeDown) {
		s.Break(err)
	}
	if s.Broken() == nil {
		return err
	}
	if e := w.rejoin(ctx); e != nil {
		if errors.Is(err, ErrOutcomeUnknown) {
			return err
		}
		return &unjoinedError{s.Broken(), e}
	}
	w.own.Rejoins++
	w.db.reached()
	w.db.opts.Logger.Warn("a worker has rejoined", zap.Uint32("coordinator", s.Coordinator()), errField(err))
	var u *occ.UnknownError
	switch {
	case errors.As(err, &u) && u.Tx == w.o.ID(): // not that of a transaction inside of this one
		switch w.db.verdict(u.Tx) {
		case memory.OutcomeCommitted:
			w.o.Resolved(u.Tx, true)
			return nil
		case memory.OutcomeAborted:
			w.o.Resolved(u.Tx, false)
			return ErrFenced
		}
		return err
	case errors.Is(err, ErrOutcomeUnknown):
		return err
	case errors.Is(err, ErrBroken), errors.Is(err, rdma.ErrVerb), errors.Is(err, rdma.ErrBladeDown):
		return ErrFenced
	}
	return err
}

// rejoin has the session rejoin.
func (w *Worker) rejoin(ctx context.Context) error {
	w.why.Store(nil)
	for p := (retries{db: w.db, ctx: ctx}); ; {
		err := w.session.Rejoin(w.coro)
		if err == nil {
			w.why.Store(nil)
			return nil
		}
		if w.why.Store(&err); !p.again(err) {
			return p.over(err)
		}
	}
}

// verdict is what a recovery has found out about a transaction.
func (db *DB) verdict(t record.TxID) memory.Outcome {
	v, _ := db.space.Verdict(t.Coordinator())
	return v.Of(t.Seq())
}

// unblock sees to it that what the attempt has met does not stay in the way, when it
// is a dead one's. It returns err, or why the session is broken now. An outcome that
// is unknown stays unknown: what has failed then was a commit, and trying again could
// be doing it twice.
func (w *Worker) unblock(err error) error {
	switch {
	case errors.Is(err, ErrOutcomeUnknown):
	case errors.Is(err, ErrConflict) && !errors.Is(err, index.ErrBusy):
		_, e := w.o.Unblock()
		if w.o.Asks() {
			w.db.askIdle()
		}
		switch {
		case errors.Is(e, ErrCorrupt), errors.Is(e, ErrLost):
			return e
		case e != nil:
			w.failed(e, "a lock of nobody's is in the way")
		}
	case errors.Is(err, index.ErrBusy):
		// A change of an index is in the way that was not finished. If its client is alive
		// and at work, the next attempt waits for it again.
		if e := w.session.Chore(func() error { return w.db.mendIndexes(w.coro, w.session.Recovery()) }); e != nil {
			w.failed(e, "a change of an index is in the way")
		}
		return fmt.Errorf("%w: %w%s", ErrConflict, err, w.db.standing(err)) // the client may be declared dead before long
	}
	return err
}

// mendIndexes finishes or takes back changes of indexes whose clients are gone.
func (db *DB) mendIndexes(c *rdma.Coro, o recovery.Options) error {
	if err := db.recoverExpired(c, o); err != nil {
		return err
	}
	return recovery.SweepIndexes(c, o)
}

// standing says how things are with the client that began the change of an index that
// an error is about.
func (db *DB) standing(err error) string {
	var e *race.BusyError
	if !errors.As(err, &e) || e.Owner == 0 {
		return ""
	}
	how := "alive"
	switch {
	case db.gone(e.Owner):
		how = "dead"
	case e.Owner >= memory.MaxCoordinators:
		how = "a recoverer"
	case !db.engine.Serving(uint32(e.Owner)):
		how = "registered, but of no session that is at work"
	}
	_, unswept := db.space.Unswept()
	return fmt.Sprintf(" (client %#x is %s; epoch %d, to be swept: %v)", e.Owner, how, db.space.View().Epoch, unswept)
}

// failed notes that repairs have failed: a session that is broken by that rejoins
// before its next transaction.
func (w *Worker) failed(err error, what string) {
	if errors.Is(err, rdma.ErrVerb) || errors.Is(err, rdma.ErrBladeDown) || errors.Is(err, memory.ErrEnded) {
		w.session.Break(err)
	}
	if w.session.Broken() != nil {
		return // which is told when it rejoins
	}
	w.db.opts.Logger.Warn(what, errField(err))
}

// gone reports whether a change of an index that stands in the way will not be
// finished by the client that began it; owner 0: the client is not known.
func (db *DB) gone(owner uint64) bool {
	now := db.fabric.Now()
	switch {
	case owner == 0:
		return db.space.Torn(now)
	case owner >= memory.MaxCoordinators: // a recoverer without number
		return recovery.LeftOver(owner, db.space)
	}
	s := db.space.Lease(uint32(owner), now)
	return s == memory.LeaseGone || s == memory.LeaseExpired
}

// Recover declares coordinators dead, decides their transactions, and sweeps what they left.
// Without ids it recovers all coordinators; no worker may be at work then, and open ones rejoin.
// The database recovers by itself: this is for tests, which know better than leases which
// coordinator is dead.
func (db *DB) Recover(ctx context.Context, ids ...uint32) (recovery.Report, error) {
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	if db.isClosed() {
		return recovery.Report{}, ErrClosed
	}
	if db.space.ReadOnly() {
		return recovery.Report{}, fmt.Errorf("%w: nobody can be recovered in it", ErrReadOnly)
	}
	if len(ids) == 0 {
		all, err := db.space.Coordinators()
		if err != nil {
			return recovery.Report{}, err
		}
		for _, c := range all {
			ids = append(ids, c.ID)
		}
	}
	c := db.ctl.Plain()
	o := db.engine.Recovery()
	o.Steal = true
	rep, err := recovery.Recover(c, o, ids...)
	if err == nil {
		if ctx.Err() != nil {
			return rep, canceled(ctx)
		}
		_, err = recovery.Sweep(c, o)
	}
	return rep, err
}
