package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
	"txnode/txn/snapshot"
	"txnode/txn/supervisor"
)

// keptName is the name of the table in which transactions keep what they replace while a backup
// is made beside several processes. It is made by the first backup, has no records between
// backups, and is in none.
const keptName = "(backup)"

// keptOptions are those of the table.
func keptOptions() tableOptions {
	return tableOptions{Key: "address of a record", Value: "record that was replaced", Index: indexHash, Kept: true}
}

// backupShared is backup of a database that several processes have open. A tap is of one process,
// so that what the others commit would be missing. Instead:
//
//  1. The cut: a change of the catalog by which all transactions that are under way are
//     decided before any other begins. Why the state is that of one moment then, is
//     written in memory/cut.go.
//  2. From the cut on, a transaction that is the first to replace or to delete a record keeps that
//     in a table of its own, by the same commit: see occ/keep.go. So no process waits for the one
//     that makes the backup, and none has to reach it.
//  3. The tables of the cut are read. Records with a version of after the cut are left out.
//  4. The table of what was kept is read. A record that was there at the cut was met by step 3, or
//     had been replaced before step 3 came to it: then it was kept before, and step 4 meets it. One
//     that is met by both is the same.
//  5. The end: a change of the catalog. It says whether the cut was in the catalog all the time,
//     and all transactions have kept what they had to. Only then the file gets its end, without
//     which Restore refuses it.
//  6. What was kept is deleted.
//
// The process may die at any point: its registration ends, and with it the cut; what was kept is
// deleted by the next backup.
func (db *DB) backupShared(ctx context.Context, w *Worker, out *snapshot.Writer, o BackupOptions) (info snapshot.Info,
	err error) {
	if db.opts.ReadOnly {
		return info, fmt.Errorf("%w: a backup beside other processes keeps records in the database while it is made: "+
			"open it for writing", ErrReadOnly)
	}
	if err := db.ask(ctx, func() error { _, err := db.table(keptName, keptOptions(), true); return err },
		nil); err != nil {
		return info, err
	}
	var cut *memory.Cut
	if err := db.ask(ctx, func() (err error) { cut, err = db.makeCut(ctx); return err }, func() {
		if cut != nil {
			_ = db.space.EndCut(cut)
		}
	}); err != nil {
		return info, err
	}
	s := copier{
		ctx: ctx, w: w, out: out, progress: o.Progress, skipDamaged: o.SkipDamaged, cut: cut.Number,
		tally: newTally(false),
	}
	ended := false
	end := func() error {
		if ended {
			return nil
		}
		ended = true
		return db.leave(ctx, func() error { return db.space.EndCut(cut) }, nil)
	}
	defer func() {
		info.Skipped = total(s.skipped)
		e := end()
		if errors.Is(e, memory.ErrCut) && errors.Is(err, memory.ErrCut) {
			err = e // which says why
		} else {
			err = errors.Join(err, e)
		}
		if ctx.Err() != nil {
			return // the caller does not want to wait
		}
		if e := w.insist(ctx, func() error { return db.clearKept(ctx, w) }); e != nil {
			db.opts.Logger.Warn("what transactions have kept for a backup is not deleted, which the next one does",
				errField(e))
		}
	}()
	// The session was declared dead by the cut, like all others. It does not find that
	// out by verbs alone.
	w.session.Break(rdma.ErrStaleKey)
	if err := w.insist(ctx, func() error { return nil }); err != nil {
		return info, err
	}
	if err := s.tables(cut.Tables); err != nil {
		return info, err
	}
	if err := s.kept(); err != nil {
		return info, fmt.Errorf("what was replaced meanwhile: %w", err)
	}
	if err := end(); err != nil {
		return info, err
	}
	return out.Finish(0, listed(cut.Tables, s.skipped, s.tally.at(0)))
}

// makeCut makes the cut of a backup.
func (db *DB) makeCut(ctx context.Context) (*memory.Cut, error) {
	for tries := 0; ; tries++ {
		cut, change, err := db.space.BeginCut()
		if err != nil {
			return nil, err
		}
		if err = db.decideAll(ctx, change); err == nil {
			return cut, nil
		}
		if e := db.space.EndCut(cut); e != nil && !errors.Is(e, memory.ErrCut) { // perhaps it was made
			return nil, errors.Join(err, e)
		}
		if !supervisor.Again(err) || tries == supervisor.MaxFailovers {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, canceled(ctx)
		}
	}
}

// decideAll has all transactions decided, and makes a change of the catalog with that.
func (db *DB) decideAll(ctx context.Context, change func(*layout.Layout) error) error {
	err := db.sup.Do(func(c *rdma.Coro) error {
		rep, err := db.sup.DecideAll(ctx, c, change)
		if err == nil {
			db.opts.Logger.Info("a backup begins: all transactions are decided", zap.Int("finished", rep.Finished),
				zap.Int("undone", len(rep.Aborted)))
		}
		return err
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return canceled(ctx)
	}
	return err
}

// keptTable is the table in which transactions keep what they replace, which is there since
// before the cut. It is opened on the coroutine of a transaction, which may hold locks: nothing
// here waits for others.
func (db *DB) keptTable(c *rdma.Coro) (*occ.Table, error) {
	was := db.kept.Load()
	if was != nil && !was.Dropped() {
		return was, nil
	}
	ts, err := db.space.Tables()
	if err != nil {
		return nil, err
	}
	meta := liveTable(ts, keptName)
	if meta == nil || meta.Root == 0 {
		return nil, fmt.Errorf("%w: %q", ErrNoTable, keptName)
	}
	t := &occ.Table{ID: meta.ID, Name: keptName, Hashed: meta.InBlocks()}
	if meta.InBlocks() {
		t, err = db.withTree(t, *meta)
	} else {
		t.Index, err = db.slots(c, meta)
	}
	if err != nil {
		return nil, fmt.Errorf("txn: index of table %q: %w", keptName, err)
	}
	if !db.kept.CompareAndSwap(was, t) { // another worker was first
		return db.keptTable(c)
	}
	db.names.add(t)
	return t, nil
}

// slots opens an index of slots, and mends nothing.
func (db *DB) slots(c *rdma.Coro, meta *layout.Table) (index.Slots, error) {
	ix, err := race.Open(c, db.space, meta.Root, meta.ID)
	if err != nil {
		return nil, err
	}
	db.equip(ix)
	return ix, nil
}

// kept copies the records that transactions have replaced since the cut. What an earlier backup has
// left there is not of this cut.
func (s *copier) kept() (err error) {
	if err := s.w.insist(s.ctx, func() (err error) {
		s.t, err = s.w.db.keptTable(s.w.coro)
		return err
	}); err != nil {
		return err
	}
	s.skipDamaged = nil // what is damaged here was not damaged in its table
	s.each = func(key, value []byte) error {
		k, part, err := occ.ParseKept(key, value)
		if err != nil || part || k.Cut != s.cut {
			return err
		}
		if k.Rest > 0 {
			if k.Value, err = s.joined(key, &k); err != nil {
				return err
			}
		}
		return s.copied(k.Table, k.Key, k.Value, k.Block)
	}
	return s.walk()
}

// joined is the value of a kept record that has a rest.
func (s *copier) joined(key []byte, k *occ.Kept) (value []byte, err error) {
	t, first, table := s.t, append([]byte(nil), k.Value...), k.Table
	k.Key = append([]byte(nil), k.Key...) // they lie where the next READ may go
	err = s.w.View(s.ctx, func(tx *Tx) error {
		rest, err := tx.get(t, occ.RestOf(key), false)
		if err == nil && len(rest) != k.Rest {
			err = fmt.Errorf("%w: a record of table %d that was kept for a backup lacks %d bytes",
				ErrCorrupt, table, k.Rest)
		}
		value = slices.Concat(first, rest)
		return err
	})
	return value, err
}

// keptBatch is how many records that were kept are deleted by one transaction.
const keptBatch = 64

// clearKept deletes what transactions have kept for backups that have ended.
func (db *DB) clearKept(ctx context.Context, w *Worker) (err error) {
	s := copier{ctx: ctx, w: w}
	if s.t, err = db.keptTable(w.coro); err != nil {
		return err
	}
	var keys [][]byte
	s.each = func(key, _ []byte) error {
		if keys = append(keys, append([]byte(nil), key...)); len(keys) < keptBatch {
			return nil
		}
		err := s.unkeep(keys)
		keys = keys[:0]
		return err
	}
	if err := s.walk(); err != nil || len(keys) == 0 {
		return err
	}
	return s.unkeep(keys)
}

// unkeep deletes records that were kept, but for those of a backup that is being made, perhaps by
// another process. Its cut is known here: a transaction of a session that has joined before the cut
// meets nothing that was kept for it, since none is kept before all these sessions are dead.
func (s *copier) unkeep(keys [][]byte) error {
	return s.w.Update(s.ctx, func(tx *Tx) error {
		cut := s.w.db.space.CutNumber()
		for _, key := range keys {
			first, isRest := occ.FirstOf(key)
			value, err := tx.get(s.t, first, true)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
			if err == nil {
				k, _, err := occ.ParseKept(first, value)
				if err != nil {
					return err
				}
				if k.Cut == cut {
					continue
				}
				isRest = isRest || k.Rest > 0
				if err := tx.delete(s.t, first); err != nil {
					return err
				}
			}
			if !isRest {
				continue
			}
			if err := tx.delete(s.t, occ.RestOf(first)); err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
		}
		return nil
	})
}
