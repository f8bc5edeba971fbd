package occ

import (
	"txnode/history"
	"txnode/memory/record"
)

// Commit makes the transaction's writes take effect at once, or not at all. It
// returns nil when they have and will survive f failures, a *ConflictError when
// they have not (the transaction is rolled back), or ErrOutcomeUnknown. The
// transaction has ended in every case.
func (tx *Tx) Commit() error {
	if !tx.active {
		return ErrDone
	}
	err := tx.commit()
	if err == nil && tx.edits {
		tx.publishedNodes()
	}
	tx.settle()
	if err != nil && tx.keeps != 0 {
		return tx.unkept(err)
	}
	return err
}

// settle ends the use of the current flight: from now on others may give back its
// log space when its background requests have completed. On a synchronous fabric they
// have already, and there is nothing left for land to do.
//
// A release that has failed breaks the session: what it was to unlock stays locked
// until the session has rejoined.
func (tx *Tx) settle() {
	tx.busy = false
	f := &tx.flights[tx.flight]
	if !f.bg.OK() {
		if f.bg.Done() {
			_ = tx.s.fail(f.bg.Err())
		}
		return
	}
	f.bg.Reset()
	if f.held {
		tx.s.release(f)
	}
	if tx.edits && tx.concluded && tx.s.caps.Placed && tx.installed(f) == nil {
		tx.rememberPrivate()
	}
}

func (tx *Tx) commit() error {
	if tx.fetched < len(tx.items) || tx.late || tx.deletes {
		if err := tx.prepare(); err != nil {
			return tx.abandon(err)
		}
	} else if err := tx.keep(); err != nil {
		return tx.abandon(err)
	}
	if tx.edits {
		// What is planned now is locked, so that it stays true until it is written.
		if err := tx.validateReads(); err != nil {
			return tx.abandon(err)
		}
		if err := tx.edit(); err != nil {
			return tx.abandon(err)
		}
	}
	if tx.writes == 0 {
		if err := tx.Certify(); err != nil {
			return tx.abandon(err)
		}
		tx.releaseLocks() // of what was staged for update and not written
		tx.conclude(history.Committed)
		return nil
	}
	if n := tx.s.eng.taps.Load(); n != tx.taps || n&1 != 0 {
		tx.s.eng.number(tx)
	}
	var err error
	if tx.s.eng.opts.Policy == PolicyFORD && tx.undoable() {
		err = tx.commitFORD()
	} else {
		if err = tx.validateReads(); err != nil {
			return tx.abandon(err)
		}
		if tx.s.straight && !tx.odd && len(tx.nodes) == 0 && !tx.s.ring.lacks(tx.view) {
			return tx.commitStraight()
		}
		err = tx.commitDefault()
	}
	return err
}

// prepare fetches what is still staged and locks what is written and not locked.
func (tx *Tx) prepare() error {
	if tx.fetched < len(tx.items) {
		if err := tx.Execute(); err != nil {
			return err
		}
	}
	if tx.writes == 0 || !tx.late && !tx.deletes {
		return tx.keep() // everything written is locked
	}
	if tx.outgrown {
		if err := tx.reinsertOutgrown(); err != nil {
			return err
		}
	}
	c := tx.c
	c.Count = &tx.phases[PhaseExecute]
	b := &tx.batch
	b.Reset()
	locks, inserts, plants := 0, 0, 0
	for i := range tx.items {
		it := &tx.items[i]
		it.cas = -1
		if it.write == writeDelete && it.state != record.Live && !it.inserted {
			tx.dropWrite(it) // nothing is there to delete
		}
		if it.plants() {
			plants++
		}
		if it.write == writeNone || it.locked || it.addr == 0 && it.table.Ordered != nil {
			continue
		}
		if it.addr == 0 {
			inserts++
			continue
		}
		it.step = stepLock
		if err := tx.append(it); err != nil {
			return err
		}
		locks++
	}
	if locks > 0 {
		if err := c.Do(b); err != nil {
			return tx.s.stopped(err)
		}
		var failed error
		for i := range tx.items {
			if it := &tx.items[i]; it.cas >= 0 {
				if err := tx.advance(it); err != nil {
					failed = err
				}
			}
		}
		if failed != nil {
			return failed
		}
	}
	if inserts > 0 {
		if err := tx.placeholders(0); err != nil {
			return err
		}
	}
	if err := tx.keep(); err != nil { // before a record has another block
		return err
	}
	if plants > 0 {
		if err := tx.plant(); err != nil {
			return err
		}
	}
	if locks+inserts+plants > 0 {
		tx.valid = tx.scans == nil && !tx.leans() // of what is locked
		for i := range tx.items {
			if !tx.items[i].locked {
				tx.valid = false
			}
		}
	}
	return nil
}

func (tx *Tx) dropWrite(it *item) {
	tx.odd = true
	tx.log.Kill(tx.logBytes(), int(it.w))
	it.write, it.w, it.has = writeNone, -1, false
	if it.unread {
		it.val, it.vlen, it.has = it.buf, 0, true
	} else if it.state == record.Live {
		it.sees(tx.image(it).Meta())
	}
	tx.writes--
}
