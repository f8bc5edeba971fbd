package occ

import (
	"errors"
	"fmt"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// Rollback ends the transaction without effect and releases its locks.
func (tx *Tx) Rollback() error {
	if !tx.active {
		return nil
	}
	if tx.s.eng.opts.LikeFORD {
		tx.logRolledBack()
	}
	err := tx.rollback()
	tx.settle()
	return err
}

func (tx *Tx) rollback() error {
	err := tx.s.broken
	if err == nil {
		err = tx.removePlaceholders()
		tx.releaseLocks()
	}
	if tx.tap != nil {
		tx.untap()
	}
	if tx.hist != nil {
		tx.reportFailed()
	}
	tx.finish()
	return err
}

// abandon rolls back because of err, and returns it. Where that is damage it is the cause of the
// rest, and not to be taken for a session that is broken, and tries again when it has rejoined.
func (tx *Tx) abandon(err error) error {
	if e := tx.rollback(); e != nil && errors.Is(err, layout.ErrCorrupt) {
		return fmt.Errorf("%w (and rolling back: %s)", err, e.Error())
	} else if e != nil {
		return fmt.Errorf("%w (and rolling back: %w)", err, e)
	}
	return err
}

// forgo is abandon of a transaction that its caller ends neither by Commit nor by Rollback: it is
// at rest then, so that a session that is broken can rejoin.
func (tx *Tx) forgo(err error) error {
	err = tx.abandon(err)
	tx.settle()
	return err
}

// releaseLocks releases every lock that the transaction holds, without waiting.
func (tx *Tx) releaseLocks() {
	tx.c.Count = &tx.phases[PhaseRelease]
	if tx.edits {
		tx.freePrivate()
		tx.keepVacated()
	}
	for i := range tx.items {
		if it := &tx.items[i]; it.locked && !it.inserted {
			tx.appendRelease(it)
		}
	}
	tx.releaseNodes(&tx.flights[tx.flight].bg)
	if bg := &tx.flights[tx.flight].bg; bg.Len() > 0 {
		tx.c.Post(bg)
	}
}

// appendRelease appends the WRITE, or the compare-and-swap, that gives a lock back at
// the version found.
func (tx *Tx) appendRelease(it *item) {
	g := tx.view.At(it.addr, 0)
	g.Off += record.GuardOff
	at := it.buf + record.GuardOff
	it.locked = false
	if it.step != stepDone {
		// It was not seen whose block it is: the lock may be lost to the image of another one.
		tx.flights[tx.flight].bg.CAS(g, uint64(record.HeldBy(tx.id)), uint64(it.prior))
		return
	}
	tx.s.thread.PutWord(at, uint64(it.prior))
	tx.flights[tx.flight].bg.Write(g, at, 8)
}
