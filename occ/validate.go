package occ

import (
	"errors"

	"txnode/memory"
	"txnode/memory/record"
)

// certify makes sure that what has been read by now existed at one moment, after
// the items from number first on were fetched. Often that needs no validation, or
// not of everything:
//
//   - what is locked stays as it was read;
//   - a single unlocked record, alone, needs nothing;
//   - when a single unlocked record is all that was fetched now, the moment is that
//     of its READ: the older ones were read before, and are validated after it;
//   - otherwise the moment is after all READs, and everything unlocked is validated.
func (tx *Tx) certify(first int) error {
	// What was counted before is not looked at again: who fetches keys one by one would
	// otherwise pay for the square of their number.
	fresh, locked := 0, 0
	for i := int(tx.judged); i < len(tx.items); i++ {
		it := &tx.items[i]
		switch {
		case it.locked:
			if i >= first {
				locked++
			}
			continue
		case i < first:
			tx.loose++
		default:
			fresh++
		}
		tx.copied = tx.copied || it.backup
	}
	old, fromBackup := int(tx.loose), tx.copied
	tx.judged, tx.loose = int32(len(tx.items)), int32(old+fresh)
	if tx.scans != nil {
		old++ // what they have read
	}
	atEnd := tx.atEnd || tx.s.eng.opts.Policy == PolicyFORD
	if atEnd || fromBackup {
		tx.valid = old+fresh == 0 || tx.lone() && !fromBackup && tx.scans == nil
		if tx.valid || atEnd {
			return nil
		}
		return tx.validate(len(tx.items))
	}
	if fresh == 1 && locked == 0 && (tx.lone() || !tx.leans()) {
		if old == 0 {
			tx.valid = true
			return nil
		}
		return tx.validate(first)
	}
	tx.valid = old+fresh == 0
	if tx.valid {
		return nil
	}
	return tx.validate(len(tx.items))
}

// lone reports whether all that the transaction has read is one item, by a single READ. That a key is
// absent because blocks of its hash have other keys was not seen by one.
func (tx *Tx) lone() bool {
	return len(tx.items) == 1 && (tx.items[0].passed == 0 || !tx.leans())
}

// ValidateAtEnd leaves it to Commit, and to Certify, to make sure that what the transaction
// reads from now on existed at one moment, as policy ford does. Until then the caller may
// see what never was.
func (tx *Tx) ValidateAtEnd() { tx.atEnd = true }

// Certify makes sure that everything the transaction has read existed at one
// moment: a caller that is about to act on it without committing asks. It posts
// nothing when that is known already.
func (tx *Tx) Certify() error {
	if !tx.active {
		return nil
	}
	if err := tx.validateReads(); err != nil {
		return err
	}
	return tx.fresh()
}

// fresh makes sure that no other process has gone on meanwhile from a later epoch than that by
// which the transaction has read: a blade that was declared dead may still answer. See
// memory.Space.Fresh.
func (tx *Tx) fresh() error {
	space := tx.s.eng.space
	if space.Fresh(tx.view, tx.s.thread) {
		return nil
	}
	// the catalog says whether the epoch was still this one
	if space.View().Epoch == tx.view.Epoch && !space.ReadOnly() {
		end := tx.s.eng.leaseEnd(tx.s.thread.Now())
		err := tx.c.Await(func() error { return space.Renew(end) }, nil)
		// another process is alone: this one was taken for dead, and has to rejoin
		if err != nil && !errors.Is(err, memory.ErrShared) {
			return tx.s.failed(err)
		}
		if err == nil && space.Fresh(tx.view, tx.s.thread) {
			return nil
		}
	}
	if err := tx.c.Await(func() error { space.Current(); return nil }, nil); err != nil {
		return err
	}
	tx.aborts[AbortStale]++
	return conflictErrors[AbortStale]
}

func (tx *Tx) validateReads() error {
	if tx.valid {
		return nil
	}
	return tx.validate(tx.fetched)
}

// validate repeats every read that is not protected by a lock: one READ of the
// guard for a record, the index buckets for an absent key. All of them were read
// before and all of them are found unchanged after, so they held together at the
// moment between; and so did everything that is locked. What scans have read comes
// last.
//
// Only the items with a number less than n are validated: see certify.
func (tx *Tx) validate(n int) error {
	for round := 0; ; round++ {
		b := &tx.batch
		tx.c.Count = &tx.phases[PhaseValidate]
		tx.unbuild()
		b.Reset()
		if err := tx.appendValidation(n); err != nil {
			return err
		}
		for s := tx.scans; s != nil; s = s.next {
			if err := s.cover(); err != nil {
				return err
			}
		}
		err := tx.guardsJoined()
		if err == nil {
			err = tx.checkValidation(n)
		}
		if err == nil && tx.scans != nil {
			err = tx.validateScans()
		}
		if !errors.Is(err, errOwnBlocks) {
			return err
		}
		if round == maxOwnRounds {
			return tx.conflict(AbortPhantom, tx.firstChanged(n))
		}
		if err := tx.lookAgain(n); err != nil {
			return err
		}
		n = tx.fetched // what was staged since has not been looked up
	}
}

// errOwnBlocks is what checkValidation returns when all that has changed is buckets of
// absent keys, perhaps because the transaction itself has linked blocks there: the same
// keys would meet in the same buckets in every further attempt.
var errOwnBlocks = errors.New("txn: buckets have changed")

// maxOwnRounds bounds how often such keys are looked up again.
const maxOwnRounds = 4

// firstChanged is the first of n items whose buckets have changed; without one, it is a scan whose
// have.
func (tx *Tx) firstChanged(n int) *item {
	for i := range tx.items[:n] {
		if tx.items[i].changed {
			return &tx.items[i]
		}
	}
	return &item{table: tx.scans.table} // what a scan has read has
}

// lookAgain looks up the absent ones of the first n items whose buckets have changed,
// with the transaction's own blocks in them, or without. They have been read anew then, and
// everything is to be validated after that.
func (tx *Tx) lookAgain(n int) error {
	c, b := tx.c, &tx.batch
	c.Count = &tx.phases[PhaseExecute]
	for i := range tx.items[:n] {
		it := &tx.items[i]
		if !it.changed {
			continue
		}
		it.changed, it.step, it.tries = false, stepSearch, 0
		for it.step != stepDone {
			b.Reset()
			if err := tx.append(it); err != nil {
				return err
			}
			if err := c.Do(b); err != nil {
				return tx.s.stopped(err)
			}
			if err := tx.advance(it); err != nil {
				return err
			}
		}
		if it.addr != 0 {
			return tx.conflict(AbortPhantom, it)
		}
	}
	return nil
}

func (tx *Tx) appendValidation(n int) error {
	b := &tx.batch
	for i := range tx.items[:n] {
		it := &tx.items[i]
		if it.locked {
			continue
		}
		if it.addr == 0 && it.table.Ordered != nil {
			continue // its node is
		}
		if it.addr == 0 {
			if it.vbuf == 0 {
				at, err := tx.alloc(uint32(it.table.Index.BufferSize()) + 64)
				if err != nil {
					return err
				}
				it.vbuf = (at + 63) &^ 63
			}
			it.table.Index.Validate(b, it.query, it.vbuf)
			continue
		}
		g := tx.view.At(it.addr, 0)
		g.Off += record.GuardOff
		b.Read(g, it.buf+record.GuardOff, 8) // nobody needs any more what was read there
	}
	tx.appendNodeGuards()
	return nil
}

// checkValidation compares what appendValidation has read: nil, a conflict, or
// errOwnBlocks.
func (tx *Tx) checkValidation(n int) error {
	var own error
	for i := range tx.items[:n] {
		it := &tx.items[i]
		if it.locked {
			continue
		}
		if it.addr == 0 && it.table.Ordered != nil {
			continue
		}
		if it.addr == 0 {
			if !it.table.Index.Unchanged(it.query, it.vbuf) {
				if !tx.linked {
					return tx.conflict(AbortPhantom, it)
				}
				it.changed, own = true, errOwnBlocks
			}
			continue
		}
		if g := record.Guard(tx.s.thread.Word(it.buf + record.GuardOff)); g != record.FreeAt(it.version) {
			if g.Held() {
				return tx.meet(AbortReadLocked, it, g)
			}
			return tx.conflict(AbortValidation, it)
		}
	}
	if err := tx.checkNodeGuards(); err != nil {
		return err
	}
	tx.valid = own == nil
	return own
}
