package recovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"txnode/index"
	"txnode/index/race"
	"txnode/log"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// What a dead coordinator has left in a table whose index is damaged, or lost, cannot be
// finished: nobody can switch a slot there, or clear one. It does not keep its other
// transactions, and the other tables, from being recovered. It is brought into a state that
// shows what is still to be done when the log is gone:
//
//   - A record that moves has all of its new image in the new block. Both blocks stay locked, on
//     all copies, by names that no transaction has: that of who has left the one, and that of who
//     has gone to the other. Nobody reads an image of it. Who opens the database when the index
//     has been repaired finds both by their guards, and finishes the move.
//   - A placeholder, or a tombstone that was to be used again, of an insert that is undone stays
//     locked by its transaction, as if that had not come to its log. A sweep unlinks it.
//
// An insert whose placeholder may have been on a blade that was lost is written, whether a
// slot leads there or not: what tells that its transaction had been at rest has left
// traces in the block.

// departed is who has the lock of a block that a record of a dead coordinator's was to leave, and
// settled who has that of the block to which it was to go.
func departed(coordinator uint32) record.TxID {
	return record.MakeTxID(coordinator, record.MaxSequence)
}
func settled(coordinator uint32) record.TxID {
	return record.MakeTxID(coordinator, record.MaxSequence+1)
}

// isStranded reports whether the first line of a block is that of a record whose move could not
// be finished. No other block with a value is locked by such a name.
func isStranded(line record.Image) bool {
	return line.Stranded()
}

// keyed reports whether as much of a block was read as its key needs: what is damaged may say that
// it has one which is too long.
func keyed(img record.Image) bool {
	n := img.Meta().KeyLen()
	return n <= record.MaxKey && record.KeyAt(n)+n <= len(img)
}

// isDeparted reports whether it is the block that the record was to leave.
func isDeparted(line record.Image) bool {
	return isStranded(line) && line.Lock().Seq() == record.MaxSequence
}

// strandedError is what is said to who meets such a block.
func strandedError(a layout.Addr) error {
	return fmt.Errorf("%w: the record in block %v was about to move when its client died, and the index of its table "+
		"was damaged; the database, closed, can be checked, and repaired from another copy: then it is finished",
		ErrCorrupt, a)
}

// Beyond reports whether an error of Unlock or Unlink says that the index is damaged, or lost:
// what is left of the block is the sweep's, when it is repaired.
func Beyond(err error) bool {
	return errors.Is(err, layout.ErrCorrupt) || errors.Is(err, layout.ErrLost)
}

// strand notes that the index of an entry's table is of no use, and returns other errors.
func (r *run) strand(e *entry, err error) error {
	if !Beyond(err) || e.stranded {
		return err
	}
	e.stranded = true
	if r.rep.Damage == nil {
		r.rep.Damage = err
		if r.o.Damaged != nil {
			r.o.Damaged(err)
		}
	}
	return nil
}

// strandMove leaves a move that was decided, and whose slot cannot be switched, to who opens the
// database when its index is repaired. The transaction has the lock of the old block, whose primary
// comes last: until then it is a move to be finished. And the others come one after the other, when
// the image is in place: so a blade that is lost meanwhile promotes a copy that has the
// transaction's version of it, or one behind which all is done.
func (r *run) strandMove(x *tx, e *entry) error {
	a, old, id := x.goes(e), x.leaves(e), x.Tx.Coordinator()
	mark := func(a layout.Addr, k int, by record.TxID) error {
		g := r.v.At(a, k)
		g.Off += record.GuardOff
		return r.put(g, binary.LittleEndian.AppendUint64(nil, uint64(record.HeldBy(by))))
	}
	for k := range r.v.Written(a) { // the primary first: who is building a copy must see the lock before
		if x.Kind == log.Undo { // the images are in place
			if err := mark(a, k, settled(id)); err != nil {
				return err
			}
			continue
		}
		e.Image.SetGuard(record.HeldBy(settled(id)))
		if err := r.put(r.v.At(a, k), e.Image); err != nil {
			return err
		}
	}
	for k := r.v.Written(old) - 1; k >= 0; k-- {
		if err := mark(old, k, departed(id)); err != nil {
			return err
		}
	}
	return nil
}

// put writes p to a, where everybody sees it before anything else is written.
func (r *run) put(a rdma.RemoteAddr, p []byte) error {
	w := uint32(0)
	if err := r.write(&w, a, p); err != nil {
		return err
	}
	if err := r.flush(&w); err != nil {
		return err
	}
	return r.fence()
}

// strandPlaceholder leaves a block in state absent to the next sweep: locked on the primary, with
// the image of the log, which is whole.
func (r *run) strandPlaceholder(x *tx, e *entry) error {
	img := e.free()
	for k := r.v.Written(e.Addr) - 1; k >= 0; k-- {
		if k == 0 {
			img.SetGuard(record.HeldBy(x.Tx))
		}
		if err := r.put(r.v.At(e.Addr, k), img); err != nil {
			return err
		}
	}
	return nil
}

// stranded is a block of a record whose move is to be finished.
type stranded struct {
	addr layout.Addr
	img  record.Image // as far as the key reaches
}

// finishStranded finishes the moves whose blocks the sweep has met. Only who is alone does: a
// damaged index is repaired while nobody has the database open.
func (s *Sweeper) finishStranded(c *rdma.Coro) error {
	if len(s.stranded) == 0 {
		return nil
	}
	u, err := newUnlocker(c, &s.o, func(table uint16) (index.Finder, error) { return s.open(c, table) })
	if err != nil {
		return err
	}
	defer u.close()
	type key struct {
		table uint16
		key   string
	}
	records := map[key][]stranded{}
	var order []key
	for _, a := range s.stranded {
		img, err := u.read(s.o.Space.ViewOn(c.Thread()), a)
		if err != nil {
			return err
		}
		u.table = img.Meta().Table()
		if !isStranded(img) {
			continue
		}
		if !keyed(img) { // of which record it is, is not known until it is repaired
			if err := s.spare(u.table, strandedError(a)); err != nil {
				return err
			}
			continue
		}
		if !s.o.Alone && u.reaches(s.o.Space.ViewOn(c.Thread()), img) {
			if err := s.spare(u.table, strandedError(a)); err != nil {
				return err
			}
		}
		if !s.o.Alone {
			continue
		}
		k := key{u.table, string(img.Key())}
		if records[k] == nil {
			order = append(order, k)
		}
		records[k] = append(records[k], stranded{a, slices.Clone(img)})
	}
	for _, k := range order {
		u.table = k.table
		err := u.finishMove(s.o.Space.ViewOn(c.Thread()), records[k])
		if errors.Is(err, layout.ErrLost) || errors.Is(err, memory.ErrNoTable) {
			continue // nobody reaches it any more
		}
		if err := s.spare(u.table, err); err != nil {
			return err
		}
	}
	s.Report.Freed += u.freed
	s.stranded = nil
	return nil
}

// reaches reports whether the index of a record's table can be used, or may be some day: no part
// of it that would be needed is lost.
func (u *unlocker) reaches(v *layout.View, img record.Image) bool {
	key := slices.Clone(img.Key()) // the buffer may be needed
	ix, err := u.index(u.table)
	if err == nil {
		_, err = u.lookup(ix, v, u.table, key)
	}
	return !errors.Is(err, layout.ErrLost) && !errors.Is(err, memory.ErrNoTable)
}

// finishMove switches the slot of a record to its new block, if it leads to the old one still,
// frees that, and unlocks the new one. It may be repeated from any point.
func (u *unlocker) finishMove(v *layout.View, blocks []stranded) error {
	var from, to *stranded
	for i := range blocks {
		if x := &blocks[i]; isDeparted(x.img) {
			from = x
		} else {
			to = x
		}
	}
	if len(blocks) == 2 && (from == nil || to == nil) { // one of the locks is damaged
		from, to = byVersion(&blocks[0], &blocks[1])
	}
	if to == nil || len(blocks) > 2 || len(blocks) == 2 && from == nil {
		return strandedError(blocks[0].addr)
	}
	ix, err := u.index(u.table)
	if err != nil {
		return fmt.Errorf("recovery: index of table %d: %w", u.table, err)
	}
	q, err := u.lookup(ix, v, u.table, to.img.Key())
	if err != nil {
		return fmt.Errorf("recovery: looking up in the index of table %d: %w", u.table, err)
	}
	switch {
	case leadsTo(q, to.addr):
	case from == nil || !leadsTo(q, from.addr):
		return strandedError(to.addr)
	default:
		r, ok := ix.(*race.Index)
		if !ok {
			return strandedError(to.addr)
		}
		err := u.o.alone(u.c, u.table, r, func() error {
			return r.Replace(u.c, q, from.addr, to.addr, to.img.Meta().Class())
		})
		if err != nil {
			return fmt.Errorf("recovery: switching the slot of a record of table %d: %w", u.table, err)
		}
	}
	// What is damaged on the primary can be repaired from another copy afterwards, if that
	// gets nothing of it.
	t := u.c.Thread()
	if from != nil {
		if to.img.Lock().Coordinator() == to.img.Version().Coordinator() { // else one of the three names is damaged
			from.img.SetGuard(record.HeldBy(departed(to.img.Version().Coordinator())))
		}
		u.putFree(from.addr, from.img)
		err := u.writeBackwards(v, from.addr, 0, record.LineSize, func(int) error { return nil })
		if err != nil {
			return err
		}
		u.freed++
	}
	return u.writeBackwards(v, to.addr, record.GuardOff, 8, func(k int) error {
		img, err := u.readCopy(v, to.addr, k)
		if err == nil {
			t.PutWord(u.buf, uint64(img.Unlocked()))
		}
		return err
	})
}

// byVersion tells the block that a record was to leave from the one to which it was to go, which
// has the last image, made by the client that has died; nil: they do not say.
func byVersion(a, b *stranded) (from, to *stranded) {
	id := a.img.Lock().Coordinator()
	made := func(x *stranded) bool { return x.img.Version().Coordinator() == id && b.img.Lock().Coordinator() == id }
	switch last := b.img.Version().Seq() > a.img.Version().Seq(); {
	case made(a) && made(b) && last, !made(a) && made(b):
		return a, b
	case made(a):
		return b, a
	}
	return nil, nil
}

// writeBackwards writes n bytes, which fill leaves in the buffer, to all copies of a block, one
// after the other, the primary last: a blade that is lost promotes one behind which all is done, or
// nothing. A whole line is that of a block that comes free.
func (u *unlocker) writeBackwards(v *layout.View, a layout.Addr, off uint64, n uint32, fill func(k int) error) error {
	for k := v.Written(a) - 1; k >= 0; k-- {
		if err := fill(k); err != nil {
			return err
		}
		u.batch.Reset()
		at := v.At(a, k)
		at.Off += off
		if n == record.LineSize {
			record.AppendFree(&u.batch, at, u.buf, k > 0 || u.c.Thread().Caps().OrderedLine)
		} else {
			u.batch.Write(at, u.buf, n)
		}
		if err := u.place(); err != nil {
			return err
		}
	}
	return nil
}
