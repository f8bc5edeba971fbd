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
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
)

// A table is dropped in steps, each of which leaves a database that opens and can be checked:
//
//  1. The catalog says that the table is being dropped. From now on nobody finds it, its name is free,
//     and no transaction begins to use it. Of a shared database, no other process has it open then.
//  2. Its records are deleted by transactions, and their blocks reclaimed, as those of other records.
//     For recovery, backups and failover there is nothing new in that.
//  3. When all transactions have ended that may have used it, and nothing is linked in its index any
//     more, the catalog says that it is dropped.
//  4. The extents of the index are freed.
//
// Of an ordered table, whose nodes are blocks like records, step 2 begins when all transactions have ended that may
// have used it. It goes over all blocks instead of the index, and commits make those of the table free.
//
// A crash after step 1 leaves the rest to the next opening, and so does whatever else is in the way.

const (
	dropBatch   = 32                              // blocks that are read in one round trip
	dropLook    = record.LineSize + record.MaxKey // bytes of each: the key is among them
	dropRecords = 128                             // that a transaction deletes
	dropPauseNs = int64(1_000_000)
	dropRestNs  = int64(2_000_000_000) // wait for transactions that may have used the table, and for locks on its blocks
)

// DropTable drops a table, or returns ErrNoTable. When it returns nil, the table is gone for good, and
// what its records have taken is free for other tables, as far as these need blocks of such sizes, and
// some seconds later for all, or at once if the blades are full: see Options.GiveBack. A
// transaction that has not used the table yet gets ErrDropped from it, and so do handles for ever. One
// that has used it may go on with the keys that it has used, and commit. CreateTable makes a new table
// of the same name, at once.
//
// It deletes the records in small transactions, which takes about as long as to delete them all takes
// a program. The room of the index follows when every worker has ended the transaction that it was in:
// if that takes longer than two seconds, when the database is opened again. Of an ordered table so does
// all of its room. It reads the header of every block of the database, and frees some dozen blocks by each
// transaction. DropTable waits for a backup that runs, and a backup waits for it.
//
// If ctx ends meanwhile, or the process dies, the table is dropped all the same. The rest of its room is
// given back when DropTable is called again with its name, or when the database is opened again. Do not
// call it inside of a transaction.
//
// Indexes of the table are dropped with it. Of an index itself it is ErrOptions: see [DB.DropIndex]. While other processes have
// the database open it is memory.ErrShared.
func (db *DB) DropTable(ctx context.Context, name string) error {
	return db.dropTables(ctx, name, func() error { return db.markTable(name) }, func(t *memory.Table) bool {
		o, _ := decodeTableOptions(t.Options)
		return t.Name == name || o.Of == name
	})
}

// dropTables drops tables: mark does step 1, and the others follow for those that which tells.
func (db *DB) dropTables(ctx context.Context, name string, mark func() error, which func(t *memory.Table) bool) (err error) {
	if db.isClosed() {
		return ErrClosed
	}
	if db.readOnly() {
		return fmt.Errorf("%w: table %q can not be dropped", ErrReadOnly, name)
	}
	w, err := db.NewWorker()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for !db.dropMu.TryLock() {
		if ctx.Err() != nil {
			return canceled(ctx)
		}
		w.Sleep(dropPauseNs)
	}
	defer db.dropMu.Unlock()
	var below uint32 // number of the first coordinator that has never found it
	if err := db.alone(func() error {
		err := mark()
		below = db.space.NextCoordinator()
		return err
	}); err != nil {
		return fmt.Errorf("txn: table %q: %w", name, err)
	}
	if err := db.finishDrops(ctx, w, below, which); err != nil {
		return fmt.Errorf("txn: table %q is dropped, and its room is given back when the database is opened again, or DropTable is called once more: %w", name, err)
	}
	db.engine.Plenty()
	return nil
}

// alone runs fn while this process is alone with the database. If others take the process for dead meanwhile, changes of tables by fn fail,
// and its verbs do: what was done before was done alone.
func (db *DB) alone(fn func() error) error {
	if err := db.space.BeginAlone(); err != nil {
		return err
	}
	err := fn()
	if e := db.space.EndAlone(); e != nil && !errors.Is(e, memory.ErrEnded) {
		err = errors.Join(err, e)
	}
	return err
}

// markTable does step 1 for a table and its indexes, unless that was done.
func (db *DB) markTable(name string) error {
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	ts, err := db.space.Tables()
	if err != nil {
		return err
	}
	t := liveTable(ts, name)
	if t == nil {
		if slices.ContainsFunc(ts, func(t memory.Table) bool { return t.Name == name && t.State == memory.TableDropping }) {
			return nil
		}
		return ErrNoTable
	}
	o, _ := decodeTableOptions(t.Options) // one whose options are damaged can be dropped
	if o.Of != "" {
		return fmt.Errorf("%w: it is an index of table %q: DropIndex drops it", ErrOptions, o.Of)
	}
	names := []string{name}
	for _, x := range o.Indexes {
		names = append(names, indexTable(name, x.Name))
	}
	return db.mark(ts, names)
}

// mark notes in the catalog that tables are being dropped, and makes the other changes in the same step. The caller
// holds ctlMu.
func (db *DB) mark(ts []memory.Table, names []string, changes ...memory.TableChange) error {
	for _, name := range names {
		if t := liveTable(ts, name); t != nil {
			changes = append(changes, memory.TableChange{ID: t.ID, Drop: true})
		}
	}
	if err := db.space.ChangeTables(changes...); err != nil {
		return err
	}
	for _, name := range names {
		if t := db.tables[name]; t != nil {
			t.Drop()
			delete(db.tables, name)
		}
	}
	return nil
}

// liveTable is the table of a name, nil: there is none.
func liveTable(ts []memory.Table, name string) *memory.Table {
	i := slices.IndexFunc(ts, func(t memory.Table) bool { return t.Name == name && t.State == memory.TableLive && t.Root != 0 })
	if i < 0 {
		return nil
	}
	return &ts[i]
}

// finishDrops does the other steps for tables that are being dropped. Coordinators from the number below on have never
// found them.
func (db *DB) finishDrops(ctx context.Context, w *Worker, below uint32, which func(t *memory.Table) bool) error {
	ts, err := db.space.Tables()
	if err != nil {
		return err
	}
	for i := range ts {
		if ts[i].State != memory.TableDropping || !which(&ts[i]) {
			continue
		}
		d := dropper{ctx: ctx, w: w, below: below, meta: ts[i]}
		if err := w.insist(ctx, d.drop); err != nil {
			return err
		}
	}
	return nil
}

// resumeDrops goes on with tables that a process was dropping before. That it cannot is no reason not
// to open the database.
func (db *DB) resumeDrops(ctx context.Context) {
	if db.readOnly() {
		return
	}
	err := db.markUnmade()
	var ts []memory.Table
	if err == nil {
		ts, err = db.space.Tables()
	}
	if err == nil && !slices.ContainsFunc(ts, func(t memory.Table) bool { return t.State == memory.TableDropping }) {
		return
	}
	var w *Worker
	if err == nil {
		w, err = db.NewWorker()
	}
	if err == nil {
		err = errors.Join(db.finishDrops(ctx, w, db.space.NextCoordinator(), func(*memory.Table) bool { return true }), w.Close())
	}
	if err != nil {
		db.opts.Logger.Warn("a table that was being dropped has not given all of its room back yet", zap.Error(err))
	}
}

// markUnmade does step 1 for ordered tables whose creation was not finished: their first nodes may have been committed,
// and nothing leads to these.
func (db *DB) markUnmade() error {
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	ts, err := db.space.Tables()
	if err != nil {
		return err
	}
	var changes []memory.TableChange
	for i := range ts {
		if t := &ts[i]; t.State == memory.TableLive && t.Root == 0 && t.Ordered() {
			changes = append(changes, memory.TableChange{ID: t.ID, Drop: true})
		}
	}
	if changes == nil {
		return nil
	}
	return db.space.ChangeTables(changes...)
}

// dropper drops a table. What its records are is known by its index, or, if that is ordered, by the blocks:
// see drop_ordered.go.
type dropper struct {
	ctx   context.Context
	w     *Worker
	below uint32 // see finishDrops
	meta  memory.Table
	t     *occ.Table // of its own: the one of others is dropped
	batch rdma.Batch
	left  int // blocks of the table that a pass has met, and that are in use still

	ix   *race.Index // nil: the table is ordered
	scan index.Scan
	todo []index.Candidate
	keys [][]byte // of records to be deleted

	rows, nodes []occ.Remnant

	rest      *occ.Rest // of the transactions that may have used it; nil: that was not asked yet
	since     int64     // when it was
	rested    bool      // they have ended
	sweeps    bool      // this process sweeps, whichever has the right to
	forgotten bool      // by the catalog, and its extents are free: see forget
}

// drop does what is left to be done. It may be called again: see Worker.insist.
func (d *dropper) drop() error {
	db, w := d.w.db, d.w
	if d.forgotten {
		return db.space.SettleExtents(w.coro)
	}
	d.todo, d.keys = nil, nil
	d.t = &occ.Table{ID: d.meta.ID, Name: d.meta.Name}
	defer d.t.Drop()
	if d.meta.Root != 0 && !d.meta.Ordered() {
		ix, err := db.openIndex(w.coro, d.meta)
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
		if d.rested = d.rested || d.rest.Ended(w.session, w.coro); d.rested {
			if _, unswept := db.space.Unswept(); !unswept || db.space.Spared() {
				break
			}
			d.sweep(d.since) // a sweep may be at the index, and an ordered one may lead to what it unlocks
		}
		if d.ctx.Err() != nil {
			return canceled(d.ctx)
		}
		if w.thread.Now()-d.since > dropRestNs {
			return nil // the next opening does the rest
		}
		db.askIdle()
	}
	if d.meta.Ordered() {
		if _, unswept := db.space.Unswept(); unswept {
			return nil // nodes lead to what a sweep unlocks: the next opening does the rest
		}
	}
	if d.meta.Root != 0 || d.meta.Ordered() {
		if err := d.empty(); err != nil { // what they have committed meanwhile
			return err
		}
	}
	return d.forget()
}

// sweep has a sweep go on that has been waited for since a time.
func (d *dropper) sweep(since int64) {
	db, w := d.w.db, d.w
	if !d.sweeps && w.thread.Now()-since > dropRestNs/2 { // the process may be dead that sweeps for all
		d.sweeps = true
		db.space.OweSweep(true)
	}
	db.hurry()
	w.maintain()
}

// empty deletes and frees all records, and the nodes of an ordered index. It waits for blocks that are locked: by transactions, or until
// a sweep unlocks them.
func (d *dropper) empty() error {
	pass := d.pass
	if d.meta.Ordered() {
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
		d.sweep(since)
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
			d.w.session.Bury(d.t, key, x.Addr, x.Class, img.Version())
		}
	}
	return nil
}

// delete deletes the records whose keys were noted.
func (d *dropper) delete() error {
	for len(d.keys) > 0 {
		n := min(len(d.keys), dropRecords)
		err := d.w.Update(d.ctx, func(tx *Tx) error { return tx.deleteAll(d.t, d.keys[:n]) })
		if err != nil {
			return err
		}
		d.keys = d.keys[n:]
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
	if !db.space.BeginMend(uint32(d.meta.ID)) {
		return nil // another process sweeps the index: the next opening does the rest
	}
	defer db.space.EndMend(uint32(d.meta.ID))
	if _, unswept := db.space.Unswept(); unswept {
		return nil // a sweep may be at the index: the next opening does the rest
	}
	mine := map[memory.Addr]bool{}
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
