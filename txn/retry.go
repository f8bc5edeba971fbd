package txn

import (
	"context"
	"errors"
	"fmt"

	"txnode/memory"
	"txnode/occ"
)

// isSpent reports whether err is that of another transaction, of the function's, that has
// made all of its attempts.
func isSpent(err error) bool {
	var spent *spentError
	return errors.As(err, &spent)
}

// recoup is what follows an attempt that has failed with err, the transaction's so many
// before it. again: there is to be another one, and it has waited until that may begin;
// else it returns what the transaction ends with. spent is how many attempts more count than were made.
func (w *Worker) recoup(err error, attempt int) (again bool, spent int, _ error) {
	a := w.clash(err)
	if attempt >= insistAfter {
		w.press(err)
	}
	if err = w.settle(w.unblock(err)); err == nil {
		w.committed++ // as it has turned out
		return false, 0, nil
	}
	if w.db.opts.SingleAttempt {
		w.coro.Backoff()
		return false, 0, err
	}
	if errors.Is(err, ErrCorrupt) && w.tx.ctx.Err() == nil && w.mendDamage(err) && attempt < w.db.opts.Retries {
		return true, 0, err
	}
	if errors.Is(err, ErrNoSpace) && attempt < w.db.opts.Retries && w.makeRoom(w.tx.ctx, err) {
		return true, 0, err
	}
	if !errors.Is(err, ErrConflict) || errors.Is(err, ErrOutcomeUnknown) || isSpent(err) {
		return false, 0, err
	}
	if attempt >= w.db.opts.Retries {
		return false, 0, &spentError{w.attempts(attempt), err}
	}
	if ctx := w.tx.ctx; ctx.Err() != nil {
		last := err.Error() // in words alone: what has ended it is no conflict
		return false, 0, fmt.Errorf("txn: given up after %d attempts: %w; the last attempt: %s", w.attempts(attempt), canceled(ctx), last)
	}
	return true, w.lineUp(a, attempt), err
}

// attempts is how many the transaction has made, of which the last one was its so many that count.
func (w *Worker) attempts(attempt int) int {
	if w.place != nil {
		attempt -= w.place.unmade
	}
	return attempt + 1
}

// clash returns where the record is over which an attempt has ended in err, a conflict that another attempt may not meet; 0: none
// that is known.
func (w *Worker) clash(err error) memory.Addr {
	var c *occ.ConflictError
	if !errors.As(err, &c) || c.Reason == occ.AbortStale {
		return 0
	}
	return w.o.Clashed()
}

// press is what a transaction does after so many conflicts that the transactions in its way
// will not be gone before it gives up: others may change what it reads before it has read the rest.
// Then it locks what it reads, too, as if it were to be written.
func (w *Worker) press(err error) {
	var c *occ.ConflictError
	if errors.As(err, &c) && !w.db.space.ReadOnly() {
		w.tx.insists = w.tx.insists || c.Reason == occ.AbortValidation
		w.tx.encloses = w.tx.encloses || c.Reason == occ.AbortValidation || c.Reason == occ.AbortPhantom
	}
}

// makeRoom frees, after a transaction has failed with err since there was no space, what deleted records still hold, or waits for segments
// that can go back, or has records put into larger blocks, and reports whether there may be room now.
func (w *Worker) makeRoom(ctx context.Context, err error) bool {
	freed, e := w.session.MakeRoom(w.coro)
	if e != nil && w.session.Broken() == nil {
		w.db.opts.Logger.Warn("making room has failed", errField(e))
	}
	return freed > 0 || w.awaitRoom(ctx, err) || w.session.Scarce()
}

// After patientAfter conflicts in a row the reason is hardly another transaction at
// work: many want the record, or the thread that holds the lock has been put off its processor. Then the
// transaction waits in a line (line.go). Attempts of one that is not in a line, or whose turn it is, are
// spread out more and more, up to a millisecond, so that Options.Retries of them outlast that.
const (
	patientAfter   = 32
	backoffStepNs  = int64(2_000)
	backoffLimitNs = 1_000_000
)

// After insistAfter conflicts in a row it is not chance any more: see press.
const insistAfter = 2 * patientAfter
