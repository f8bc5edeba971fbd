package txn

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
)

// A record of which a copy is damaged is served from another copy, and the copies are repaired
// between two transactions of the worker that has met it: see occ/copies.go and occ/repair.go. A
// worker that fails to repair leaves it to the next one.

// Bounds on how long a worker waits for all others before it repairs a guard.
const (
	calmNs    = int64(300_000_000)
	calmTerms = 4 // of a lease, more, beside other processes: one that is silent is waited for until it is ended
)

// repairServed repairs the blocks that have served the worker's transactions though a copy is
// damaged.
func (w *Worker) repairServed() {
	for a := w.o.Served(); a != 0; a = w.o.Served() {
		if w.session.Broken() != nil {
			continue
		}
		m, whole, err := w.o.Repair(a)
		w.repaired(m, whole, err)
	}
}

// repairTorn repairs a block that is not locked, if an intact copy has the version of its guard,
// and reports whether there was something to repair.
func (w *Worker) repairTorn(a layout.Addr) bool {
	m, whole, err := w.o.Repair(a)
	w.repaired(m, whole && m.Copies > 0, err)
	return whole && m.Copies > 0
}

// repairDamage repairs the block that err, an ErrCorrupt, is about, and reports whether it is worth
// trying again. The attempt has ended.
func (w *Worker) repairDamage(err error) bool {
	block := w.o.Ill()
	return errors.Is(err, ErrCorrupt) && block != 0 && w.repairBlock(block)
}

// repairBlock repairs a block, with its guard if need be.
func (w *Worker) repairBlock(a layout.Addr) bool {
	if w.db.space.ReadOnly() || w.session.Broken() != nil {
		return false
	}
	guard, bad, agree, err := w.o.BadGuard(a)
	if err != nil {
		w.repaired(occ.Repaired{}, false, err)
	}
	if !agree || bad && !w.awaitCalm() {
		return false
	}
	if bad {
		m, done, err := w.o.RepairGuard(a, guard)
		if bad = done && m.Guard; bad || err != nil {
			w.repaired(m, done, err)
		}
		if !done {
			return false
		}
	}
	if w.repairTorn(a) || bad {
		w.illAt = 0
		return true
	}
	return w.oneMore(a)
}

// maxOneMore is how often in a row a worker tries again that has not repaired a block of which a copy
// is intact: another one has it locked, which finds the same damage, or has repaired it just now.
const maxOneMore = 8

// oneMore reports whether one more attempt may find a block repaired.
func (w *Worker) oneMore(a layout.Addr) bool {
	if w.illAt != a {
		w.illAt, w.illTries = a, 0
	}
	w.illTries++
	return w.illTries <= maxOneMore
}

// awaitCalm is calm of a worker that has met damage: false if everything has not ended in time, and
// the next worker that meets the damage waits again.
func (w *Worker) awaitCalm() bool {
	db := w.db
	ctx := context.Background()
	if w.tx != nil && w.tx.ctx != nil {
		ctx = w.tx.ctx
	}
	return db.calm(ctx, w.coro, w.attend) == nil && w.session.Broken() == nil
}

// calm waits until everything has ended, in all processes, that had begun before the call, or for
// as long as that may take. attend is called meanwhile.
func (db *DB) calm(ctx context.Context, c *rdma.Coro, attend func()) error {
	n, err := db.space.Ask()
	if err != nil {
		return err
	}
	limit := calmNs
	if db.space.Shared() {
		limit += calmTerms * db.sup.Term()
	}
	return db.awaitRest(ctx, c, attend, n, limit)
}

// repaired logs and counts what was repaired, or why it was not.
func (w *Worker) repaired(m occ.Repaired, done bool, err error) {
	switch {
	case err != nil:
		w.failed(err, "a damaged record could not be mended")
	case done && m.Addr != 0:
		w.own.Mended++
		what := "a damaged record was served from another copy; all copies are whole now"
		if m.Guard {
			what = "the damaged guard of a record was mended from another copy"
		}
		w.db.opts.Logger.Warn(what, zap.Stringer("block", m.Addr), zap.String("table", w.db.names.name(m.Table)),
			zap.Binary("key", m.Key), zap.Int("copies mended", m.Copies))
	}
}
