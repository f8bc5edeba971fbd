package seeds

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"txnode/history"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/txn"
)

// answer is what a client was told about an attempt of a transaction.
type answer uint8

const (
	toldNothing   answer = iota // its thread was stopped
	toldUnknown                 // Update returned ErrOutcomeUnknown
	toldCommitted               // Update returned nil
	toldAborted                 // it was tried again, or Update returned an error that says so
)

// String names the answer.
func (a answer) String() string {
	return [...]string{"nothing", "unknown", "committed", "aborted"}[a&3]
}

// ledger is what the clients remember, whatever the engine has recorded: the answer to
// each attempt, by its id, and what DB.Outcome has said since.
type ledger struct {
	order    []uint64
	told     map[uint64]answer
	outcomes map[uint64]txn.Outcome
	by       map[uint64]*process // of those that were called unknown
}

func (l *ledger) note(id uint64, a answer) {
	if id == 0 {
		return
	}
	if l.told == nil {
		l.told, l.outcomes, l.by = map[uint64]answer{}, map[uint64]txn.Outcome{}, map[uint64]*process{}
	}
	if _, ok := l.told[id]; !ok {
		l.order = append(l.order, id)
	}
	l.told[id] = a
}

// compare holds what the clients were told against the history, in which every
// unknown outcome has been resolved, and against DB.Outcome: what was called committed
// is there, nothing is that was called aborted, and who was not told gets an answer.
func (b *bench) compare(txns []history.Txn) error {
	committed, wrote := map[uint64]bool{}, map[uint64]bool{}
	for i := range txns {
		t := &txns[i]
		committed[t.ID] = t.Outcome == history.Committed
		wrote[t.ID] = slices.ContainsFunc(t.Ops, func(o history.Op) bool {
			return o.Kind == history.Write || o.Kind == history.Delete
		})
	}
	for _, id := range b.ledger.order {
		t, told := record.TxID(id), b.ledger.told[id]
		switch {
		case told == toldCommitted && !committed[id]:
			return fmt.Errorf("transaction %v was acknowledged, and is not in the history", t)
		case told == toldAborted && committed[id]:
			return fmt.Errorf("transaction %v was called aborted, and has committed", t)
		}
		if b.faults == nil {
			continue
		}
		o, err := b.db.Outcome(context.Background(), id)
		switch {
		case err == nil && committed[id] && !wrote[id]: // has had no effect in any case
		case err == nil && (o == txn.Committed) != committed[id]:
			return fmt.Errorf("transaction %v: DB.Outcome says %v, its client was told %v, and that it is in the "+
				"history is %v", t, o, told, committed[id])
		case err != nil && !errors.Is(err, txn.ErrNoOutcome):
			return fmt.Errorf("transaction %v: DB.Outcome: %w", t, err)
		case err == nil:
			b.ledger.outcomes[id] = o
		}
		if told != toldNothing && told != toldUnknown {
			continue
		}
		if err == nil {
			b.cov.Unknown++
			continue
		}
		// Nobody asks but who was told so, or who has died; of the latter's there may be none,
		// if the transaction was at rest, or far behind others of its thread. One that has
		// written nothing has left nothing to tell it from those; a thread of one coroutine
		// has others only if it has changed nodes of a table or index since.
		b.cov.NoAnswer++
		// Under siege its log may have been on one blade alone, which was lost before its thread
		// was declared dead.
		owed := committed[id] && (wrote[id] || b.coroutines == 1 && !b.hasNodes()) && b.siege.span == 0
		// Those that did not come to their logs are known to their process alone, until their
		// coordinator is recovered.
		asked := told == toldUnknown && (b.processes == 1 || committed[id] || b.ledger.by[id].answers)
		if asked || b.policy == occ.PolicyDefault && owed {
			return fmt.Errorf("transaction %v (committed: %v) has an outcome that nobody tells: %w",
				t, committed[id], err)
		}
	}
	return nil
}

// again asks for all outcomes once more, of a database that was opened again.
func (l *ledger) again(db *txn.DB) error {
	for _, id := range l.order {
		want, ok := l.outcomes[id]
		if !ok {
			continue
		}
		if got, err := db.Outcome(context.Background(), id); err != nil || got != want {
			return fmt.Errorf("transaction %v was %v, and is %v after the database was opened again: %w",
				record.TxID(id), want, got, err)
		}
	}
	return nil
}
