package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// Outcome is how a transaction ended.
type Outcome = layout.Outcome

// Outcomes.
const (
	Committed = layout.OutcomeCommitted // it has taken effect
	Aborted   = layout.OutcomeAborted   // it has had no effect, and never will
)

// Outcome says what became of a transaction. id is what Tx.ID returned before the transaction
// ended, or the id in the *occ.UnknownError of its commit. The answer is the same for ever, also
// after a crash and another Open.
//
// Outcomes are kept of transactions that ended in ErrOutcomeUnknown, and of those that were under
// way when their process or thread died. A transaction that changed nothing counts as aborted. For
// others the error is ErrNoOutcome: they are running, or were answered.
//
// In two cases the error is ErrNoOutcome although the transaction was under way. First, a coroutine
// of DB.Run had not come to its log, or had nothing to commit, when its thread died, and had begun
// before a neighbour's last commit, or before its worker last changed nodes of an ordered table. It
// has had no effect. The same holds of one that returned ErrOutcomeUnknown, if its process dies
// before its coordinator is recovered: Close sees to that, or says in its error that it could not.
// Second, a thread died between its commit and the answer while fewer than f+1 blades were up, and
// those with its log were lost before its lease expired.
//
// While the worker rejoins, or is not yet declared dead, Outcome waits until ctx is done. On a
// fabric with virtual time, where waiting is the caller's business, the error is ErrOutcomeUnknown.
func (db *DB) Outcome(ctx context.Context, id uint64) (Outcome, error) {
	t := record.TxID(id)
	if id == 0 || id&record.HeldBit != 0 {
		return 0, fmt.Errorf("%w: %d is no transaction's id", ErrNoOutcome, id)
	}
	for {
		if db.isClosed() {
			return 0, ErrClosed
		}
		if v, ok := db.space.Verdict(t.Coordinator()); ok {
			if o := v.Of(t.Seq()); o != layout.OutcomeUnknown {
				return o, nil
			}
			if err := db.ask(ctx, db.engine.CompleteVerdicts, nil); err != nil {
				return 0, fmt.Errorf("%w: %v: %w", ErrOutcomeUnknown, t, err)
			}
			if o := db.verdict(t); o != layout.OutcomeUnknown {
				return o, nil
			}
			return 0, fmt.Errorf("%w: %v was answered before its coordinator was recovered, or had not come to its "+
				"commit beside others of its thread", ErrNoOutcome, t)
		}
		state := memory.LeaseUnknown
		if err := db.ask(ctx, func() error { state = db.space.Lease(t.Coordinator(), db.fabric.Now()); return nil },
			nil); err != nil {
			return 0, fmt.Errorf("%w: %v: %w", ErrOutcomeUnknown, t, err)
		}
		switch {
		case state == memory.LeaseGone:
			if _, ok := db.space.Verdict(t.Coordinator()); ok {
				continue // recovered this moment
			}
			return 0, fmt.Errorf("%w: no coordinator %d was ever recovered", ErrNoOutcome, t.Coordinator())
		case state == memory.LeaseLive && db.engine.Serving(t.Coordinator()):
			return 0, fmt.Errorf("%w: %v is still running, or was answered", ErrNoOutcome, t)
		case state == memory.LeaseExpired && !db.space.IsCutOff(): // else another process recovers it
			if err := db.ask(ctx, func() error { return db.recoverFor(t.Coordinator()) }, nil); err != nil {
				return 0, fmt.Errorf("%w: %v: %w", ErrOutcomeUnknown, t, err)
			}
			continue
		}
		if !db.sup.Maintains() {
			return 0, fmt.Errorf("%w: %v: its coordinator is not recovered yet", ErrOutcomeUnknown, t)
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %v: %w", ErrOutcomeUnknown, t, canceled(ctx))
		case <-time.After(time.Millisecond):
		}
	}
}

// recoverFor recovers a coordinator whose lease has expired.
func (db *DB) recoverFor(id uint32) error {
	err := db.sup.Do(func(c *rdma.Coro) error {
		if db.isClosed() {
			return ErrClosed
		}
		_, err := recovery.Recover(c, db.engine.Recovery(), id)
		return err
	})
	if errors.Is(err, memory.ErrClaimed) {
		return nil
	}
	return err
}

// A recovery that is under way in another process as this one closes is asked for every
// answerPollNs, and for twice answerPatienceNs at least.
const (
	answerPollNs     = 100_000
	answerPatienceNs = 100_000_000
)

// answer makes good, before the process goes, that Outcome knows the transactions that have ended
// in ErrOutcomeUnknown: another process that recovered their coordinators later would not know that
// they were asked for. A recovery that is under way elsewhere is waited for until its claim has
// lapsed. The caller holds ctlMu.
func (db *DB) answer(ctx context.Context) error {
	c := db.ctl.Plain()
	patience := db.fabric.Now() + 2*max(int64(db.opts.LeaseTerm), answerPatienceNs)
	for {
		ids := db.engine.Unanswered()
		if len(ids) == 0 {
			return db.engine.CompleteVerdicts()
		}
		err := db.withBlades(func(c *rdma.Coro) error {
			_, err := recovery.Recover(c, db.engine.Recovery(), ids...)
			return err
		})
		if err == nil && len(db.engine.Unanswered()) == len(ids) {
			err = errors.New("they are registered still")
		}
		switch {
		case err == nil:
		case (errors.Is(err, memory.ErrClaimed) || errors.Is(err, ErrCutOff)) && db.fabric.Now() < patience &&
			ctx.Err() == nil:
			c.Sleep(answerPollNs)
			_ = db.space.Follow() // another process may have recovered them
		default:
			return fmt.Errorf("txn: close: transactions of coordinators %d returned ErrOutcomeUnknown, and Outcome "+
				"may not know them: %w", ids, err)
		}
	}
}
