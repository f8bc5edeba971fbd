package recovery

import (
	"encoding/binary"
	"fmt"
	"slices"

	"txnode/index"
	"txnode/log"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// moves finishes the records that outgrew their blocks, or takes that back.
func (r *run) moves() error {
	err := r.each(func(x *tx, e *entry) bool { return x.state != atRest && e.Kind == log.Move },
		func(r *run, x *tx, e *entry) error {
			to, from := e.lines[:], e.old[:]
			if x.Kind == log.Undo {
				to, from = from, to
			}
			if x.state == toUndo {
				return r.moveBack(x, e, to)
			}
			return r.move(x, e, to, from)
		})
	if err != nil {
		return err
	}
	for _, x := range r.txs {
		for i := range x.entries {
			if x.entries[i].freed {
				r.blocks++
			}
		}
	}
	return nil
}

// move finishes a move, from wherever it has got to: see occ's moveRecords.
func (r *run) move(x *tx, e *entry, to, from [][]byte) error {
	a, old := x.goes(e), x.leaves(e)
	switch {
	case e.held && e.stranded:
		// Nobody frees the old block before the slot leads to the new one on all copies of the
		// index.
		if e.switched = x.freeing(from); !e.switched {
			return r.strandMove(x, e)
		}
	case e.held && e.switched:
		if err := r.resync(e, old, a); err != nil {
			return err
		}
	case e.held:
		if err := r.switchSlot(x, e, to); err != nil {
			return err
		}
	}
	if err := r.vacate(x, e, from); err != nil {
		return err
	}
	if x.Kind == log.Redo && e.held && !e.switched {
		g := r.v.At(a, 0)
		g.Off += record.GuardOff
		r.batch.CAS(g, uint64(record.HeldBy(x.Tx)), uint64(record.FreeAt(x.Tx)))
	} else {
		r.unlock(x, a, to, 0) // and copies whose image the dead had not unlocked yet
	}
	return r.do()
}

// switchSlot has the slot lead to the new block, when that has the image. Nobody but the dead
// knows it until then.
func (r *run) switchSlot(x *tx, e *entry, to [][]byte) error {
	class := e.class
	if x.Kind == log.Undo {
		class = classOf(to[0])
	}
	if x.Kind == log.Redo {
		if err := r.place(x, e); err != nil {
			return err
		}
	}
	return r.replace(e, x.leaves(e), x.goes(e), class)
}

// place writes the image to all copies of the new block, of which only the primary carries the
// lock.
func (r *run) place(x *tx, e *entry) error {
	w, a := uint32(0), x.goes(e)
	for k := range r.v.Written(a) {
		e.Image.SetGuard(record.FreeAt(x.Tx))
		if k == 0 {
			e.Image.SetGuard(record.HeldBy(x.Tx))
		}
		if err := r.write(&w, r.v.At(a, k), e.Image); err != nil {
			return err
		}
		// Who is building a copy must see the lock before that copy is written.
		if k > 0 || r.v.Written(a) == r.v.Copies(a) {
			continue
		}
		if err := r.flush(&w); err != nil {
			return err
		}
		if err := r.fence(); err != nil {
			return err
		}
	}
	if err := r.flush(&w); err != nil {
		return err
	}
	return r.fence()
}

// vacate frees the old block, if that is left to do. A move that was complete is met again when
// another entry of its transaction is to be finished: the old block may be somebody else's by then.
func (r *run) vacate(x *tx, e *entry, from [][]byte) error {
	old := x.leaves(e)
	if !e.held && (!freedBy(from[0], x.Tx) || !x.left(e, from[1:])) {
		return nil
	}
	e.freed = slices.ContainsFunc(from[:r.v.Copies(old)], func(p []byte) bool { return p == nil || !freedBy(p, x.Tx) })
	if err := r.freeBlock(old, e.table, x.Tx, from, x.Tx); err != nil {
		return err
	}
	return r.fence() // before anybody has the new block
}

// freeing reports whether the transaction has begun to free a block: a copy says that it is free
// since then, or the first words of one do.
func (x *tx) freeing(copies [][]byte) bool {
	return slices.ContainsFunc(copies, func(p []byte) bool {
		return p != nil && record.Image(p).Version() == x.Tx && record.Image(p).Meta().State() == record.Free
	})
}

// moveBack frees the new block of a record that does not move, and unlocks the old one.
func (r *run) moveBack(x *tx, e *entry, to [][]byte) error {
	a, old := x.goes(e), x.leaves(e)
	if guardOf(to[0]) == record.HeldBy(x.Tx) || written(to, x.Tx) {
		if err := r.freeBlock(a, e.table, lastVersion(x.Tx.Coordinator()), to, x.Tx); err != nil {
			return err
		}
		e.freed = true
	}
	if e.held {
		g := r.v.At(old, 0)
		g.Off += record.GuardOff
		r.batch.CAS(g, uint64(record.HeldBy(x.Tx)), uint64(record.FreeAt(e.Image.Version())))
	}
	return r.do()
}

// written reports whether a copy has an image of the transaction's.
func written(lines [][]byte, t record.TxID) bool {
	return slices.ContainsFunc(lines, func(p []byte) bool { return p != nil && record.Image(p).Version() == t })
}

func classOf(line []byte) layout.Class {
	return record.Meta(binary.LittleEndian.Uint64(line[record.MetaOff:])).Class()
}

// freeBlock makes a block free on all copies, or on those that are not yet, of those whose lines
// are given. holder has it locked on the primary until that is free, so that whoever goes on with
// it knows; 0: it is free there already.
func (r *run) freeBlock(a layout.Addr, table uint16, v record.TxID, lines [][]byte, holder record.TxID) error {
	class, _ := r.o.Space.ClassAt(a) // a log entry has been checked
	var p [record.LineSize]byte
	img := record.Image(p[:])
	img.PutFree(a, v, table, class, r.o.Space.CountFree(a))
	w := uint32(0)
	for k := range r.v.Written(a) {
		if k < len(lines) && lines[k] != nil && freedBy(lines[k], v) {
			continue
		}
		at := r.v.At(a, k)
		if k > 0 || r.t.Caps().OrderedLine || holder == 0 {
			if err := r.write(&w, at, img); err != nil {
				return err
			}
			continue
		}
		// The guard comes last, and first if the lock is not there.
		guard := at
		guard.Off += record.GuardOff
		free := img.Guard()
		if img.SetGuard(record.HeldBy(holder)); lines[0] == nil || guardOf(lines[0]) != record.HeldBy(holder) {
			if err := r.write(&w, guard, img[record.GuardOff:]); err != nil {
				return err
			}
		}
		if err := r.write(&w, at, img[:record.GuardOff]); err != nil {
			return err
		}
		img.SetGuard(free)
		if err := r.write(&w, guard, img[record.GuardOff:]); err != nil {
			return err
		}
	}
	return r.flush(&w)
}

// replace switches the slot of a record that moves.
func (r *run) replace(e *entry, old, a layout.Addr, class layout.Class) error {
	q, err := r.lookup(e.table, e.Image)
	if err != nil {
		return err
	}
	switch {
	case leadsTo(q, old):
	case leadsTo(q, a): // an attempt has got so far, and no further
		return r.resync(e, old, a)
	default:
		return fmt.Errorf("%w: no slot of table %d leads to a record, in block %v or %v, that was about to move",
			ErrCorrupt, e.table, old, a)
	}
	s, ok := r.tables[e.table].(index.Slots)
	if !ok {
		return fmt.Errorf("%w: by a log record a record of table %d moves from block %v to block %v, and that table "+
			"has no slots", ErrCorrupt, e.table, old, a)
	}
	err = s.Replace(r.c, q, old, a, class)
	if err != nil {
		err = fmt.Errorf("recovery: switching the slot of a record of table %d: %w", e.table, err)
	}
	return err
}

// unblock brings an index into order in which a change of the dead is in the way.
func (r *run) unblock(table uint16) error {
	m, ok := r.tables[table].(resyncer)
	if !ok {
		return nil
	}
	return r.o.alone(r.c, table, m, func() error {
		return m.Recover(r.c, func(owner uint64) bool {
			return r.o.deadOwner(owner) || slices.ContainsFunc(r.claim.Coordinators, func(c memory.Coordinator) bool {
				return uint64(c.ID) == owner
			})
		})
	})
}

// resync completes the switch of a slot on the backups.
func (r *run) resync(e *entry, was, a layout.Addr) error {
	q, err := r.lookup(e.table, e.Image)
	if err != nil {
		return err
	}
	if m, ok := r.tables[e.table].(resyncer); ok {
		if _, err := m.Resync(r.c, q, was, a); err != nil {
			return fmt.Errorf("recovery: the slot of a record of table %d: %w", e.table, err)
		}
	}
	return nil
}
