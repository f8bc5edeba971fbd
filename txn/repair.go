package txn

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"

	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
)

// A record of which a copy is damaged is served from another copy, and the copies are repaired
// between two transactions of the worker that has met it: see occ/copies.go and occ/repair.go. A
// worker that fails to repair leaves it to the next one.

// Bounds on how long a worker waits for all others before it repairs a guard or an index, and for
// how long nothing is tried again that was in vain.
const (
	calmNs    = int64(300_000_000)
	calmTerms = 4 // of a lease, more, beside other processes: one that is silent is waited for until it is ended
	vainTerms = 8
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

// repairDamage repairs the block or the index that err, an ErrCorrupt, is about, and reports
// whether it is worth trying again. The attempt has ended.
func (w *Worker) repairDamage(err error) bool {
	block, table, near := w.o.Ill()
	if !errors.Is(err, ErrCorrupt) {
		return false
	}
	if c := (*race.CorruptError)(nil); errors.As(err, &c) {
		return w.repairIndex(w.db.names.table(c.Table), c.Addr)
	}
	return block != 0 && w.repairBlock(block) || w.repairIndex(table, near) // which may have led to what is no record
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
	if !agree || bad && !w.awaitCalm(a) {
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
	return w.repairTorn(a) || bad
}

// repairIndex repairs what is damaged of a table's index near an address.
func (w *Worker) repairIndex(t *occ.Table, at layout.Addr) bool {
	if t == nil || w.db.space.ReadOnly() || !w.o.CanRepairIndex(t) {
		return false
	}
	if !w.awaitCalm(at) {
		return w.session.Broken() != nil && w.oneMore(at) // it rejoins before
	}
	words, err := w.o.RepairIndex(t, at)
	switch {
	case err != nil && !errors.Is(err, ErrCorrupt): // which it says anyway
		w.failed(err, "a damaged index could not be mended")
	case words > 0:
		w.own.Mended++
		w.db.indexRepairs.Add(1)
		w.db.opts.Logger.Warn("a damaged index was mended from another copy", zap.String("table", t.Name),
			zap.Stringer("near", at), zap.Int("words", words))
	}
	again := w.oneMore(at) || words > 0
	if !again && w.session.Broken() == nil && w.db.space.Shared() {
		w.db.hopeless.giveUp(at, w.thread.Now()+vainTerms*w.db.sup.Term())
	}
	return again
}

// oneMore reports whether one more attempt tells more about a damaged place of an index: another
// worker that has met it may have repaired it before.
func (w *Worker) oneMore(at layout.Addr) bool {
	repairs := w.db.indexRepairs.Load()
	again := w.illIndex != at || w.illRepairs != repairs
	w.illIndex, w.illRepairs = at, repairs
	return again
}

// awaitCalm is calm of a worker that has met damage at an address: false if everything has not
// ended in time, and the next worker that meets the damage waits again. It is false at once for
// damage that could not be repaired just now, since other processes would have to interrupt
// transactions that take long, again and again.
func (w *Worker) awaitCalm(a layout.Addr) bool {
	db := w.db
	if db.hopeless.vain(a, w.thread.Now()) {
		return false
	}
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

// hopeless is what a database knows of damage that could not be repaired.
type hopeless struct {
	mu    sync.Mutex
	vains map[layout.Addr]int64 // where it is, and until when nothing is tried again
}

// maxVains is how many places are remembered.
const maxVains = 1024

// giveUp has nothing be tried at an address until a time.
func (d *hopeless) giveUp(a layout.Addr, until int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.vains == nil || len(d.vains) == maxVains {
		d.vains = map[layout.Addr]int64{}
	}
	d.vains[a] = until
}

// vain reports whether nothing is to be tried at an address, at a time.
func (d *hopeless) vain(a layout.Addr, now int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	until, ok := d.vains[a]
	if ok && now > until {
		delete(d.vains, a)
	}
	return ok && now <= until
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
