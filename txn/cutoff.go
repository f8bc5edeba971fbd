package txn

import (
	"context"
	"time"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// Pauses between two looks whether another process has decided a transaction.
const (
	verdictPauseNs  = int64(time.Millisecond)
	verdictPausesNs = 16 * verdictPauseNs // at most
)

// awaitVerdict waits, for a lease term at most, until another process has decided a transaction
// whose coordinator this one has given up, or ctx ends.
func (w *Worker) awaitVerdict(ctx context.Context, t record.TxID) layout.Outcome {
	db, pause := w.db, verdictPauseNs
	for until := w.thread.Now() + db.sup.Term(); ; pause = min(2*pause, verdictPausesNs) {
		o := db.verdict(t)
		if o != layout.OutcomeUnknown || !db.space.IsCutOff() || ctx != nil && ctx.Err() != nil ||
			w.thread.Now() >= until {
			return o
		}
		if !db.space.Registered(t.Coordinator()) && db.engine.CompleteVerdicts() == nil {
			return db.verdict(t)
		}
		w.coro.Sleep(pause)
		_ = db.space.Follow() // else it is asked again
	}
}
