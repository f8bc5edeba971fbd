package txn

import (
	"context"
	"errors"
	"fmt"
)

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
//  1. No transaction is under way any more, in any process, that does not keep the index. None
//     begins in a process that knows the index.
//  2. A transaction of before may have changed a record behind one that keeps the index. The entry
//     that it left is deleted.
//  3. The walk over the table meets each key that has had a record since step 1 (see copier),
//     and adds its entries. Other records are inserted by transactions that keep the index, with
//     all of their entries.

// Build makes an index that was defined when the table had records. It goes on beside transactions,
// in small ones of its own; progress, if not nil, is told how many records it has looked at. If it
// is stopped, or the process dies, another call begins again, and has less to do. Other processes
// are waited for as by [DB.DropTable]. A second record with a key of a unique index is ErrUnique.
// Build of an index that is built does nothing.
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
	w, err := db.ownWorker(ctx)
	if err != nil {
		return err
	}
	defer func() { err = w.dismiss(ctx, err) }()
	if err := db.keepsFrom(ctx, w, t.t.Name, x.name); err != nil {
		return fmt.Errorf("txn: building index %q of table %q: %w", x.name, t.t.Name, err)
	}
	if db.built(t.t.Name, x.name) { // by another process
		return nil
	}
	c := comparison[K, V]{ctx: ctx, w: w, t: t, indexes: []TableIndex[K, V]{x}, progress: progress,
		repair: true, blank: true,
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

// keepsFrom waits until no transaction is under way that does not keep an index.
func (db *DB) keepsFrom(ctx context.Context, w *Worker, table, name string) error {
	n, err := db.space.Notice()
	if err != nil || !db.later(table, name) {
		return err
	}
	return db.awaitRest(ctx, w.coro, w.attend, n, 0)
}
