package txn

import (
	"context"
	"errors"
	"fmt"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/occ"
)

// isSpent reports whether err is that of another transaction, of the function's, that has
// made all of its attempts.
func isSpent(err error) bool {
	var spent *spentError
	return errors.As(err, &spent)
}

// became is what an error has become: see Worker.settle.
type became struct {
	err   error
	again bool
}

// recoupWithin is recoup, within ctx: if the worker is left behind, that is said by its field.
func (w *Worker) recoupWithin(ctx context.Context, err error, attempt int) (again bool, _ error) {
	if !w.db.hears(ctx) || w.session.Broken() == nil && errors.Is(err, ErrConflict) && !errors.Is(err, index.ErrBusy) &&
		!w.o.Waits() {
		return w.recoup(err, attempt)
	}
	x := &became{}
	if w.within(ctx, func() { x.again, x.err = w.recoup(err, attempt) }, func() {
		if x.err != nil {
			w.gaveUp(x.err)
		}
		w.end()
		w.trail()
		w.rejoinIfBroken()
	}) {
		return false, w.leftWith(ctx, attempt+1, err)
	}
	return x.again, x.err
}

// recoup is what follows an attempt that has failed with err, the transaction's so many
// before it. again: there is to be another one, and it has waited until that may begin;
// else it returns what the transaction ends with.
func (w *Worker) recoup(err error, attempt int) (again bool, _ error) {
	if attempt >= patientAfter {
		w.endure(attempt)
		if attempt >= insistAfter {
			w.lockReads(err, attempt)
		}
	}
	if err = w.settle(w.tx.ctx, w.unblock(err)); err == nil {
		w.committed++ // as it has turned out
		return false, nil
	}
	c := w.coro
	if errors.Is(err, ErrCutOff) && w.session.Broken() == nil {
		if e := w.db.sup.LookAgain(w.coro); e != nil {
			w.failed(e, "a blade that is not reached could not be asked")
		}
		return false, err
	}
	if w.db.opts.SingleAttempt {
		c.Backoff()
		return false, err
	}
	if w.away.again(err) {
		return true, err
	}
	err = w.away.over(err)
	if errors.Is(err, ErrCorrupt) && w.tx.ctx.Err() == nil && w.repairDamage(err) && attempt < w.db.opts.Retries {
		return true, err
	}
	if errors.Is(err, ErrNoSpace) && attempt < w.db.opts.Retries && w.makeRoom(w.tx.ctx, err) {
		return true, err
	}
	if !errors.Is(err, ErrConflict) || errors.Is(err, ErrOutcomeUnknown) || isSpent(err) {
		return false, err
	}
	if attempt+w.idle-w.away.tries >= w.db.opts.Retries {
		return false, &spentError{attempt + 1, err}
	}
	if ctx := w.tx.ctx; ctx.Err() != nil {
		last := err.Error() // in words alone: what has ended it is no conflict
		return false, fmt.Errorf("txn: given up after %d attempts: %w; the last attempt: %s",
			attempt+1, canceled(ctx), last)
	}
	c.Backoff()
	if w.db.hungry.Load() != 0 {
		w.yieldToStarving(attempt)
	}
	if d := w.window(attempt); d > 0 {
		// Drawn: two transactions that wait equally long meet again, for ever.
		d = d/2 + int64(w.thread.Rand()%uint64(d))
		w.waited = d
		for ; d > 0 && w.tx.ctx.Err() == nil; d -= windowPartNs {
			c.Sleep(min(d, windowPartNs))
		}
	}
	return true, err
}

// window is how long the transaction waits on average before its next attempt, beside what the
// thread waits: see patientAfter and slotNs. 0: not at all.
func (w *Worker) window(attempt int) (d int64) {
	if attempt >= patientAfter {
		d = min(backoffStepNs<<min((attempt-patientAfter)/patientAfter, 16), backoffLimitNs)
	}
	if n := int64(w.db.patient.Load()); n > 1 && !w.hungry {
		d = max(d, min(n*int64(1+attempt/slotAttempts), 1<<min(attempt, 30))*slotNs)
	}
	return d
}

// endure counts the transaction among those that have conflicts again and again, and, among its
// attempts, the time in which one lock was held: an attempt that met the lock of another
// transaction than the one before it has seen that others get on.
func (w *Worker) endure(attempt int) {
	if !w.patient {
		w.patient = true
		w.db.patient.Add(1)
	}
	lock := w.o.MetLock()
	if lock != 0 && lock == w.metLock && attempt > patientAfter {
		w.idle += int(max(w.waited/backoffLimitNs-1, 0))
	}
	w.metLock, w.waited = lock, 0
}

// endured is the end of a transaction that had conflicts again and again.
func (w *Worker) endured() {
	w.db.patient.Add(-1)
	w.patient, w.idle = false, 0
	if w.hungry {
		w.sated()
	}
}

// lockReads is what a transaction does after so many conflicts that the transactions in its way
// will not be gone before it gives up.
//
// Others may change what it reads before it has read the rest. Then it locks what it reads,
// too, as if it were to be written.
//
// Or a record is locked whenever it looks, because another worker locks it again before that.
// Then it publishes the record, and a worker that has just used the record lets it pass.
func (w *Worker) lockReads(err error, attempt int) {
	var c *occ.ConflictError
	if errors.As(err, &c) && !w.db.space.ReadOnly() {
		w.tx.insists = w.tx.insists || c.Reason == occ.AbortValidation
		w.tx.encloses = w.tx.encloses || c.Reason == occ.AbortValidation || c.Reason == occ.AbortPhantom
	}
	if attempt < hungryAfter {
		return
	}
	if a := w.o.Met(); a == 0 {
		return
	} else if w.hungry {
		w.db.hungry.Store(uint64(a))
	} else {
		w.hungry = w.db.hungry.CompareAndSwap(0, uint64(a))
	}
}

// sated is the end of a transaction that has said what it waits for.
func (w *Worker) sated() {
	w.hungry = false
	w.db.hungry.Store(0)
}

// yieldToStarving waits, before an attempt, for another worker that has waited for long for a
// record that this worker's last attempt has locked, or has found locked, too. A worker that
// has waited for as long itself, and is next, waits longer: its attempts are to last.
func (w *Worker) yieldToStarving(attempt int) {
	a := w.db.hungry.Load()
	if a == 0 || w.hungry || !w.o.Locked(layout.Addr(a)) && uint64(w.o.Met()) != a {
		return
	}
	times := giveWayTimes
	if attempt >= hungryAfter {
		times *= hungryFactor
	}
	for range times {
		w.coro.Sleep(giveWayNs)
		if w.db.hungry.Load() != a {
			return
		}
	}
}

// makeRoom frees, after a transaction has failed with err since there was no space, what deleted
// records still hold, or waits for segments that can go back, or has records put into larger
// blocks, and reports whether there may be room now.
func (w *Worker) makeRoom(ctx context.Context, err error) bool {
	freed, e := w.session.MakeRoom(w.coro)
	if e != nil && w.session.Broken() == nil {
		w.db.opts.Logger.Warn("making room has failed", errField(e))
	}
	return freed > 0 || w.awaitRoom(ctx, err) || w.session.Scarce()
}

// After patientAfter conflicts in a row the reason is hardly another transaction at
// work: the thread that holds the lock has been put off its processor. Attempts are then
// spread out more and more, up to a millisecond, so that Options.Retries of them
// outlast that.
//
// Or many transactions want the record. Each attempt, also one that fails, takes some time of it,
// so attempts of all of them must not come faster than they end: else hardly one succeeds, whoever
// makes it, and some transactions run out of attempts. So n transactions that have had so many
// conflicts spread their attempts over n times slotNs, as stations on one channel do (slotted
// ALOHA), and about one of three attempts succeeds, whatever n is. Other transactions come to that
// by doubling what they wait. Those of other processes are not counted: after slotAttempts attempts
// in vain a transaction waits twice as long, and so on.
const (
	patientAfter   = 32
	backoffStepNs  = int64(2_000)
	backoffLimitNs = 1_000_000
	slotNs         = 50_000
	slotAttempts   = 128
	windowPartNs   = 20_000_000 // how often a transaction that waits looks whether its context has ended
)

// After insistAfter conflicts in a row it is not chance any more: see lockReads. After hungryAfter
// a worker has waited for a twentieth of a second, longer than others are put off their
// processors. A worker that gives way does so for somewhat longer than it waits between two
// attempts.
const (
	insistAfter  = 2 * patientAfter
	hungryAfter  = 10 * patientAfter
	giveWayNs    = 100_000
	giveWayTimes = 20
	hungryFactor = 10
)
