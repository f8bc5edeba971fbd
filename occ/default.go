package occ

import (
	"txnode/history"
	"txnode/log"
	"txnode/memory/record"
	"txnode/rdma"
)

// commitDefault is the commit phase of PolicyDefault: every lock is held and
// everything that was read is valid, so the transaction commits; the log record
// says how. Tx.commitStraight does the same for images of one line.
func (tx *Tx) commitDefault() error {
	c, b := tx.c, &tx.batch
	c.Count = &tx.phases[PhaseCommit]
	if err := tx.seal(); err != nil {
		tx.unseal()
		return tx.abandon(err)
	}
	v := tx.view // after seal, which may have gone over to a newer one
	err := tx.refrain()
	off := uint32(0)
	if err == nil {
		off, err = tx.reserveLog(tx.log.Len())
	}
	if err == nil && tx.refrain() != nil { // another coroutine has found out
		err = tx.s.fail(tx.refrain())
	}
	if err != nil {
		tx.unseal()
		return tx.abandon(err)
	}
	durable := tx.s.eng.opts.Flush == FlushDurable
	f := &tx.flights[tx.flight]
	if durable {
		f.generation = tx.s.enter()
	}
	n := tx.log.Finish(tx.logBytes(), log.Redo, tx.id, f.generation, tx.s.ahead(tx.id))
	b.Reset()
	logs := tx.logBlades(v, tx.logCopies(v))
	for rest := logs; rest != 0; {
		a := tx.s.ring.at(v, rest.take(), off)
		b.Write(a, tx.logAt, uint32(n))
		if durable && !tx.s.caps.Synchronous {
			b.Flush(a, uint32(n)) // no round trip of its own
		}
	}
	if tx.logsFirst() {
		if err := tx.postLogs(b, logs, off, n, durable); err != nil {
			f.bg.Forget()
			return tx.undecided(err)
		}
	}
	tx.appendBackups(b)
	if !tx.s.caps.Placed {
		tx.flushBackups(b)
	}
	if err := c.Do(b); err != nil {
		f.bg.Forget()
		return tx.undecided(err)
	}
	if durable && tx.s.caps.Synchronous {
		if err := tx.s.flushLogs(c, logs, off, n); err != nil {
			return tx.undecided(err)
		}
	}
	tx.conclude(history.Committed)
	c.Count = &tx.phases[PhaseRelease]
	if err := tx.installPrimaries(); err != nil || !durable && !tx.vacates {
		return err
	}
	if tx.vacates {
		if err := tx.freeVacated(); err != nil || !durable {
			if err != nil {
				_ = tx.s.fail(err)
			}
			return nil
		}
	}
	// A checkpoint waits for the images, so nobody may forget that they are in place.
	err = c.Wait(&f.bg)
	if err == nil && !tx.s.caps.Placed {
		err = c.Fence(rdma.FenceThread, 0, &f.bg)
	}
	if err != nil {
		_ = tx.s.fail(err)
	}
	return nil
}

// postLogs makes the WRITEs of a log record take effect before anything else is posted, in a
// round trip of its own.
func (tx *Tx) postLogs(b *rdma.Batch, logs bladeSet, off uint32, n int, durable bool) error {
	err := tx.c.Do(b)
	if err == nil && !tx.s.caps.Placed {
		err = tx.c.Fence(rdma.FenceThread, 0, b)
	}
	if err == nil && durable && tx.s.caps.Synchronous {
		err = tx.s.flushLogs(tx.c, logs, off, n)
	}
	b.Reset()
	return err
}

// flushBackups appends what makes the images on the backups placed when it has completed.
func (tx *Tx) flushBackups(b *rdma.Batch) {
	for backups := tx.behind; backups != 0; {
		b.Flush(tx.lastImageOn(backups.take()), 8)
	}
}

// lastImageOn is where the last image goes that is written to a blade as a backup.
func (tx *Tx) lastImageOn(b rdma.BladeID) (to rdma.RemoteAddr) {
	for i := range tx.items {
		if it := &tx.items[i]; it.write != writeNone && it.from == 0 {
			for k := 1; k < tx.backups(it); k++ {
				if a := tx.view.At(it.addr, k); a.Blade == b {
					to = a
				}
			}
		}
	}
	return to
}

// appendBackups appends the WRITEs of the new images to the backups.
func (tx *Tx) appendBackups(b *rdma.Batch) {
	v := tx.view
	for i := range tx.items {
		it := &tx.items[i]
		if it.write == writeNone || it.from != 0 {
			continue
		}
		for k, n := 1, tx.backups(it); k < n; k++ {
			b.Write(v.At(it.addr, k), tx.logAt+uint32(it.w), it.wlen)
		}
	}
}

// installPrimaries writes the primary images, each of which releases its lock,
// without waiting; and moves the records that outgrew their blocks.
func (tx *Tx) installPrimaries() error {
	bg := &tx.flights[tx.flight].bg
	if tx.edits {
		if err := tx.publishPrivate(); err != nil {
			_ = tx.s.fail(err)
			return nil
		}
	}
	tx.releaseNodes(bg)
	for i := range tx.items {
		it := &tx.items[i]
		switch {
		case it.unlinked() && it.write != writeNone: // it is in place
		case it.write == writeNone:
			if it.locked {
				tx.appendRelease(it)
			}
		case it.from != 0: // below
		case it.wlen == record.LineSize && tx.s.caps.OrderedLine:
			bg.Write(tx.view.At(it.addr, 0), tx.logAt+uint32(it.w), record.LineSize)
		default:
			tx.appendInstall(it, tx.view.At(it.addr, 0))
		}
	}
	if bg.Len() > 0 {
		tx.c.Post(bg)
	}
	if tx.moves {
		if err := tx.moveRecords(true); err != nil {
			// The log has committed the transaction: what could not be finished here
			// is finished by recovery, and the session takes no more.
			_ = tx.s.fail(err)
		}
	}
	return nil
}

// appendInstall appends the WRITEs that publish an image at one replica and,
// last of all, set its guard free.
func (tx *Tx) appendInstall(it *item, a rdma.RemoteAddr) {
	bg := &tx.flights[tx.flight].bg
	at, n := tx.logAt+uint32(it.w), it.wlen
	switch {
	case !tx.s.caps.OrderedLine:
		// The image keeps the lock, and the guard follows in a WRITE of its own.
		img := record.Image(tx.bytes(at, n))
		img.SetGuard(record.HeldBy(tx.id))
		bg.Write(a, at, n)
		free := it.buf // the image as read is no longer needed
		tx.s.thread.PutWord(free, uint64(record.FreeAt(tx.id)))
		a.Off += record.GuardOff
		bg.Write(a, free, 8)
	default:
		if n > record.LineSize {
			body := a
			body.Off += record.LineSize
			bg.Write(body, at+record.LineSize, n-record.LineSize)
		}
		bg.Write(a, at, record.LineSize)
	}
}
