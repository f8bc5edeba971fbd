package txn

import (
	"context"
	"errors"
	"fmt"
	"math"

	"go.uber.org/zap"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/txn/supervisor"
)

// Bounds on what a worker does at once of what can wait, where there is no goroutine for it: a part
// of the time since it did so last, and no more than so many nanoseconds, between two transactions
// and when it has none.
const (
	maintainPart   = 8
	maintainMostNs = 2_000_000
	idleMostNs     = 50_000_000
)

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

// maintainAll is Maintain, and stops at the first error. What can wait takes so many
// nanoseconds at most.
func (w *Worker) maintainAll(most int64) error {
	if w.session.Broken() != nil {
		return w.session.Broken()
	}
	if err := w.session.Maintain(w.coro); err != nil {
		return err
	}
	if err := w.db.sup.Follow(w.coro); err != nil {
		return err
	}
	if w.db.sup.Tended() {
		return nil // a goroutine does what is left, and the worker waits for no catalog
	}
	if err := errors.Join(w.session.Renew(), w.db.engine.CompleteVerdicts()); err != nil || w.db.space.ReadOnly() ||
		w.db.space.IsCutOff() {
		return err
	}
	defer func() { w.maintained = w.thread.Now() }()
	if term := int64(w.db.opts.LeaseTerm); term > 0 {
		most = min(most, term/maintainPart) // the lease is not renewed meanwhile
	}
	now := w.thread.Now()
	x := supervisor.Budget{Steps: math.MaxInt, Until: max(now+min((now-w.maintained)/maintainPart, most), 1)}
	err := w.session.Background(func() error {
		_, err := w.db.sup.Maintain(w.coro, w.session.Recovery(), &w.sweeper, x)
		return err
	})
	if err == nil {
		err = w.session.WithSpare(func() error {
			_, err := w.db.sup.Keep(w.coro, x)
			return err
		})
	}
	// by what has just been done: see interrupt
	if (err == nil || errors.Is(err, memory.ErrEnded)) &&
		w.db.space.Lease(w.session.Coordinator(), 0) != memory.LeaseLive {
		w.session.Break(rdma.ErrStaleKey)
		return w.session.Broken()
	}
	return err
}

// settle has the worker's session rejoin if it is broken, and returns what err has become by that:
// nil if the transaction is committed after all, ErrFenced if it has had no effect and can be tried
// again, ErrBroken if the session could not rejoin. The attempt has ended. While the catalog is
// away, it is tried again until ctx ends, as retries says; once: it is not.
func (w *Worker) settle(ctx context.Context, err error) error {
	s := w.session
	if err == nil && s.Broken() == nil {
		return nil
	}
	if cut := w.db.sup.Refused(err); cut != nil && !errors.Is(err, ErrCutOff) {
		err = fmt.Errorf("%w: %w", cut, err)
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
	w.db.sup.Reached()
	w.db.opts.Logger.Warn("a worker has rejoined", zap.Uint32("coordinator", s.Coordinator()), errField(err))
	var u *occ.UnknownError
	switch {
	case errors.As(err, &u) && u.Tx == w.o.ID(): // not that of a transaction inside of this one
		switch w.awaitVerdict(ctx, u.Tx) {
		case layout.OutcomeCommitted:
			w.o.Resolved(u.Tx, true)
			return nil
		case layout.OutcomeAborted:
			w.o.Resolved(u.Tx, false)
			return ErrFenced
		}
		return err
	case errors.Is(err, ErrOutcomeUnknown), errors.Is(err, ErrCutOff):
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

// verdict is what a recovery has found out about a transaction; unknown if there was none.
func (db *DB) verdict(t record.TxID) layout.Outcome {
	v, ok := db.space.Verdict(t.Coordinator())
	if !ok {
		return layout.OutcomeUnknown
	}
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
		cut := w.db.sup.Refused(e)
		switch {
		case cut != nil: // what is left there other processes see to, or this one when it reaches the blade
			return cut
		case errors.Is(e, ErrCorrupt), errors.Is(e, ErrLost):
			return e
		case e != nil:
			w.failed(e, "a lock of nobody's is in the way")
		}
	case errors.Is(err, index.ErrBusy):
		// A change of an index is in the way that was not finished. If its client is alive
		// and at work, the next attempt waits for it again.
		if e := w.session.Background(func() error {
			return w.db.sweepIndexes(w.coro, w.session.Recovery())
		}); e != nil {
			w.failed(e, "a change of an index is in the way")
		}
		var busy *race.BusyError
		if e := w.db.space.CutOffError(w.db.space.Without()); e != nil && errors.As(err, &busy) &&
			w.db.gone(busy.Owner) {
			return fmt.Errorf("%w; others finish it: %w", err, e)
		}
		// the client may be declared dead before long
		return fmt.Errorf("%w: %w%s", ErrConflict, err, w.db.standing(err))
	}
	return err
}

// sweepIndexes finishes or takes back changes of indexes whose clients are gone.
func (db *DB) sweepIndexes(c *rdma.Coro, o recovery.Options) error {
	if err := db.sup.RecoverExpired(c, o); err != nil {
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
	case e.Owner >= layout.MaxCoordinators:
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
		return db.space.HalfDone(now)
	case owner >= layout.MaxCoordinators: // a recoverer without number
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
