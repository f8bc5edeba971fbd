package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
)

// A table is dropped in steps, each of which leaves a database that opens and can be checked:
//
//  1. The catalog says that the table is being dropped. From now on no process finds it, its name
//     is free, and, in a process that knows, no transaction begins to use it. Of a shared database
//     the next steps begin when all processes know, and have ended what they had begun before
//     (memory/rest.go).
//  2. When all transactions have ended that may have used it, its blocks are looked for among all
//     blocks, and commits make them free: records first, and then the nodes of its index.
//  3. The catalog says that it is dropped.
//
// A crash after step 1 leaves the rest to the next opening, or the next drop, and so does whatever
// else is in the way. One process at a time does the steps, by a right (layout.RightDrop) that none
// has while a backup is made beside several processes.

const (
	dropPauseNs = int64(1_000_000)
	// dropRestNs is the wait for transactions that may have used the table, and for locks on its
	// blocks.
	dropRestNs = int64(2_000_000_000)
	// vacateAtOnce is how many blocks a transaction makes free at most. Fewer fit a small log.
	vacateAtOnce = 64
)

// DropTable drops a table, or returns ErrNoTable. When it returns nil, the table is gone for good,
// and what its records have taken is free for other tables, as far as these need blocks of such
// sizes, and some seconds later for all, or at once if the blades are full: see Options.GiveBack. A
// transaction that has not used the table yet gets ErrDropped from it, and so do handles for ever.
// One that has used it may go on with the keys that it has used, and commit. CreateTable makes a
// new table of the same name, at once.
//
// The room is given back when every worker has ended the transaction that it was in: if that takes
// longer than two seconds, when the database is opened again. DropTable reads the header of every
// block of the database, and frees some dozen blocks by each transaction. It waits for a backup
// that runs, and a backup waits for it.
//
// If ctx ends meanwhile, or the process dies, the table is dropped all the same. The rest of its
// room is given back when DropTable is called again with its name, or when the database is opened
// again. Do not call it inside of a transaction.
//
// Other processes may have the database open, and use the table. DropTable waits until each of them
// knows, and has ended the transactions that it had begun before. One that does not answer, or a
// worker that stays in a transaction, is waited for no longer than for Options.LeaseTerm, and then
// until it is recovered. WaitsFor tells which are waited for, and so does the error when ctx ends.
//
// Indexes of the table are dropped with it. Of an index itself it is ErrOptions: see
// [DB.DropIndex]. memory.ErrEnded: others have taken this process for dead meanwhile; call it
// again.
func (db *DB) DropTable(ctx context.Context, name string) error {
	return db.dropTables(ctx, name, func() error { return db.markTable(name) }, func(t *layout.Table) bool {
		return isOf(t, name)
	})
}

// isOf reports whether a table is that of a name, or of an index of it.
func isOf(t *layout.Table, name string) bool {
	o, _ := decodeTableOptions(t.Options)
	return t.Name == name || o.Of == name
}

// dropTables drops tables: mark does step 1, and the others follow for those that which tells.
func (db *DB) dropTables(ctx context.Context, name string, mark func() error,
	which func(t *layout.Table) bool) (err error) {
	if db.isClosed() {
		return ErrClosed
	}
	if db.readOnly() {
		return fmt.Errorf("%w: table %q can not be dropped", ErrReadOnly, name)
	}
	w, err := db.ownWorker(ctx)
	if err != nil {
		return err
	}
	defer func() { err = w.dismiss(ctx, err) }()
	end, err := db.beginDrop(ctx, w)
	if err != nil {
		return fmt.Errorf("txn: table %q: %w", name, err)
	}
	defer end()
	if err := db.ask(ctx, mark, nil); err != nil {
		return fmt.Errorf("txn: table %q: %w", name, err)
	}
	if err := db.finishDrops(ctx, w, 0, which); err != nil {
		return fmt.Errorf("txn: table %q is dropped, and its room is given back when the database is opened again, "+
			"or DropTable is called once more: %w", name, err)
	}
	db.engine.Plenty()
	return nil
}

// beginDrop waits until this process alone drops tables, and no backup is made, and has it stay so
// until end is called.
func (db *DB) beginDrop(ctx context.Context, w *Worker) (end func(), err error) {
	for !db.dropMu.TryLock() {
		if ctx.Err() != nil {
			return nil, canceled(ctx)
		}
		w.attend()
		w.Sleep(dropPauseNs)
	}
	for pause := dropPauseNs; !db.space.AcquireRight(layout.RightDrop); pause = min(2*pause, restPausesNs) {
		if ctx.Err() != nil {
			db.dropMu.Unlock()
			return nil, fmt.Errorf("%s: %w", db.inTheWay(), canceled(ctx))
		}
		w.attend()
		w.Sleep(pause)
	}
	return func() {
		db.space.ReleaseRight(layout.RightDrop)
		db.dropMu.Unlock()
	}, nil
}

// inTheWay says what keeps this process from dropping tables.
func (db *DB) inTheWay() string {
	l := db.space.Layout()
	if p := l.Holder(layout.RightBackup); p != 0 {
		return fmt.Sprintf("waiting for the backup of process %d", p)
	}
	if p := l.Holder(layout.RightDrop); p != 0 {
		return fmt.Sprintf("waiting for process %d, which drops tables", p)
	}
	return "waiting for the catalog"
}

// markTable does step 1 for a table and its indexes, unless that was done.
func (db *DB) markTable(name string) error {
	for {
		if err := db.tryMark(name); !errors.Is(err, memory.ErrRevision) {
			return err
		}
	}
}

// tryMark is markTable; memory.ErrRevision: another process has given the table another index
// meanwhile, or dropped one.
func (db *DB) tryMark(name string) error {
	if err := db.space.Follow(); err != nil {
		return err
	}
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	ts, err := db.space.Tables()
	if err != nil {
		return err
	}
	t := liveTable(ts, name)
	if t == nil {
		if slices.ContainsFunc(ts, func(t layout.Table) bool {
			return t.State == layout.TableDropping && isOf(&t, name)
		}) {
			return nil
		}
		return ErrNoTable
	}
	o, _ := decodeTableOptions(t.Options) // one whose options are damaged can be dropped
	if o.Of != "" {
		return fmt.Errorf("%w: it is an index of table %q: DropIndex drops it", ErrOptions, o.Of)
	}
	var names []string
	for _, x := range o.Indexes {
		names = append(names, indexTable(name, x.Name))
	}
	return db.mark(ts, names, memory.TableChange{ID: t.ID, Was: t.Options, Drop: true})
}

// mark notes in the catalog that tables of indexes are being dropped, also such as are being made,
// and makes the other changes in the same step. The caller holds ctlMu.
func (db *DB) mark(ts []layout.Table, names []string, changes ...memory.TableChange) error {
	for _, name := range names {
		if i := slices.IndexFunc(ts, func(t layout.Table) bool {
			return t.Name == name && t.State == layout.TableLive
		}); i >= 0 {
			changes = append(changes, memory.TableChange{ID: ts[i].ID, Drop: true})
		}
	}
	if err := db.space.ChangeTables(changes...); err != nil {
		return err
	}
	for name, t := range db.tables {
		if t.Dropped() {
			delete(db.tables, name)
		}
	}
	return nil
}

// liveTable is the table of a name, nil: there is none.
func liveTable(ts []layout.Table, name string) *layout.Table {
	i := slices.IndexFunc(ts, func(t layout.Table) bool {
		return t.Name == name && t.State == layout.TableLive && t.Root != 0
	})
	if i < 0 {
		return nil
	}
	return &ts[i]
}

// finishDrops does the other steps for tables that are being dropped, when all processes have ended
// what they had begun before: limit, if it is not 0, bounds how long they are waited for, in
// nanoseconds. The caller has the right to drop.
func (db *DB) finishDrops(ctx context.Context, w *Worker, limit int64, which func(t *layout.Table) bool) error {
	n, err := db.space.Notice()
	if err != nil {
		return err
	}
	below := db.space.NextCoordinator() // the first coordinator that has never found them
	if db.space.Shared() {              // else what takes long is given up: see dropper.drop
		if err := db.awaitRest(ctx, w.coro, w.attend, n, limit); err != nil {
			return err
		}
	}
	ts, err := db.space.Tables()
	if err != nil {
		return err
	}
	for i := range ts {
		if ts[i].State != layout.TableDropping || !which(&ts[i]) {
			continue
		}
		d := dropper{ctx: ctx, w: w, below: below, meta: ts[i], rested: db.space.Shared()}
		if err := w.insist(ctx, func() error { return db.space.Hold(w.thread, layout.RightDrop, d.drop) }); err != nil {
			return err
		}
	}
	return nil
}

// resumeDrops goes on with tables that a process was dropping before, unless another one does. That
// it cannot is no reason not to open the database.
func (db *DB) resumeDrops(ctx context.Context) {
	if db.readOnly() {
		return
	}
	var err error
	if db.space.First() { // else other processes may be making tables
		err = db.markUnmade()
	}
	if err == nil && !db.space.Ending() {
		return
	}
	if err == nil {
		err = db.resumeEnding(ctx)
	}
	if err != nil {
		db.opts.Logger.Warn("a table that was being dropped has not given all of its room back yet", zap.Error(err))
	}
}

func (db *DB) resumeEnding(ctx context.Context) error {
	w, err := db.ownWorker(ctx)
	if err != nil {
		return err
	}
	if db.space.AcquireRight(layout.RightDrop) {
		err = db.finishDrops(ctx, w, dropRestNs, func(*layout.Table) bool { return true })
		db.space.ReleaseRight(layout.RightDrop)
	}
	return w.dismiss(ctx, err)
}

// markUnmade does step 1 for tables whose creation was not finished: their first nodes may have been
// committed, and nothing leads to these.
func (db *DB) markUnmade() error {
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	ts, err := db.space.Tables()
	if err != nil {
		return err
	}
	var changes []memory.TableChange
	for i := range ts {
		if t := &ts[i]; t.State == layout.TableLive && t.Root == 0 {
			changes = append(changes, memory.TableChange{ID: t.ID, Drop: true})
		}
	}
	if changes == nil {
		return nil
	}
	return db.space.ChangeTables(changes...)
}

// dropper drops a table.
type dropper struct {
	ctx   context.Context
	w     *Worker
	below uint32 // coordinators from this number on have never found the table
	meta  layout.Table
	t     *occ.Table // of its own: the one of others is dropped
	left  int        // blocks of the table that a pass has met, and that are in use still

	rows, nodes []occ.Remnant

	rest      *occ.Rest // of the transactions that may have used it; nil: that was not asked yet
	since     int64     // when it was
	rested    bool      // they have ended, in all processes
	sweeps    bool      // this process sweeps, whichever has the right to
	forgotten bool      // by the catalog
}

// drop does what is left to be done. It may be called again: see Worker.insist.
func (d *dropper) drop() error {
	db, w := d.w.db, d.w
	if d.forgotten {
		return nil
	}
	if err := d.stands(); err != nil {
		return err
	}
	d.t = &occ.Table{ID: d.meta.ID, Name: d.meta.Name}
	defer d.t.Drop()
	if d.rest == nil {
		d.since = w.thread.Now()
		d.rest = occ.NewRest(d.since, d.below)
	}
	for ; ; w.coro.Sleep(dropPauseNs) {
		w.session.Reply()
		if d.rested = d.rested || d.rest.Ended(db.engine, w.thread.Now()); d.rested {
			if _, unswept := db.space.Unswept(); !unswept || db.space.OnlyDamage() {
				break
			}
			// The nodes lead to what a sweep unlocks.
			if err := d.sweep(d.since); err != nil {
				return err
			}
		}
		if d.ctx.Err() != nil {
			return canceled(d.ctx)
		}
		if w.thread.Now()-d.since > dropRestNs {
			return nil // the next opening does the rest
		}
		db.askIdle()
	}
	if _, unswept := db.space.Unswept(); unswept {
		return nil // the next opening does the rest
	}
	if err := d.empty(); err != nil {
		return err
	}
	return d.forget()
}

// stands returns ErrEnded if others have taken this process for dead since it began, and may drop
// the table.
func (d *dropper) stands() error {
	if d.w.db.space.HasRight(layout.RightDrop) {
		return nil
	}
	return fmt.Errorf("%w: this process had the right to drop the table: try again", memory.ErrEnded)
}

// sweep has a sweep go on that has been waited for since a time. An error is that the worker has to
// rejoin: see Worker.insist.
func (d *dropper) sweep(since int64) error {
	db, w := d.w.db, d.w
	if !d.sweeps && w.thread.Now()-since > dropRestNs/2 { // the process may be dead that sweeps for all
		d.sweeps = true
		db.space.OweSweep(true)
	}
	db.sup.Hurry()
	w.maintain()
	return w.session.Broken()
}

// empty frees all blocks of the table. It waits for those that are locked: by transactions, or until
// a sweep unlocks them.
func (d *dropper) empty() error {
	for before, since := -1, int64(0); ; {
		if err := d.vacate(); err != nil {
			return err
		}
		if d.left == 0 {
			return nil
		}
		if d.left != before {
			before, since = d.left, d.w.thread.Now()
			continue
		}
		if d.w.thread.Now()-since > dropRestNs {
			return fmt.Errorf("%w: %d of its blocks are locked", ErrConflict, d.left)
		}
		if d.ctx.Err() != nil {
			return canceled(d.ctx)
		}
		if err := d.sweep(since); err != nil {
			return err
		}
		d.w.coro.Sleep(dropPauseNs)
	}
}

// vacate makes all blocks of the table free, which no transaction uses any more. Nodes come last:
// where recovery meets a deleted record it looks up what leads to it.
func (d *dropper) vacate() error {
	d.left, d.rows, d.nodes = 0, d.rows[:0], d.nodes[:0]
	if err := d.w.headers(d.ctx, func(a layout.Addr, class layout.Class, img record.Image) {
		m := img.Meta()
		if m.Table() != d.meta.ID || m.State() == record.Free {
			return
		}
		x := occ.Remnant{Addr: a, Class: class, Version: img.Version()}
		switch {
		case !img.Stable():
			d.left++
		case m.State() == record.Node:
			d.nodes = append(d.nodes, x)
		default:
			d.rows = append(d.rows, x)
		}
	}, func() error {
		err := d.free(&d.rows)
		d.rows = d.rows[:0]
		return err
	}); err != nil {
		return err
	}
	if d.left > 0 {
		return nil
	}
	return d.free(&d.nodes)
}

// headers calls fn with the first line of each block of the database, and next after some of them,
// again and again.
func (w *Worker) headers(ctx context.Context, fn func(a layout.Addr, class layout.Class, line record.Image),
	next func() error) error {
	l := w.db.space.Layout()
	for id := range l.Segments {
		g := &l.Segments[id]
		if g.Kind != layout.KindBlocks || g.Placement.N == 0 {
			continue
		}
		size := g.Class.Size()
		for first, all := uint32(0), l.Backed(layout.SegmentID(id))/size; first < all; first += headsAtOnce {
			if ctx.Err() != nil {
				return canceled(ctx)
			}
			if err := w.heads(layout.MakeAddr(layout.SegmentID(id), first*size), g.Class,
				int(min(headsAtOnce, all-first)), fn); err != nil {
				return err
			}
			if err := next(); err != nil {
				return err
			}
		}
	}
	return nil
}

// heads reads the first lines of n blocks.
func (w *Worker) heads(first layout.Addr, class layout.Class, n int,
	fn func(a layout.Addr, class layout.Class, line record.Image)) error {
	th, v := w.thread, w.db.space.ViewOn(w.thread)
	if !v.Valid(first) {
		return nil // its last copy is lost
	}
	buf, err := th.Alloc(n * record.LineSize)
	if err != nil {
		return err
	}
	defer th.Free(buf, n*record.LineSize)
	var b rdma.Batch
	at := func(i int) layout.Addr { return first + layout.Addr(uint32(i)*class.Size()) }
	for i := range n {
		b.Read(v.At(at(i), 0), buf+uint32(i*record.LineSize), record.LineSize)
	}
	if err := w.coro.Do(&b); err != nil {
		return err
	}
	for i := range n {
		fn(at(i), class, record.Image(th.Bytes(buf+uint32(i*record.LineSize), record.LineSize)))
	}
	return nil
}

// free makes blocks free, some by each transaction, and counts those that are not.
func (d *dropper) free(blocks *[]occ.Remnant) error {
	for list := *blocks; len(list) > 0; {
		if err := d.stands(); err != nil {
			return err
		}
		looked, locked := 0, 0
		err := d.w.Update(d.ctx, func(tx *Tx) (err error) {
			looked, locked, err = tx.o.Vacate(d.t, list[:min(len(list), vacateAtOnce)])
			return tx.note(err)
		})
		if err != nil {
			return err
		}
		d.left += looked - locked
		list = list[looked:]
	}
	return nil
}

// forget does step 3.
func (d *dropper) forget() error {
	db := d.w.db
	db.ctlMu.Lock() // no maintenance meanwhile
	defer db.ctlMu.Unlock()
	if !db.space.AcquireRight(uint32(d.meta.ID)) {
		return nil // another process is about to make the index: the next opening does the rest
	}
	defer db.space.ReleaseRight(uint32(d.meta.ID))
	if _, unswept := db.space.Unswept(); unswept {
		return nil // likewise
	}
	if err := db.space.ForgetTable(d.meta.ID); err != nil {
		return err
	}
	d.forgotten = true
	return nil
}
