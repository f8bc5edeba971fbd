package txn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"txnode/index/tree"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// A hash table of an earlier version has an index of slots, in extents, which this version cannot
// read. The first process that opens the database for writing builds an index of leaves, while it
// is alone:
//
//  1. The catalog says of these tables that they are being converted. Until then the earlier
//     version has to recover what it has left: see convertible.
//  2. All blocks are read. Records of the tables, deleted ones as well, are listed, and nodes that
//     an earlier attempt has left, which are freed.
//  3. The nodes are written, without locks and logs: nothing leads to them yet.
//  4. The catalog says where the indexes begin, of all tables at once.
//  5. The extents are freed.
//
// An error, or a crash, before step 4 leaves all records and the old indexes as they were, and
// perhaps nodes. The next opening begins again.

const (
	convertBytes    = 64 << 10 // of blocks that are read by one READ
	convertProgress = 1 << 20  // records between two lines of the log
)

// inSlots reports whether a table has an index of slots.
func inSlots(t *layout.Table) bool {
	return t.State != layout.TableDropped && t.Root != 0 && !t.InBlocks()
}

// slotted lists the tables that have indexes of slots.
func (db *DB) slotted() ([]layout.Table, error) {
	ts, err := db.space.Tables()
	return slices.DeleteFunc(ts, func(t layout.Table) bool { return !inSlots(&t) }), err
}

// convertible returns why a database whose tables have indexes of slots cannot be opened; nil: none
// has, or they can be converted. What a process of the earlier version has left that died can be
// recovered by that version alone. What a conversion has left can be recovered as usual.
func (db *DB) convertible() error {
	ts, err := db.slotted()
	if err != nil || len(ts) == 0 {
		return err
	}
	names, marked := make([]string, len(ts)), true
	for i := range ts {
		o, err := decodeTableOptions(ts[i].Options)
		if err != nil {
			return fmt.Errorf("txn: table %q: %w", ts[i].Name, err)
		}
		names[i], marked = fmt.Sprintf("%.40q", ts[i].Name), marked && o.Converting
	}
	of := fmt.Sprintf("%s has an index of slots, which an earlier version has made", strings.Join(names, ", "))
	switch {
	case db.readOnly():
		return fmt.Errorf("%w: %s: open the database once for writing, which converts it", ErrUnrecovered, of)
	case !db.space.First():
		return fmt.Errorf("%w: %s, and other processes have the database open: close it in all of them, and open it "+
			"by this version first", ErrUnrecovered, of)
	case marked:
		return nil
	}
	left, err := db.space.Coordinators()
	if err != nil {
		return err
	}
	if _, unswept := db.space.Unswept(); unswept || len(left) > 0 || db.space.Checkpoint() != 0 {
		return fmt.Errorf("%w: %s, and the database was not closed: open it by that version first, and close it",
			ErrUnrecovered, of)
	}
	return nil
}

// markSlotted does step 1.
func (db *DB) markSlotted() error {
	if db.readOnly() || !db.space.First() {
		return nil
	}
	ts, err := db.slotted()
	if err != nil {
		return err
	}
	var changes []memory.TableChange
	for i := range ts {
		o, err := decodeTableOptions(ts[i].Options)
		if err == nil && !o.Converting {
			o.Converting = true
			var options []byte
			if options, err = json.Marshal(o); err == nil {
				changes = append(changes, memory.TableChange{ID: ts[i].ID, Was: ts[i].Options, Options: options})
			}
		}
		if err != nil {
			return fmt.Errorf("txn: table %q: %w", ts[i].Name, err)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return db.space.ChangeTables(changes...)
}

// convert converts the tables that have indexes of slots. Those that are being dropped need none.
func (db *DB) convert(ctx context.Context) error {
	if db.readOnly() || !db.space.First() {
		return nil
	}
	ts, err := db.slotted()
	if err != nil || len(ts) == 0 {
		return err
	}
	if ts = slices.DeleteFunc(ts, func(t layout.Table) bool { return t.State != layout.TableLive }); len(ts) == 0 {
		return nil
	}
	if err = db.convertAll(ctx, ts); err != nil {
		return fmt.Errorf("txn: converting tables of an earlier version, which are left as they were: %w", err)
	}
	return nil
}

func (db *DB) convertAll(ctx context.Context, ts []layout.Table) (err error) {
	if _, unswept := db.space.Unswept(); unswept {
		return fmt.Errorf("%w: what a process has left that died is not swept", ErrUnrecovered)
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
	x := converter{
		ctx: ctx, w: w, bulk: newBulk(ctx, w), nodes: map[uint16][]occ.Remnant{}, replaced: map[uint16][]occ.Remnant{},
	}
	for i := range ts {
		x.tables = append(x.tables, &occ.Table{ID: ts[i].ID, Name: ts[i].Name, Hashed: true})
	}
	changes, err := x.build()
	if err != nil {
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
	for i := range ts {
		if !db.space.AcquireRight(uint32(ts[i].ID)) {
			return fmt.Errorf("%w: another process has the right to make the index of table %q", memory.ErrShared,
				ts[i].Name)
		}
		defer db.space.ReleaseRight(uint32(ts[i].ID))
		o, err := decodeTableOptions(ts[i].Options)
		if err != nil {
			return err
		}
		o.Converting = false
		if changes[i].Options, err = json.Marshal(o); err != nil {
			return err
		}
		changes[i].Was = ts[i].Options
	}
	// After an error it may be done all the same. The next opening knows.
	if err := db.space.ChangeTables(changes...); err != nil {
		return err
	}
	if err := x.finish(); err != nil {
		return err
	}
	_, err = db.freeExtents(w.coro, recovery.Options{Space: db.space, By: db.space.Recoverer()})
	return err
}

// converter makes indexes of leaves.
type converter struct {
	ctx    context.Context
	w      *Worker
	bulk   bulk
	tables []*occ.Table // without indexes

	nodes    map[uint16][]occ.Remnant // that were written, by table
	replaced map[uint16][]occ.Remnant // records that others of their keys replace
	ill      []layout.Addr            // blocks that are damaged on a copy, and not on all

	batch  rdma.Batch
	buf    uint32   // convertBytes of the arena
	images [][]byte // of the same blocks, by copy
	listed int      // records
}

// table is the table of a number, if it is one of those that get an index.
func (x *converter) table(id uint16) *occ.Table {
	for _, t := range x.tables {
		if t.ID == id {
			return t
		}
	}
	return nil
}

// build does the steps 2 and 3, and returns the changes of step 4.
func (x *converter) build() (changes []memory.TableChange, err error) {
	db, l := x.w.db, &x.bulk
	since := db.Now()
	if err := x.w.insist(x.ctx, x.scan); err != nil {
		return nil, err
	}
	for _, t := range x.tables { // before anything else takes such blocks
		if err := l.free(t); err != nil {
			return nil, fmt.Errorf("freeing nodes of table %q that a conversion before has left: %w", t.Name, err)
		}
	}
	for _, t := range x.tables {
		n := len(l.hashes[t.ID])
		list, err := l.latest(t, l.hashes[t.ID])
		delete(l.hashes, t.ID)
		x.replaced[t.ID] = l.strays[t.ID] // they stay until the catalog has changed
		delete(l.strays, t.ID)
		var root layout.Addr
		if err == nil {
			root, x.nodes[t.ID], err = l.build(t, list)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("table %q: %w", t.Name, err), x.giveUp())
		}
		changes = append(changes, memory.TableChange{ID: t.ID, Root: root, Nodes: tree.LeafClass})
		db.opts.Logger.Info("a table gets an index of leaves in place of slots", zap.String("table", t.Name),
			zap.Int("records", len(list)), zap.Int("blocks of replaced records", n-len(list)),
			zap.Duration("took", time.Duration(db.Now()-since)))
	}
	return changes, nil
}

// giveUp frees the nodes that were written, also if the context has ended.
func (x *converter) giveUp() (err error) {
	l := &x.bulk
	l.ctx = context.WithoutCancel(x.ctx)
	for _, t := range x.tables {
		l.strays[t.ID] = append(l.strays[t.ID], x.nodes[t.ID]...)
		err = errors.Join(err, l.free(t))
	}
	return err
}

// finish mends blocks, and frees those of records that others replace, and the nodes of attempts.
func (x *converter) finish() error {
	for _, a := range x.ill {
		x.w.repairBlock(a) // what is not mended now is when a transaction meets it
	}
	for _, t := range x.tables {
		x.bulk.strays[t.ID] = append(x.bulk.strays[t.ID], x.replaced[t.ID]...)
		if err := x.bulk.free(t); err != nil {
			return err
		}
	}
	return nil
}

// scan reads all blocks, and lists what the tables have of them.
func (x *converter) scan() error {
	clear(x.bulk.hashes)
	clear(x.bulk.strays)
	x.listed, x.ill = 0, x.ill[:0]
	th, s := x.w.thread, x.w.db.space
	var err error
	if x.buf, err = th.Alloc(convertBytes); err != nil {
		return err
	}
	defer th.Free(x.buf, convertBytes)
	l := s.Layout()
	for i := range l.Segments {
		id, g := layout.SegmentID(i), &l.Segments[i]
		if g.Kind != layout.KindBlocks || g.Placement.N == 0 {
			continue
		}
		v, size := s.ViewOn(th), g.Class.Size()
		if first := layout.MakeAddr(id, 0); !v.Valid(first) || v.Copies(first) == 0 {
			return fmt.Errorf("%w: segment %d", ErrLost, id)
		}
		for at, end := uint32(0), l.Backed(id)/size*size; at < end; {
			n := min(max(convertBytes/size, 1)*size, end-at)
			if err := x.read(v, layout.MakeAddr(id, at), g.Class, n); err != nil {
				return err
			}
			at += n
		}
	}
	return nil
}

// read reads blocks that lie beside each other, n bytes in all, and lists what the tables have of
// them.
func (x *converter) read(v *layout.View, first layout.Addr, class layout.Class, n uint32) error {
	if err := x.attend(); err != nil {
		return err
	}
	x.images = x.images[:0]
	for k := range v.Copies(first) {
		p := make([]byte, 0, n)
		for uint32(len(p)) < n {
			some := min(n-uint32(len(p)), convertBytes)
			at := v.At(first, k)
			at.Off += uint64(len(p))
			x.batch.Reset()
			x.batch.Read(at, x.buf, some)
			if err := x.w.coro.Do(&x.batch); err != nil {
				return err
			}
			p = append(p, x.w.thread.Bytes(x.buf, some)...)
		}
		x.images = append(x.images, p)
	}
	for off := uint32(0); off < n; off += class.Size() {
		if err := x.look(first+layout.Addr(off), class, off); err != nil {
			return err
		}
	}
	return nil
}

// attend does what a worker has to do from time to time.
func (x *converter) attend() error {
	if x.ctx.Err() != nil {
		return canceled(x.ctx)
	}
	n := 0
	for _, list := range x.bulk.hashes {
		n += len(list)
	}
	if n-x.listed >= convertProgress {
		x.listed = n
		x.w.db.opts.Logger.Info("tables get indexes of leaves in place of slots", zap.Int("records read", n))
	}
	x.w.session.Reply()
	return x.w.session.Broken()
}

// look lists a block, whose copies lie at an offset of the images, by the first copy that is intact
// and was used.
func (x *converter) look(a layout.Addr, class layout.Class, off uint32) error {
	var damage error
	var bad []record.Image
	for k, p := range x.images {
		img := record.Image(p[off : off+class.Size()])
		if _, err := img.Check(a); err != nil {
			bad, damage = append(bad, img), err
		} else if img.Meta() != 0 {
			if k > 0 {
				x.ill = append(x.ill, a)
			}
			return x.link(a, class, img)
		}
	}
	stray := false
	for _, img := range bad {
		m := img.Meta()
		switch t := x.table(m.Table()); {
		case t != nil && m.State() == record.Node: // a process died in the midst of the WRITE
			stray = true
		case t == nil && m.Table() != 0 && x.w.db.space.TableInBlocks(m.Table()): // it is none of these tables'
		case x.w.db.unclean && m.State() == record.Free && m.KeyLen()|m.ValueLen() == 0: // likewise
		default:
			return fmt.Errorf("%w: block %v, of which no copy is intact: %w: repair it by the earlier version, or "+
				"restore a backup which that makes without it", ErrCorrupt, a, damage)
		}
	}
	if stray {
		return x.link(a, class, record.Image(x.images[0][off:off+class.Size()]))
	}
	return nil
}

// link lists a block. A deleted record stays linked, until a transaction unlinks it.
func (x *converter) link(a layout.Addr, class layout.Class, img record.Image) error {
	m := img.Meta()
	t := x.table(m.Table())
	if t == nil {
		return nil
	}
	switch l := &x.bulk; {
	case m.State() == record.Node:
		// A process that died in the midst of the WRITE may have left the guard of before.
		l.strays[t.ID] = append(l.strays[t.ID], occ.Remnant{Addr: a, Class: class, Version: img.Guard().Version()})
	case m.State() == record.Free:
	case m.KeyLen() > 0:
		l.hashes[t.ID] = append(l.hashes[t.ID], tree.Link(record.Hash(t.ID, img.Key()), a, class))
	case m.State() == record.Live:
		return fmt.Errorf("%w: block %v has a record without a key", ErrCorrupt, a)
	}
	return nil
}
