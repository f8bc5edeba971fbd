package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"txnode/memory"
	"txnode/memory/record"
	"txnode/occ/recovery"
)

// Outcome is how a transaction ended.
type Outcome = memory.Outcome

// Outcomes.
const (
	Committed = memory.OutcomeCommitted // it has taken effect
	Aborted   = memory.OutcomeAborted   // it has had no effect, and never will
)

// Outcome tells what became of a transaction, by the id that Tx.ID returned before
// it ended, or that the *occ.UnknownError has in which its commit ended. The answer
// is the same for ever, also after the database was closed, or has crashed, and was
// opened again.
//
// It is kept of those that need it: transactions that ended in ErrOutcomeUnknown, and
// those that were under way when their process or their thread died. One that had
// changed nothing counts as aborted. Of others it says ErrNoOutcome: they are still
// running, or were answered. Of a thread that ran several transactions at a time (the
// coroutines of DB.Run) it says so, too, of those that had not come to their commit when
// the thread died, or had nothing to commit, and began before a neighbour's last commit:
// none of these has taken effect, but they can not be told from some that were answered.
// And of a thread that died between its commit and the answer, while fewer than f+1 blades were
// up, if they are lost, too, before its lease has expired: nobody else has its log.
//
// While their worker is rejoining, or not declared dead yet, it waits, until ctx is
// done; on a fabric of the caller's, where waiting is the caller's business, the error
// is ErrOutcomeUnknown.
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
			if o := v.Of(t.Seq()); o != memory.OutcomeUnknown {
				return o, nil
			}
			if err := db.engine.Answer(); err != nil {
				return 0, fmt.Errorf("%w: %v: %w", ErrOutcomeUnknown, t, err)
			}
			if o := db.verdict(t); o != memory.OutcomeUnknown {
				return o, nil
			}
			return 0, fmt.Errorf("%w: %v was answered before its coordinator was recovered, or had not come to its commit beside others of its thread", ErrNoOutcome, t)
		}
		switch state := db.space.Lease(t.Coordinator(), db.fabric.Now()); {
		case state == memory.LeaseGone:
			if _, ok := db.space.Verdict(t.Coordinator()); ok {
				continue // recovered this moment
			}
			return 0, fmt.Errorf("%w: no coordinator %d was ever recovered", ErrNoOutcome, t.Coordinator())
		case state == memory.LeaseLive && db.engine.Serving(t.Coordinator()):
			return 0, fmt.Errorf("%w: %v is still running, or was answered", ErrNoOutcome, t)
		case state == memory.LeaseExpired:
			if err := db.recoverFor(t.Coordinator()); err != nil {
				return 0, fmt.Errorf("%w: %v: %w", ErrOutcomeUnknown, t, err)
			}
			continue
		}
		if db.maintenance.stop == nil {
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
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	if db.isClosed() {
		return ErrClosed
	}
	_, err := recovery.Recover(db.ctl.Plain(), db.engine.Recovery(), id)
	if errors.Is(err, memory.ErrClaimed) {
		return nil
	}
	return err
}
