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
//  2. Its records are deleted by transactions, and their blocks reclaimed, as those of other
//     records. For recovery, backups and failover there is nothing new in that.
//  3. When all transactions have ended that may have used it, and nothing is linked in its index
//     any more, the catalog says that it is dropped.
//  4. The extents of the index are freed.
//
// Of an ordered table, whose nodes are blocks like records, step 2 begins when all transactions
// have ended that may have used it. It goes over all blocks instead of the index, and commits make
// those of the table free.
//
// A crash after step 1 leaves the rest to the next opening, or the next drop, and so does whatever
// else is in the way. One process at a time does the steps, by a right (layout.RightDrop) that none
// has while a backup is made beside several processes.

const (
	dropBatch   = 32                              // blocks that are read in one round trip
	dropLook    = record.LineSize + record.MaxKey // bytes of each: the key is among them
	dropRecords = 128                             // that a transaction deletes, if its log has room for them
	dropPauseNs = int64(1_000_000)
	// dropRestNs is the wait for transactions that may have used the table, and for locks on its
	// blocks.
	dropRestNs = int64(2_000_000_000)
)

// DropTable drops a table, or returns ErrNoTable. When it returns nil, the table is gone for good,
// and what its records have taken is free for other tables, as far as these need blocks of such
// sizes, and some seconds later for all, or at once if the blades are full: see Options.GiveBack. A
// transaction that has not used the table yet gets ErrDropped from it, and so do handles for ever.
// One that has used it may go on with the keys that it has used, and commit. CreateTable makes a
// new table of the same name, at once.
//
// It deletes the records in small transactions, which takes about as long as to delete them all
// takes a program. The room of the index follows when every worker has ended the transaction that
// it was in: if that takes longer than two seconds, when the database is opened again. Of an
// ordered table so does all of its room. It reads the header of every block of the database, and
// frees some dozen blocks by each transaction. DropTable waits for a backup that runs, and a backup
// waits for it.
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

// markUnmade does step 1 for ordered tables whose creation was not finished: their first nodes may
// have been committed, and nothing leads to these.
func (db *DB) markUnmade() error {
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	ts, err := db.space.Tables()
	if err != nil {
		return err
	}
	var changes []memory.TableChange
	for i := range ts {
		if t := &ts[i]; t.State == layout.TableLive && t.Root == 0 && t.InBlocks() {
			changes = append(changes, memory.TableChange{ID: t.ID, Drop: true})
		}
	}
	if changes == nil {
		return nil
	}
	return db.space.ChangeTables(changes...)
}

// dropper drops a table. What its records are is known by its index, or, if that is ordered, by the
// blocks: see drop_ordered.go.
type dropper struct {
	ctx   context.Context
	w     *Worker
	below uint32 // coordinators from this number on have never found the table
	meta  layout.Table
	t     *occ.Table // of its own: the one of others is dropped
	batch rdma.Batch
	left  int // blocks of the table that a pass has met, and that are in use still

	ix   *race.Index // nil: the table is ordered, or its load was cut short
	scan index.Scan
	todo []index.Candidate
	keys [][]byte // of records to be deleted

	rows, nodes []occ.Remnant

	rest      *occ.Rest // of the transactions that may have used it; nil: that was not asked yet
	since     int64     // when it was
	rested    bool      // they have ended, in all processes
	sweeps    bool      // this process sweeps, whichever has the right to
	forgotten bool      // by the catalog, and its extents are free: see forget
}

// drop does what is left to be done. It may be called again: see Worker.insist.
func (d *dropper) drop() error {
	db, w := d.w.db, d.w
	if d.forgotten {
		return db.space.SettleExtents(w.coro)
	}
	if err := d.stands(); err != nil {
		return err
	}
	d.todo, d.keys = nil, nil
	d.t = &occ.Table{ID: d.meta.ID, Name: d.meta.Name}
	defer d.t.Drop()
	if d.meta.Root != 0 && !d.meta.InBlocks() {
		ix, err := db.openIndex(w.coro, d.meta, func() error { return nil }) // they have ended
		if err != nil {
			return err
		}
		db.equip(ix)
		d.ix, d.scan, d.t.Index = ix, ix.NewScan(), ix
		if err := d.empty(); err != nil {
			return err
		}
	}
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
			// A sweep may be at the index, and an ordered one may lead to what it unlocks.
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
	if d.meta.InBlocks() {
		if _, unswept := db.space.Unswept(); unswept {
			return nil // nodes lead to what a sweep unlocks: the next opening does the rest
		}
	}
	if err := d.empty(); err != nil { // what they have committed meanwhile
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

// empty deletes and frees all records, and the nodes of an ordered index. It waits for blocks that
// are locked: by transactions, or until a sweep unlocks them.
func (d *dropper) empty() error {
	pass := d.pass
	if d.ix == nil {
		pass = d.vacate
	}
	for before, since := -1, int64(0); ; {
		if err := pass(); err != nil {
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

// pass goes over the index once.
func (d *dropper) pass() error {
	if err := d.walk(); err != nil {
		return err
	}
	_, err := d.w.session.MakeRoom(d.w.coro)
	return err
}

func (d *dropper) walk() error {
	d.left = 0
	d.scan.Restart()
	for {
		var more bool
		var err error
		d.todo, more, err = d.scan.Next(d.w.coro, d.todo[:0])
		if err != nil {
			return err
		}
		if !more {
			return d.delete()
		}
		for len(d.todo) > 0 {
			n := min(len(d.todo), dropBatch)
			if err := d.look(d.todo[:n]); err != nil {
				return err
			}
			d.todo = d.todo[n:]
		}
		if len(d.keys) >= dropRecords {
			if err := d.delete(); err != nil {
				return err
			}
		}
	}
}

// look reads blocks, and notes which keys are to be deleted, and which blocks to be reclaimed.
func (d *dropper) look(blocks []index.Candidate) error {
	th := d.w.thread
	buf, err := th.Alloc(dropBatch * dropLook)
	if err != nil {
		return err
	}
	defer th.Free(buf, dropBatch*dropLook)
	v := d.w.db.space.ViewOn(th)
	b := &d.batch
	b.Reset()
	for i, x := range blocks {
		at := buf + uint32(i*dropLook)
		clear(th.Bytes(at, record.LineSize))
		if v.Valid(x.Addr) {
			b.Read(v.At(x.Addr, 0), at, min(x.Class.Size(), dropLook))
		}
	}
	if err := d.w.coro.Do(b); err != nil {
		return err
	}
	for i, x := range blocks {
		img := record.Image(th.Bytes(buf+uint32(i*dropLook), min(x.Class.Size(), dropLook)))
		m := img.Meta()
		at, n := record.KeyAt(m.KeyLen()), m.KeyLen()
		if m.State() == record.Free || m.Table() != d.meta.ID {
			continue // its slot is about to be emptied; or another's block, which stays
		}
		if d.left++; n == 0 || at+n > len(img) {
			continue
		}
		switch key := img[at : at+n]; {
		case m.State() == record.Live:
			d.keys = append(d.keys, slices.Clone(key))
		case img.Stable():
			d.w.session.AddTombstone(d.t, key, x.Addr, x.Class, img.Version())
		}
	}
	return nil
}

// delete deletes the records whose keys were noted.
func (d *dropper) delete() error {
	for part := range slices.Chunk(d.keys, dropRecords) {
		if err := inHalves(part, func(keys [][]byte) error {
			if err := d.stands(); err != nil {
				return err
			}
			return d.w.Update(d.ctx, func(tx *Tx) error { return tx.deleteAll(d.t, keys) })
		}, ErrTooLarge); err != nil {
			return err
		}
	}
	d.keys = nil
	return nil
}

// deleteAll deletes keys, of which some may be absent.
func (tx *Tx) deleteAll(t *occ.Table, keys [][]byte) error {
	items := make([]int, len(keys))
	for i, key := range keys {
		k, err := tx.stage(t, key, true)
		if err != nil {
			return err
		}
		tx.o.Blind(k)
		items[i] = k
	}
	if err := tx.Execute(); err != nil {
		return err
	}
	for _, k := range items {
		if tx.o.Exists(k) {
			if err := tx.note(tx.o.Delete(k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget does the steps 3 and 4.
func (d *dropper) forget() error {
	db, c := d.w.db, d.w.coro
	db.ctlMu.Lock() // no maintenance meanwhile
	defer db.ctlMu.Unlock()
	if !db.space.AcquireRight(uint32(d.meta.ID)) {
		return nil // another process sweeps the index: the next opening does the rest
	}
	defer db.space.ReleaseRight(uint32(d.meta.ID))
	if _, unswept := db.space.Unswept(); unswept {
		return nil // a sweep may be at the index: the next opening does the rest
	}
	mine := map[layout.Addr]bool{}
	if d.ix != nil {
		extents, err := d.ix.Extents(c)
		if err != nil {
			return err
		}
		for _, a := range extents {
			mine[a] = true
		}
	}
	if err := db.space.ForgetTable(d.meta.ID); err != nil {
		return err
	}
	d.forgotten = true
	for _, x := range db.space.Extents() {
		if mine[x.Addr] {
			if _, err := db.space.FreeExtent(x); err != nil {
				return err
			}
		}
	}
	return db.space.SettleExtents(c)
}
