package txn

import (
	"context"
	"errors"
	"fmt"

	"txnode/memory"
	"txnode/occ"
)

// buildRestNs bounds how long Build waits for workers of other processes.
const buildRestNs = int64(10_000_000_000)

// begin builds the index if the table has no record yet: of one that has, Build may take long.
func (x *Index[K, V, I]) begin() error {
	t, ctx := x.table, context.Background()
	if t.db.built(t.t.Name, x.name) || t.db.readOnly() {
		return nil
	}
	empty := true
	if err := t.db.View(ctx, func(tx *Tx) error {
		for range t.Keys(tx) {
			empty = false
			break
		}
		return nil
	}); errors.Is(err, ErrCorrupt) || err == nil && !empty { // it has something, which may be damaged
		return nil
	} else if err != nil {
		return err
	}
	return x.Build(ctx, nil)
}

// An index has all entries when Build returns nil, and no others, whatever is written meanwhile:
//
//  1. No transaction is under way any more that does not keep the index. Since the catalog has the index, none begins.
//  2. A transaction of before may have changed a record behind one that keeps the index. The entry that it left is deleted.
//  3. The walk over the table meets each key that has had a record since step 1 (see copier), and adds its entries. Other
//     records are inserted by transactions that keep the index, with all of their entries.

// Build makes an index that was defined when the table had records. It goes on beside transactions, in small ones of its own;
// progress, if not nil, is told how many records it has looked at. If it is stopped, or the process dies, another call begins
// again, and has less to do. A second record with a key of a unique index is ErrUnique. Build of an index that is built does nothing.
func (x *Index[K, V, I]) Build(ctx context.Context, progress func(records uint64)) (err error) {
	if x.table == nil {
		return fmt.Errorf("%w: index %q belongs to no table: create or open one with it", ErrOptions, x.name)
	}
	if err := x.alive(); err != nil {
		return err
	}
	t, db := x.table, x.table.db
	if db.built(t.t.Name, x.name) {
		return nil
	}
	if db.readOnly() {
		return fmt.Errorf("%w: index %q of table %q can not be built", ErrReadOnly, x.name, t.t.Name)
	}
	w, err := db.NewWorker()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	// Transactions that do not keep the index may be under way. None begins, since the catalog has it.
	since, from := db.since(t.t.Name, x.name), w.thread.Now()
	for rest := occ.NewRest(w.thread.Now(), since); since > 0 && !rest.Ended(w.session, w.coro); w.coro.Sleep(dropPauseNs) {
		if ctx.Err() != nil {
			return canceled(ctx)
		}
		db.askIdle()
		if !db.space.Shared() {
			continue
		}
		if err := db.learn(t.t.Name); err != nil || db.built(t.t.Name, x.name) {
			return err
		}
		if w.thread.Now()-from > buildRestNs {
			return fmt.Errorf("%w: index %q of table %q: workers of other processes have been at work since before it was defined: let the process build it that has defined it, or close that", memory.ErrShared, x.name, t.t.Name)
		}
	}
	c := comparison[K, V]{ctx: ctx, w: w, t: t, indexes: []TableIndex[K, V]{x}, progress: progress, mend: true, blank: true,
		report: func(f IndexFault) error {
			if f.Repaired {
				return nil
			}
			return f.Err
		}}
	err = c.run()
	if err != nil {
		return fmt.Errorf("txn: building index %q of table %q: %w", x.name, t.t.Name, err)
	}
	return db.noteBuilt(t.t.Name, x.name, x.alive)
}
