package recovery

import (
	"bytes"
	"slices"

	"txnode/index"
	"txnode/log"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// lastVersion is the version of what recovery frees in the name of a dead
// coordinator: no transaction of it has it, and a block gets it once at most.
func lastVersion(coordinator uint32) record.TxID {
	return record.MakeTxID(coordinator, record.MaxSequence+1)
}

// checkpoint makes what is in place durable.
func (r *run) checkpoint() error {
	if r.o.Checkpoint == nil {
		return nil
	}
	ids := make([]uint32, len(r.claim.Coordinators))
	for i := range ids {
		ids[i] = r.claim.Coordinators[i].ID
	}
	return r.o.Checkpoint(r.c, ids)
}

// finish does what was decided: for all transactions together, in steps, each
// complete and placed before the next begins.
func (r *run) finish() error {
	steps := []func() error{r.backups, r.primaries, r.moves, r.placeholders}
	if r.fills() { // what leads to the new blocks is released behind them
		steps = slices.Concat([]func() error{r.reserve, r.backups, r.fresh}, steps[1:])
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
		if err := r.fence(); err != nil {
			return err
		}
	}
	for _, x := range r.txs {
		if x.state == toFinish {
			r.finished++
		}
	}
	return nil
}

// replicateLogs brings the records of committed transactions to f+1 blades, before the
// catalog says of them that they are: so that no stop of a recoverer together with one of
// a blade makes one vanish, or half of it.
func (r *run) replicateLogs() error {
	var crowded []*tx
	w := uint32(0)
	for _, x := range r.txs {
		if x.state != toFinish || x.Kind != log.Redo {
			continue
		}
		left, err := r.replicate(&w, x, false)
		if err != nil {
			return err
		}
		if left {
			crowded = append(crowded, x)
		}
	}
	open, err := r.underWay(crowded)
	if err != nil {
		return err
	}
	for _, x := range open {
		if _, err := r.replicate(&w, x, true); err != nil {
			return err
		}
	}
	if err := r.flush(&w); err != nil {
		return err
	}
	if err := r.fence(); err != nil || !r.o.Durable {
		return err
	}
	for _, l := range r.written {
		r.batch.Flush(l.Addr, l.Size)
	}
	return r.do()
}

// replicate appends the WRITEs of a record to blades that do not have it, until it is on
// f+1. open: the transaction has not been at rest, so that what lies in its log space is
// older. left: on some blades there are others, which may be newer, and it is on fewer.
func (r *run) replicate(w *uint32, x *tx, open bool) (left bool, err error) {
	want := r.o.Space.Backups() + 1 - len(x.on)
	for b := 0; b < len(x.areas) && want > 0; b++ {
		l := x.areas[b]
		if l.Size == 0 || slices.Contains(x.on, rdma.BladeID(b)) || uint64(x.off)+uint64(len(x.raw)) > uint64(l.Size) {
			continue
		}
		if !open && r.taken(x, rdma.BladeID(b)) {
			left = true
			continue
		}
		a := l.Addr
		a.Off += uint64(x.off)
		if err := r.write(w, a, x.raw); err != nil {
			return left, err
		}
		r.dirtyAlso(l, x.off, uint32(len(x.raw)))
		if !slices.Contains(r.written, l) {
			r.written = append(r.written, l)
		}
		x.on = append(x.on, rdma.BladeID(b))
		r.occupy(x, rdma.BladeID(b))
		want--
	}
	return left && want > 0, nil
}

// underWay returns those of the transactions, all to be finished, that have certainly not
// been at rest when their coordinators stopped: something of what they were about to write
// is not in place. Then their records are newer than all others that overlap them, since
// log space is used again when everything is. If nothing shows it, all is in place, on
// every copy, although the loss of a blade has left no lock to say so: then the record is
// not needed.
func (r *run) underWay(txs []*tx) (open []*tx, err error) {
	type image struct {
		x *tx
		e *entry
		f *fetch
	}
	var images []image
	var list []*fetch
	for _, x := range txs {
		if x.locks() {
			open = append(open, x)
			continue
		}
		for i := range x.entries {
			e := &x.entries[i]
			if e.lost || !e.held || e.Kind == log.Move {
				continue
			}
			for k := range r.v.Copies(e.Addr) {
				f := &fetch{at: r.v.At(e.Addr, k), n: uint32(len(e.Image))}
				images, list = append(images, image{x, e, f}), append(list, f)
			}
		}
	}
	if err := r.read(list); err != nil {
		return nil, err
	}
	for _, m := range images {
		if m.e.behind(m.f.out) && !slices.Contains(open, m.x) {
			open = append(open, m.x)
		}
	}
	return open, nil
}

// locks reports whether a transaction that is to be finished has a lock still, or the
// primary of something it has locked does not have its image.
func (x *tx) locks() bool {
	return slices.ContainsFunc(x.entries, func(e entry) bool {
		switch {
		case e.lost:
			return false
		case e.Kind == log.Move:
			return e.held || x.moving(&e, e.lines[:], e.old[:])
		case e.Kind == log.New:
			return e.held && !e.installed
		}
		return e.held && guardOf(e.lines[0]) != record.FreeAt(x.Tx)
	})
}

// behind reports whether a copy of a block does not have the image of an Update, or of a New, yet,
// or not all of it. What has come since says that it had.
func (e *entry) behind(p []byte) bool {
	img := record.Image(p)
	switch {
	case img.Version() == e.Image.Version():
		return !bytes.Equal(p, e.free())
	case e.Prev == 0:
		return img.Meta().State() == record.Free && img.Freed() <= e.Freed
	}
	return img.Version() == e.Prev
}

// dirtyAlso notes that a part of a log area has to be cleared.
func (r *run) dirtyAlso(l memory.LogArea, off, n uint32) {
	for at := off &^ (clearUnit - 1); at < off+n; at += clearUnit {
		a := l.Addr
		a.Off += uint64(at)
		d := dirty{a, min(clearUnit, l.Size-at)}
		if !slices.Contains(r.dirty, d) {
			r.dirty = append(r.dirty, d)
		}
	}
}

// backups writes images to the backups of what is still locked on the primary, and of new blocks:
// new ones of committed transactions, old ones of those that are undone.
func (r *run) backups() error {
	w := uint32(0)
	for _, x := range r.txs {
		for i := range x.entries {
			e := &x.entries[i]
			if x.state == atRest || e.lost || e.Kind == log.Move || e.vanishes(x) {
				continue
			}
			switch {
			case e.reclaimed != nil && x.state == toFinish:
				for k := 1; k < r.v.Written(e.Addr); k++ {
					if err := r.write(&w, r.v.At(e.Addr, k), e.reclaimed); err != nil {
						return err
					}
				}
			case x.Kind == log.Undo && x.state == toFinish: // they have the new image
				r.unlock(x, e.Addr, e.lines[1:], 1)
			case e.held:
				img := e.free()
				for k := 1; k < r.v.Written(e.Addr); k++ {
					if err := r.write(&w, r.v.At(e.Addr, k), img); err != nil {
						return err
					}
				}
			}
		}
	}
	return r.flush(&w)
}

// free is the image of the log, unlocked.
func (e *entry) free() record.Image {
	e.Image.SetGuard(record.FreeAt(e.Image.Version()))
	return e.Image
}

// unlock appends the CAS that set the guards of copies, from number first on, free
// at the transaction's version, where they are held by it.
func (r *run) unlock(x *tx, a layout.Addr, lines [][]byte, first int) {
	for i, p := range lines {
		if p != nil && guardOf(p) == record.HeldBy(x.Tx) {
			g := r.v.At(a, first+i)
			g.Off += record.GuardOff
			r.batch.CAS(g, uint64(record.HeldBy(x.Tx)), uint64(record.FreeAt(x.Tx)))
		}
	}
}

// primaries writes the images to the primaries, which releases their locks.
func (r *run) primaries() error {
	w := uint32(0)
	for _, x := range r.txs {
		for i := range x.entries {
			e := &x.entries[i]
			if x.state == atRest || e.lost || e.Kind != log.Update || !e.held || e.vanishes(x) {
				continue
			}
			if e.reclaimed != nil && x.state == toFinish {
				if err := r.install(&w, r.v.At(e.Addr, 0), e.reclaimed, x.Tx); err != nil {
					return err
				}
				continue
			}
			if x.Kind == log.Undo && x.state == toFinish {
				r.unlock(x, e.Addr, e.lines[:1], 0)
				continue
			}
			if err := r.install(&w, r.v.At(e.Addr, 0), e.free(), x.Tx); err != nil {
				return err
			}
			if e.frees() {
				r.blocks++
			}
		}
	}
	return r.flush(&w)
}

// vanishes reports whether what an undone transaction leaves of a record is nothing: it
// has locked a tombstone, or linked a placeholder, whose slot it may have cleared
// again. Both are reclaimed, as by Unlock.
func (e *entry) vanishes(x *tx) bool {
	return x.state == toUndo && e.Kind == log.Update && e.held && e.Image.Meta().State() == record.Absent
}

// placeholders unlinks and frees the blocks of inserts that are undone, and frees what
// another recoverer, who had begun with that, has left.
func (r *run) placeholders() error {
	return r.each(func(x *tx, e *entry) bool { return e.vanishes(x) || r.remnant(x, e) },
		func(r *run, x *tx, e *entry) error {
			if r.remnant(x, e) {
				return r.freeBlock(e.Addr, e.table, lastVersion(x.Tx.Coordinator()), e.lines[:], 0)
			}
			u, err := newUnlocker(r.c, r.o, r.index)
			if err != nil {
				return err
			}
			defer u.close()
			img, err := u.read(r.v, e.Addr)
			if err != nil {
				return err
			}
			if img.Guard() != record.HeldBy(x.Tx) && !r.claim.Promoted { // else the lock may be lost
				return nil
			}
			if e.stranded {
				return r.strandPlaceholder(x, e)
			}
			// The log's image, which is whole: the block may have half of the new one.
			was := e.free()
			was.SetGuard(record.HeldBy(x.Tx))
			_, err = u.reclaim(r.v, e.Addr, was)
			return err
		})
}

// install writes an image to a primary so that the guard comes last.
func (r *run) install(w *uint32, a rdma.RemoteAddr, img record.Image, holder record.TxID) error {
	if len(img) > record.LineSize {
		body := a
		body.Off += record.LineSize
		if err := r.write(w, body, img[record.LineSize:]); err != nil {
			return err
		}
	}
	if *w+record.LineSize > r.size { // the line goes in one piece
		if err := r.flush(w); err != nil {
			return err
		}
	}
	if r.t.Caps().OrderedLine {
		return r.write(w, a, img[:record.LineSize])
	}
	free := record.FreeAt(img.Version())
	img.SetGuard(record.HeldBy(holder))
	if err := r.write(w, a, img[:record.LineSize]); err != nil {
		return err
	}
	img.SetGuard(free)
	a.Off += record.GuardOff
	return r.write(w, a, img[record.GuardOff:record.LineSize])
}

// resyncer is an index that can complete a change of a slot which somebody has left
// half-done between the copies.
type resyncer interface {
	// Resync makes the copies of the slots of q's key equal that point to block a, or
	// did, and tells whether the primary still does. The caller holds the lock of a, and
	// of was, which is the block that the slot pointed to before; 0: to none.
	Resync(c *rdma.Coro, q *index.Query, was, a layout.Addr) (linked bool, err error)
	// Recover is that of race.Index.
	Recover(c *rdma.Coro, dead func(owner uint64) bool) error
}
