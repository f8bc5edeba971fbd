package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"txnode/index"
	"txnode/index/tree"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// A hash table of an earlier version has an index of slots, in extents. The first process that
// opens the database for writing builds one of leaves beside it, while it is alone, and nothing is
// left to be recovered or swept:
//
//  1. Nodes are freed that an earlier attempt has left, which was cut short.
//  2. The records are listed that slots lead to, deleted ones as well.
//  3. The nodes are written, without locks and logs: nothing leads to them yet.
//  4. The catalog says where the new index begins. Until then the table has its slots.
//  5. The extents are freed that no index reaches any more, or by the next opening.
//
// What is in the way of that leaves the table its slots, with a line in the log. It works with
// them as before, and the next opening tries again.

const (
	convertBytes    = 64 << 10 // of records that are read in one round trip, unless one has more
	convertProgress = 1 << 20  // records between two lines of the log
)

// convert converts the tables that have indexes of slots: see above. Without Options.LeafIndex it
// only frees what an attempt has left, if its process died.
func (db *DB) convert(ctx context.Context) {
	if db.readOnly() || !db.space.First() || !db.opts.LeafIndex && !db.unclean {
		return
	}
	ts, err := db.space.Tables()
	if err == nil {
		ts = slices.DeleteFunc(ts, func(t layout.Table) bool {
			return t.State != layout.TableLive || t.Root == 0 || t.InBlocks()
		})
		if len(ts) == 0 {
			return
		}
		err = db.convertAll(ctx, ts)
	}
	if err != nil {
		db.opts.Logger.Warn("tables keep their indexes of slots until the database is opened again", errField(err))
	}
}

func (db *DB) convertAll(ctx context.Context, ts []layout.Table) (err error) {
	if _, unswept := db.space.Unswept(); unswept {
		return errors.New("what coordinators have left that died is not swept yet")
	}
	w, err := db.ownWorker(ctx)
	if err != nil {
		return err
	}
	defer func() { err = w.dismiss(ctx, err) }()
	end, err := db.beginDrop(ctx, w) // no backup is being made
	if err != nil {
		return err
	}
	defer end()
	x := converter{ctx: ctx, w: w, bulk: newBulk(ctx, w)}
	if err := x.clear(ts); err != nil || !db.opts.LeafIndex {
		return err
	}
	done := 0
	for i := range ts {
		if e := x.table(&ts[i]); e != nil {
			err = errors.Join(err, fmt.Errorf("table %q: %w", ts[i].Name, e))
		} else {
			done++
		}
		if ctx.Err() != nil {
			break
		}
	}
	if done == 0 {
		return err
	}
	_, e := db.freeExtents(w.coro, recovery.Options{Space: db.space, By: db.space.Recoverer()})
	return errors.Join(err, e)
}

// converter converts tables, one after the other.
type converter struct {
	ctx  context.Context
	w    *Worker
	bulk bulk

	t    *occ.Table // without an index: it writes blocks of the table
	list []tree.Hashed
	told int // of them
}

// clear frees the nodes of tables that nothing can lead to, since the tables have slots.
func (x *converter) clear(ts []layout.Table) error {
	none := func() error { return nil }
	if err := x.w.insist(x.ctx, func() error {
		clear(x.bulk.strays)
		return x.w.headers(x.ctx, func(a layout.Addr, class layout.Class, img record.Image) {
			m := img.Meta()
			if m.State() != record.Node || img.Guard().Held() ||
				!slices.ContainsFunc(ts, func(t layout.Table) bool { return t.ID == m.Table() }) {
				return
			}
			// A process that died in the midst of the WRITE may have left the guard of before.
			x.bulk.strays[m.Table()] = append(x.bulk.strays[m.Table()],
				occ.Remnant{Addr: a, Class: class, Version: img.Guard().Version()})
		}, none)
	}); err != nil {
		return err
	}
	for i := range ts {
		if err := x.bulk.free(&occ.Table{ID: ts[i].ID, Name: ts[i].Name, Hashed: true}); err != nil {
			return fmt.Errorf("freeing nodes of table %q that an earlier attempt has left: %w", ts[i].Name, err)
		}
	}
	return nil
}

// table converts one.
func (x *converter) table(meta *layout.Table) error {
	db := x.w.db
	since := db.Now()
	x.t = &occ.Table{ID: meta.ID, Name: meta.Name, Hashed: true}
	of := uint32(meta.ID)
	if !db.space.AcquireRight(of) {
		return fmt.Errorf("its index is being mended: %w", index.ErrBusy)
	}
	defer db.space.ReleaseRight(of)
	if err := x.w.insist(x.ctx, func() error { return x.read(meta) }); err != nil {
		return err
	}
	if err := x.order(); err != nil {
		return err
	}
	root, err := x.bulk.build(x.t, tree.LeafClass, x.list)
	if err != nil {
		return errors.Join(err, x.giveUp())
	}
	if err := x.bulk.free(x.t); err != nil { // of attempts
		return err
	}
	if db.opts.Durability == DurabilityPower { // no log has what was written in bulk
		db.ctlMu.Lock()
		err := db.withBlades(func(c *rdma.Coro) error { return db.space.FlushSegments(c, layout.KindBlocks) })
		db.ctlMu.Unlock()
		if err != nil {
			return err
		}
	}
	// After an error it may be done all the same. The next opening knows.
	if err := db.space.ChangeTables(memory.TableChange{ID: meta.ID, Root: root, Nodes: tree.LeafClass}); err != nil {
		return err
	}
	db.opts.Logger.Info("a table has an index of leaves from now on, in place of slots",
		zap.String("table", meta.Name), zap.Int("records", len(x.list)),
		zap.Duration("took", time.Duration(db.Now()-since)))
	return nil
}

// giveUp frees the nodes that were written, also if the context has ended.
func (x *converter) giveUp() error {
	b := x.bulk
	b.ctx = context.WithoutCancel(x.ctx)
	return b.free(x.t)
}

// read lists what the slots of a table lead to.
func (x *converter) read(meta *layout.Table) error {
	x.list, x.told = x.list[:0], 0
	ix, err := x.w.db.slots(x.w.coro, meta)
	if err != nil {
		return err
	}
	walker, ok := ix.(index.Walker)
	if !ok {
		return fmt.Errorf("%w: its index, a %T, can not be walked", ErrTableType, ix)
	}
	return walker.Pieces(x.w.coro, func(links []index.Linked) error {
		for len(links) > 0 {
			n, size := 0, uint32(0)
			for n < len(links) && n < dropBatch && (n == 0 || size+links[n].Class.Size() <= convertBytes) {
				size += links[n].Class.Size()
				n++
			}
			if err := x.look(links[:n], size); err != nil {
				return err
			}
			links = links[n:]
		}
		return x.attend()
	})
}

// attend does what a worker has to do from time to time.
func (x *converter) attend() error {
	if x.ctx.Err() != nil {
		return canceled(x.ctx)
	}
	if len(x.list)-x.told >= convertProgress {
		x.told = len(x.list)
		x.w.db.opts.Logger.Info("a table gets an index of leaves in place of slots",
			zap.String("table", x.t.Name), zap.Int("records read", x.told))
	}
	x.w.session.Reply()
	return x.w.session.Broken()
}

// look lists blocks by the keys that they have. size is how many bytes they have together.
func (x *converter) look(links []index.Linked, size uint32) error {
	th, v := x.w.thread, x.w.db.space.ViewOn(x.w.thread)
	buf, err := th.Alloc(int(size))
	if err != nil {
		return err
	}
	defer th.Free(buf, int(size))
	var b rdma.Batch
	at := buf
	for _, l := range links {
		if !v.Valid(l.Addr) {
			return fmt.Errorf("%w: block %v", ErrLost, l.Addr)
		}
		b.Read(v.At(l.Addr, 0), at, l.Class.Size())
		at += l.Class.Size()
	}
	if err := x.w.coro.Do(&b); err != nil {
		return err
	}
	at = buf
	for _, l := range links {
		img := record.Image(th.Bytes(at, l.Class.Size()))
		for k := 1; ; k++ { // what is damaged stays so until it is mended, and a copy has the key
			_, damage := img.Check(l.Addr)
			if damage == nil {
				break
			}
			if k >= v.Copies(l.Addr) {
				return fmt.Errorf("%w: block %v: %w", ErrCorrupt, l.Addr, damage)
			}
			b.Reset()
			b.Read(v.At(l.Addr, k), at, l.Class.Size())
			if err := x.w.coro.Do(&b); err != nil {
				return err
			}
		}
		if err := x.link(l, img); err != nil {
			return err
		}
		at += l.Class.Size()
	}
	return nil
}

// link lists a block that is intact. One that is deleted stays linked, until a transaction unlinks
// it.
func (x *converter) link(l index.Linked, img record.Image) error {
	switch m := img.Meta(); {
	case m.State() == record.Free || m.Table() != x.t.ID:
		return nil // as a lookup passes it by
	case !img.Stable():
		return fmt.Errorf("%w: block %v is locked by %v", ErrConflict, l.Addr, img.Lock())
	case m.State() == record.Node || m.KeyLen() == 0:
		return fmt.Errorf("%w: a slot leads to block %v, which has no record", ErrCorrupt, l.Addr)
	}
	x.list = append(x.list, tree.Link(record.Hash(x.t.ID, img.Key()), l.Addr, l.Class))
	return nil
}

// order brings the list in order. Several slots may lead to a block, but not to several blocks of
// a key.
func (x *converter) order() (err error) {
	slices.SortFunc(x.list, tree.Hashed.Compare)
	x.list = slices.CompactFunc(x.list, func(a, b tree.Hashed) bool { return a.Compare(b) == 0 })
	n := len(x.list)
	if x.list, err = x.bulk.latest(x.t, x.list); err != nil || len(x.list) == n {
		return err
	}
	delete(x.bulk.strays, x.t.ID)
	return fmt.Errorf("%w: %d keys have several records", ErrCorrupt, n-len(x.list))
}
