package occ

import (
	"errors"
	"slices"

	"txnode/history"
	"txnode/log"
	"txnode/memory/record"
	"txnode/rdma"
)

// undoable reports whether the transaction is one that policy ford commits with an undo log. One
// that writes to ordered tables is not, whose new blocks and nodes are redone.
func (tx *Tx) undoable() bool {
	if tx.blind || tx.edits {
		return false
	}
	for i := range tx.items {
		if it := &tx.items[i]; it.write != writeNone && it.table.Ordered != nil {
			return false
		}
	}
	return true
}

// commitFORD posts FORD's verbs (FAST'22; SMART-DTX's setting): the undo log to
// every blade beside validation; then, for each written record and replica, the
// lock word and the image, and a READ of one byte from each backup of the last
// record; then, not awaited, the release of every replica. Other than FORD's, backups
// are released in the doorbell of the images, ahead of that READ: were they not
// awaited, such a WRITE could arrive after the images of the next writer, who needs
// the primary's lock alone, and spoil the backup for good. Locks of records that
// were not in reach of the address cache are taken before the log, where FORD
// takes them beside it: the price of not logging what is not locked.
func (tx *Tx) commitFORD() error {
	c, b := tx.c, &tx.batch
	if err := tx.seal(); err != nil {
		tx.unseal()
		return tx.abandon(err)
	}
	v := tx.view // after seal, which may have gone over to a newer one

	if err := tx.refrain(); err != nil {
		tx.unseal()
		return tx.abandon(err)
	}
	// Log and validation, one round trip.
	at, undo, err := tx.undoRecord()
	if err != nil {
		tx.unseal()
		return tx.abandon(err)
	}
	off, err := tx.reserveLog(undo.Len())
	if err != nil {
		tx.unseal()
		return tx.abandon(err)
	}
	// Not before: while it waited for space neighbours may have begun, and been acknowledged.
	n := undo.Finish(tx.bytes(at, uint32(undo.Len())), log.Undo, tx.id, 0, tx.s.ahead(tx.id))
	b.Reset()
	for k := range v.Blades() {
		if v.Up(rdma.BladeID(k)) && tx.s.ring.on.has(rdma.BladeID(k)) {
			b.Write(tx.s.ring.at(v, rdma.BladeID(k), off), at, uint32(n))
		}
	}
	c.Count = &tx.phases[PhaseLog]
	c.Post(b)
	if !tx.valid {
		c.Count = &tx.phases[PhaseValidate]
		if err := tx.appendValidation(len(tx.items)); err != nil {
			if e := c.Wait(b); e != nil {
				err = tx.s.fail(e)
			}
			tx.unseal()
			return tx.abandon(err)
		}
		c.Post(b)
	}
	err = c.Wait(b)
	if err == nil && !tx.s.caps.Placed && tx.s.ring.lacks(v) { // images go where no log record is in front of them
		err = c.Fence(rdma.FenceThread, 0, b)
	}
	if err != nil {
		return tx.abandon(tx.s.fail(err))
	}
	if !tx.valid {
		err := tx.checkValidation(len(tx.items))
		if errors.Is(err, errOwnBlocks) || err == nil && tx.scans != nil {
			err = tx.validate(len(tx.items))
		}
		if err != nil {
			tx.unseal()
			return tx.abandon(err)
		}
	}

	// Commit.
	c.Count = &tx.phases[PhaseCommit]
	b.Reset()
	held, err := tx.alloc(16)
	if err != nil {
		tx.unseal()
		return tx.abandon(err)
	}
	tx.s.thread.PutWord(held, uint64(record.HeldBy(tx.id)))
	tx.s.thread.PutWord(held+8, uint64(record.FreeAt(tx.id)))
	moves := false
	lastWritten, released := -1, uint64(0)
	for i := range tx.items {
		it := &tx.items[i]
		if it.write == writeNone {
			continue
		}
		if it.from != 0 {
			moves = true
			continue
		}
		lastWritten = i
		record.Image(tx.logBytes()[it.w : uint32(it.w)+it.wlen]).SetGuard(record.HeldBy(tx.id))
		for k := range v.Written(it.addr) {
			a := v.At(it.addr, k)
			g := a
			g.Off += record.GuardOff
			b.Write(g, held, 8)
			b.Write(a, tx.logAt+uint32(it.w), it.wlen)
			if k > 0 {
				b.Write(g, held+8, 8)
				released++
			}
		}
	}
	if lastWritten >= 0 {
		tx.appendFORDFlush(lastWritten)
	}
	if b.Len() > 0 {
		c.Post(b)
		tx.countAsRelease(released)
		if err := c.Wait(b); err != nil {
			return tx.undecided(err)
		}
	}
	if moves {
		// They stay locked until the transaction is concluded: with an undo log, a lock is
		// what shows that its images were written by somebody who committed.
		if err := tx.moveRecords(false); err != nil {
			return tx.undecided(err)
		}
	}
	tx.conclude(history.Committed)

	// Release.
	c.Count = &tx.phases[PhaseRelease]
	bg := &tx.flights[tx.flight].bg
	tx.releaseNodes(bg) // of ordered tables that were not written after all
	for i := range tx.items {
		it := &tx.items[i]
		switch {
		case it.write != writeNone:
			g := v.At(it.addr, 0)
			g.Off += record.GuardOff
			bg.Write(g, held+8, 8)
		case it.write == writeNone && it.locked:
			tx.appendRelease(it)
		}
	}
	c.Post(bg)
	return nil
}

// appendFORDFlush reads a byte from each backup of the last record, and on a fabric
// where completed WRITEs need not be placed also one from every other blade that a
// backup was written on: the next writer of a record uses another queue pair.
func (tx *Tx) appendFORDFlush(last int) {
	b, v := &tx.batch, tx.view
	from := b.Len()
	flush := func(it *item) {
		for k := 1; k < v.Written(it.addr); k++ {
			b.Read(v.At(it.addr, k), it.buf, 1)
		}
	}
	flush(&tx.items[last])
	if tx.s.thread.Caps().Placed {
		return
	}
	for i := range tx.items[:last] {
		it := &tx.items[i]
		if it.write == writeNone || it.from != 0 {
			continue
		}
		for k := 1; k < v.Written(it.addr); k++ {
			a := v.At(it.addr, k)
			if !slices.ContainsFunc(b.WRs()[from:], func(w rdma.WR) bool { return w.Blade == a.Blade }) {
				b.Read(a, it.buf, 1)
			}
		}
	}
}

// countAsRelease counts n WRITEs of a guard, posted with the commit, as what they are.
func (tx *Tx) countAsRelease(n uint64) {
	from, to := &tx.phases[PhaseCommit], &tx.phases[PhaseRelease]
	from.Verbs[rdma.OpWrite] -= n
	to.Verbs[rdma.OpWrite] += n
	from.BytesWrite -= 8 * n
	to.BytesWrite += 8 * n
}

// logRolledBack appends to what the rollback posts a log record for each blade, if
// the transaction has locked something and found all that it looked for: FORD logs
// as soon as it has read, and aborts before that at a row that is not there. The
// record has no entries, so that nobody undoes anything by it.
func (tx *Tx) logRolledBack() {
	locked := false
	for i := range tx.items {
		it := &tx.items[i]
		if it.write == writeNone && !it.has && !it.insert {
			return
		}
		locked = locked || it.locked && !it.inserted
	}
	if !locked || tx.s.broken != nil {
		return
	}
	at, err := tx.alloc(log.HeaderSize)
	if err != nil {
		return // it is not needed
	}
	off, err := tx.reserveLog(log.HeaderSize)
	if err != nil {
		return
	}
	var undo log.Builder
	undo.Reset()
	n := undo.Finish(tx.bytes(at, log.HeaderSize), log.Undo, tx.id, 0, tx.s.ahead(tx.id))
	bg := &tx.flights[tx.flight].bg
	for k := range tx.view.Blades() {
		if tx.view.Up(rdma.BladeID(k)) && tx.s.ring.on.has(rdma.BladeID(k)) {
			bg.Write(tx.s.ring.at(tx.view, rdma.BladeID(k), off), at, uint32(n))
		}
	}
}

// undoRecord lays out a log record of the images as they were read, in the arena at at:
// undo is to finish it.
func (tx *Tx) undoRecord() (at uint32, undo log.Builder, err error) {
	size := log.HeaderSize
	for i := range tx.items {
		if it := &tx.items[i]; it.write != writeNone {
			if err := tx.pristine(it); err != nil {
				return 0, undo, err
			}
			m := tx.image(it).Meta()
			// more may have been read, of a larger block
			size += log.EntryHeaderSize + record.Size(m.KeyLen(), m.ValueLen())
		}
	}
	if size > tx.s.ring.ring.Max() {
		return 0, undo, tx.logTooLarge(size)
	}
	if at, err = tx.alloc(uint32(size)); err != nil {
		return 0, undo, err
	}
	buf := tx.bytes(at, uint32(size))
	undo.Reset()
	freed := tx.freed()
	for i := range tx.items {
		it := &tx.items[i]
		if it.write == writeNone {
			continue
		}
		img := tx.image(it) // of what is inserted, the placeholder
		m := img.Meta()
		k := record.Size(m.KeyLen(), m.ValueLen())
		w := undo.Add(buf, k)
		copy(buf[w:w+k], img[:k])
		addr, other := it.addr, freed
		kind := log.Update
		if it.from != 0 {
			addr, other, kind = it.from, uint64(it.addr), log.Move
		}
		undo.Set(buf, w, kind, addr, img.Version(), other, k)
	}
	return at, undo, nil
}

// pristine makes sure that the image of an item is as it was read. Its value was the user's,
// who may have changed it in place before he put it: it is read again then. The record is
// locked.
func (tx *Tx) pristine(it *item) error {
	a := it.addr
	if it.from != 0 {
		a = it.from
	}
	if _, err := tx.image(it).Check(a); err == nil {
		return nil
	}
	b := &tx.batch
	b.Reset()
	b.Read(tx.view.At(a, min(int(it.copy), tx.view.Copies(a)-1)), it.buf, it.bufLen)
	if err := tx.c.Do(b); err != nil {
		return tx.s.fail(err)
	}
	if _, err := tx.image(it).Check(a); err != nil {
		return tx.damaged(it, err)
	}
	return nil
}
