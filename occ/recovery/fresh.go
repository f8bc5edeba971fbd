package recovery

import (
	"bytes"
	"slices"

	"txnode/log"
	"txnode/memory/record"
)

// A New of a redo log goes to a block that was free, and that its transaction had from its
// allocator: without a lock, and without a placeholder. The commit writes the image to the backups,
// behind the log record, then to the primary, the first line last. Only then it releases the
// Updates of the same record, one of which leads to the block. While a copy is being built, the
// primary is locked before the backups are written.
//
// So the first line of the primary tells how far the commit came:
//
//	free, freed no later than the log was written    not installed: redo; unless it was overtaken:
//	                                                 then the primary is damaged
//	locked by the transaction                        not released: redo
//	the image, free at the transaction's version     installed; after the loss of a blade all
//	                                                 copies
//	                                                 are written again, since some may lack it
//	the transaction's version, and another rest      torn while it was written: redo
//	anything else                                    at rest: the block has been used since
//
// Of what is neither free nor locked, none counts when an Update of the record has been released,
// and no blade was lost since: the image was in place before.
//
// Where the words of a line arrive in any order, a torn line may have any version: see mixture.

// uninstalled reports whether the image of a New is still to be written.
func (r *run) uninstalled(x *tx, e *entry) bool {
	line := record.Image(e.lines[0])
	g := line.Guard()
	switch {
	case g == record.HeldBy(x.Tx):
		return true
	case e.isFree(line):
		return r.freed(e, line) <= e.Freed && !r.overtaken(x, e)
	}
	if !r.claim.Promoted && x.published() {
		// a live client may be writing to the block now, or another recovery: its lines
		// may be read in halves
		return false
	}
	switch {
	case e.has(line):
		switch e.installed = g == record.FreeAt(x.Tx); {
		case e.installed:
			return r.claim.Promoted && !r.successors[image{e.Addr, x.Tx}] && (len(e.Image) > record.LineSize ||
				r.v.Written(e.Addr) > 1)
		case g.Held():
			// Another transaction has locked what is in place, which may be as early as that: by an
			// address from before the block was freed. Or the guard has not arrived, and the lock
			// is that of the free block: then it comes back at the version before, which is a
			// damaged guard of a whole image, and repaired.
			return false
		}
		return true
	case line.Version() == x.Tx:
		return true
	case r.t.Caps().OrderedLine:
		return false // the version arrives first
	}
	return r.mixture(x, e)
}

// overtaken reports whether the block of a New, whose primary looks as it was before, has been used
// since: then the primary is damaged, perhaps zero. A backup has a later image, or was freed later,
// or a later log record names the block.
func (r *run) overtaken(x *tx, e *entry) bool {
	return r.named(x, e) || slices.ContainsFunc(e.lines[1:r.v.Copies(e.Addr)], func(p []byte) bool {
		img := record.Image(p)
		if need, damage := img.Check(e.Addr); damage != nil && need <= record.LineSize {
			return false
		}
		if img.Meta().State() == record.Free {
			return r.freed(e, img) > e.Freed
		}
		return img.Version() != x.Tx && !isReserved(img)
	})
}

// named reports whether a later log record names the block of a New.
func (r *run) named(x *tx, e *entry) bool {
	return slices.ContainsFunc(r.txs, func(y *tx) bool {
		return y != x && slices.ContainsFunc(y.entries, func(o entry) bool {
			return o.Addr == e.Addr && (o.Freed > e.Freed || o.Prev == x.Tx)
		})
	})
}

// has reports whether a line is the first one of the entry's image, whatever its guard.
func (e *entry) has(line []byte) bool {
	return bytes.Equal(line[:record.GuardOff], e.Image[:record.GuardOff])
}

// isFree reports whether a line is that of a free block. A session that still has the address from
// before it was freed may have locked it.
func (e *entry) isFree(line record.Image) bool {
	_, damage := line.Check(e.Addr)
	return damage == nil && line.Meta().State() == record.Free
}

// published reports whether the transaction has released an Update, so that its new blocks
// were in place before.
func (x *tx) published() bool {
	return slices.ContainsFunc(x.entries, func(e entry) bool {
		return !e.lost && e.Kind == log.Update && guardOf(e.lines[0]) != record.HeldBy(x.Tx)
	})
}

// mixture reports whether the primary of a New has words of its image and of the free block before.
// The fabric does not order the words of a line. Backups tell it: the next image of the block would
// have come to them first. Without any, a block that is whole has been used since, and so has one
// that a later log record names.
func (r *run) mixture(x *tx, e *entry) bool {
	if backups := e.lines[1:r.v.Copies(e.Addr)]; len(backups) > 0 {
		before := func(p []byte) bool { return e.isFree(p) && r.freed(e, p) <= e.Freed }
		return slices.ContainsFunc(backups, e.has) || !slices.ContainsFunc(backups, func(p []byte) bool {
			return !before(p)
		})
	}
	if _, damage := record.Image(e.block).Check(e.Addr); damage == nil {
		return false
	}
	return !r.named(x, e)
}

// fills reports whether new blocks are still to be written.
func (r *run) fills() bool {
	return slices.ContainsFunc(r.txs, func(x *tx) bool {
		return x.state == toFinish && slices.ContainsFunc(x.entries, func(e entry) bool { return e.fills() })
	})
}

// fills reports whether it is a New that is still to be written.
func (e *entry) fills() bool { return e.Kind == log.New && e.held && !e.lost }

// reserve locks the primaries of new blocks of which a copy is being built. The builder must see
// the lock before that copy is written.
func (r *run) reserve() error {
	return r.eachNew(func(w *uint32, x *tx, e *entry) error {
		if r.v.Written(e.Addr) == r.v.Copies(e.Addr) {
			return nil
		}
		e.Image.SetGuard(record.HeldBy(x.Tx))
		return r.write(w, r.v.At(e.Addr, 0), e.Image)
	})
}

// fresh writes the images of new blocks to the primaries, when all backups have them.
func (r *run) fresh() error {
	return r.eachNew(func(w *uint32, x *tx, e *entry) error { return r.install(w, r.v.At(e.Addr, 0), e.free(), x.Tx) })
}

// eachNew calls fn for the new blocks that are still to be written, and posts what fn has appended.
func (r *run) eachNew(fn func(w *uint32, x *tx, e *entry) error) error {
	w := uint32(0)
	for _, x := range r.txs {
		for i := range x.entries {
			e := &x.entries[i]
			if x.state != toFinish || !e.fills() {
				continue
			}
			if err := fn(&w, x, e); err != nil {
				return err
			}
		}
	}
	return r.flush(&w)
}

// frees reports whether it is an Update that frees its block.
func (e *entry) frees() bool { return e.Kind == log.Update && e.Image.Meta().State() == record.Free }

// unfreed reports, after the loss of a blade, whether a copy of a block that the transaction frees
// has the image before, or not all of the new one. An allocator gets the block when all copies are
// free. So another image says that they were.
func (x *tx) unfreed(e *entry) bool {
	return slices.ContainsFunc(e.lines[:], func(p []byte) bool {
		if p == nil {
			return false
		}
		v := record.Image(p).Version()
		return v == e.Prev || v == x.Tx && (!e.has(p) || guardOf(p) != record.FreeAt(x.Tx))
	})
}
