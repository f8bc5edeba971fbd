package txn

import (
	"errors"

	"go.uber.org/zap"
	"txnode/index/race"
	"txnode/memory"
	"txnode/occ"
)

// A record of which a copy is damaged is served from another copy, and the copies are mended between
// two transactions of the worker that has met it: see occ/copies.go and occ/mend.go. A worker that
// fails to mend leaves it to the next one.

// Bounds on how long a worker waits for the other sessions before it mends a guard: some 200 ms.
const (
	calmLooks   = 200
	calmPauseNs = int64(1_000_000)
)

// mendServed mends the blocks that have served the worker's transactions though a copy is damaged.
func (w *Worker) mendServed() {
	for a := w.o.Served(); a != 0; a = w.o.Served() {
		if w.session.Broken() != nil {
			continue
		}
		m, whole, err := w.o.Mend(a)
		w.mended(m, whole, err)
	}
}

// mendTorn mends a block that is not locked, if an intact copy has the version of its guard, and reports
// whether there was something to mend.
func (w *Worker) mendTorn(a memory.Addr) bool {
	m, whole, err := w.o.Mend(a)
	w.mended(m, whole && m.Copies > 0, err)
	return whole && m.Copies > 0
}

// mendDamage mends the block or the index that err, an ErrCorrupt, is about, and reports whether it is worth trying
// again. The attempt has ended.
func (w *Worker) mendDamage(err error) bool {
	block, table, near := w.o.Ill()
	if !errors.Is(err, ErrCorrupt) {
		return false
	}
	if c := (*race.CorruptError)(nil); errors.As(err, &c) {
		return w.mendIndex(w.db.names.table(c.Table), c.Addr)
	}
	return block != 0 && w.mendBlock(block) || w.mendIndex(table, near) // which may have led to what is no record
}

// mendBlock mends a block, with its guard if need be.
func (w *Worker) mendBlock(a memory.Addr) bool {
	if w.db.space.ReadOnly() || w.session.Broken() != nil {
		return false
	}
	guard := false
	for range calmLooks {
		m, done, pending, err := w.o.MendGuard(a)
		if !pending {
			if guard = done && m.Guard; guard || err != nil {
				w.mended(m, done, err)
			}
			if !done {
				return false
			}
			break
		}
		if w.o.Asks() {
			w.db.askIdle()
		}
		w.coro.Sleep(calmPauseNs)
	}
	return w.mendTorn(a) || guard
}

// mendIndex mends what is damaged of a table's index near an address.
func (w *Worker) mendIndex(t *occ.Table, at memory.Addr) bool {
	if t == nil || w.db.space.ReadOnly() || w.session.Broken() != nil {
		return false
	}
	for range calmLooks {
		words, pending, err := w.o.MendIndex(t, at)
		switch {
		case err != nil && !errors.Is(err, ErrCorrupt): // which it says anyway
			w.failed(err, "a damaged index could not be mended")
		case !pending && words > 0:
			w.own.Mended++
			w.db.indexMends.Add(1)
			w.db.opts.Logger.Warn("a damaged index was mended from another copy", zap.String("table", t.Name), zap.Stringer("near", at), zap.Int("words", words))
		}
		if !pending {
			// Another worker that has met it may have mended it before: one more attempt tells.
			mends := w.db.indexMends.Load()
			again := words > 0 || w.illIndex != at || w.illMends != mends
			w.illIndex, w.illMends = at, mends
			return again
		}
		if w.o.Asks() {
			w.db.askIdle()
		}
		w.coro.Sleep(calmPauseNs)
	}
	return false
}

// mended logs and counts what was mended, or why it was not.
func (w *Worker) mended(m occ.Mended, done bool, err error) {
	switch {
	case err != nil:
		w.failed(err, "a damaged record could not be mended")
	case done && m.Addr != 0:
		w.own.Mended++
		what := "a damaged record was served from another copy; all copies are whole now"
		if m.Guard {
			what = "the damaged guard of a record was mended from another copy"
		}
		w.db.opts.Logger.Warn(what, zap.Stringer("block", m.Addr), zap.String("table", w.db.names.name(m.Table)), zap.Binary("key", m.Key), zap.Int("copies mended", m.Copies))
	}
}
