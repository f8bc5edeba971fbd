package occ

import (
	"fmt"
	"math/bits"

	"txnode/history"
	"txnode/internal/mutant"
	"txnode/log"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
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
	tx.settle()
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
	if f.bg.OK() {
		f.bg.Reset()
	} else if f.bg.Done() {
		_ = tx.s.fail(f.bg.Err())
		return
	} else if !mutant.LogSpaceBeforeRelease {
		return
	}
	if f.held {
		tx.s.release(f)
	}
}

func (tx *Tx) commit() error {
	if err := tx.prepare(); err != nil {
		return tx.abandon(err)
	}
	if tx.writes == 0 {
		if err := tx.validateReads(); err != nil {
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
	if tx.s.eng.opts.Policy == PolicyFORD {
		err = tx.commitFORD()
	} else {
		if err = tx.validateReads(); err != nil {
			return tx.abandon(err)
		}
		if tx.s.straight && !tx.odd {
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
		return nil // everything written is locked
	}
	c := tx.c
	c.Count = &tx.phases[PhaseExecute]
	b := &tx.batch
	b.Reset()
	locks, inserts := 0, 0
	for i := range tx.items {
		it := &tx.items[i]
		it.cas = -1
		if it.write == writeDelete && it.state != record.Live && !it.inserted {
			tx.dropWrite(it) // nothing is there to delete
		}
		if it.write == writeNone || it.locked {
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
			return tx.s.fail(err)
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
	if locks+inserts > 0 {
		tx.valid = true // of what is locked
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
	if it.state == record.Live {
		it.sees(tx.image(it).Meta())
	}
	tx.writes--
}

func (tx *Tx) validateReads() error {
	if tx.valid {
		return nil
	}
	return tx.validate(tx.fetched)
}

// seal completes the new images and their log entries.
func (tx *Tx) seal() error {
	buf, v := tx.logBytes(), tx.view
	tx.homes, tx.behind = 0, 0
	freed := tx.freed()
	for i := range tx.items {
		it := &tx.items[i]
		if it.write == writeNone {
			continue
		}
		if it.wlen > it.class.Size() {
			if err := tx.sealMove(it); err != nil {
				return err
			}
			continue
		}
		tx.sealImage(it)
		tx.log.Set(buf, int(it.w), log.Update, it.addr, it.version, freed, int(it.wlen))
		tx.spread(it)
	}
	if tx.view != v { // a move has met a segment that is newer than the map
		for i := range tx.items {
			if it := &tx.items[i]; it.write != writeNone && it.from == 0 {
				tx.spread(it)
			}
		}
	}
	return nil
}

// freed is what the log says of the blocks of a transaction that inserts or deletes: see
// log.Entry. Of records that were there before, and stay, their versions say enough.
func (tx *Tx) freed() uint64 {
	if !tx.linked && !tx.deletes {
		return 0
	}
	return tx.s.eng.space.Frees()
}

// spread notes which blades an item's image goes to.
func (tx *Tx) spread(it *item) {
	tx.homes.add(tx.view.At(it.addr, 0).Blade)
	for k := tx.backups(it) - 1; k > 0; k-- {
		tx.behind.add(tx.view.At(it.addr, k).Blade)
	}
}

// sealImage completes an item's new image, for the block at it.addr.
func (tx *Tx) sealImage(it *item) {
	state := record.Live
	if it.write == writeDelete {
		state = record.Absent
	}
	m := record.MakeMeta(state, it.table.ID, it.class, int(it.klen), int(it.vlen))
	at := tx.logAt + uint32(it.w)
	if it.klen == 8 && it.wlen == record.LineSize {
		record.SealShort(tx.line(at), it.addr, tx.id, m)
		return
	}
	img := record.Image(tx.bytes(at, it.wlen))
	img.SetGuard(record.FreeAt(tx.id))
	img.Seal(it.addr, tx.id, m)
}

// sealMove is seal for a record that outgrows its block.
func (tx *Tx) sealMove(it *item) error {
	class, ok := memory.ClassOf(it.wlen)
	if !ok {
		return &TooLargeError{What: "record", Got: int(it.wlen), Limit: int(memory.MaxBlock)}
	}
	if err := tx.resolve(it); err != nil { // now, since nothing may fail after the decision
		return err
	}
	to, err := tx.s.alloc.Alloc(tx.c, class)
	if err != nil {
		return tx.s.failed(fmt.Errorf("occ: a larger block for a record of table %q: %w", it.table.Name, err))
	}
	if !tx.reaches(to) {
		tx.s.alloc.Free(to, class)
		return fmt.Errorf("%w: the memory map has changed", ErrConflict)
	}
	it.from, it.fromClass = it.addr, it.class
	it.addr, it.class = to, class
	tx.moves = true
	tx.homes.add(tx.view.At(to, 0).Blade)
	tx.sealImage(it)
	tx.log.Set(tx.logBytes(), int(it.w), log.Move, it.addr, it.version, uint64(it.from), int(it.wlen))
	return nil
}

// unseal gives back the blocks that seal took for records that were to move.
func (tx *Tx) unseal() {
	tx.moves = false
	for i := range tx.items {
		if it := &tx.items[i]; it.from != 0 {
			tx.s.alloc.Free(it.addr, it.class)
			it.addr, it.class, it.from = it.from, it.fromClass, 0
		}
	}
}

// reserveLog takes space in the log ring, waiting for older transactions of the
// session to come to rest if need be.
func (tx *Tx) reserveLog(n int) (uint32, error) {
	r := tx.s.ring.ring
	f := &tx.flights[tx.flight]
	for tries := 0; ; tries++ {
		if tx.s.broken != nil && !mutant.LogSpaceOfUnknown {
			return 0, tx.s.broken // no space comes free
		}
		off, token, ok := r.Reserve(n)
		if ok {
			f.token, f.held = token, true
			return off, nil
		}
		if n > r.Max() {
			return 0, tx.logTooLarge(n)
		}
		for _, o := range tx.s.txs {
			for i := range o.flights {
				if x := &o.flights[i]; x.held && x.bg.Done() && !(o.busy && i == o.flight) {
					// Completed; its owner has not come by yet.
					if err := x.bg.Err(); err != nil {
						return 0, tx.s.fail(err)
					}
					tx.s.release(x)
				}
			}
		}
		if !r.Full() && (tries > 0 || n > r.Size()) {
			if err := tx.s.growLogs(n); err != nil {
				return 0, err
			}
			continue
		}
		if len(tx.s.held) > 0 && (tries > 0 || r.Full()) {
			if !tx.s.releaseCovered() {
				if err := tx.s.eng.checkpoint(tx.c); err != nil {
					return 0, err
				}
			}
			continue
		}
		if tries > 0 {
			tx.c.Sleep(1000)
		}
	}
}

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
	off, err := tx.reserveLog(tx.log.Len())
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
	if mutant.BackupImageBeforeLog {
		tx.appendBackups(b)
	}
	if mutant.AcknowledgeBeforeLog {
		b = &tx.flights[tx.flight].bg
	}
	logs := tx.logBlades(v, tx.logCopies(v))
	for rest := logs; rest != 0; {
		a := tx.s.ring.at(v, rest.take(), off)
		b.Write(a, tx.logAt, uint32(n))
		if durable && !tx.s.caps.Synchronous && !mutant.LogNotFlushed {
			b.Flush(a, uint32(n)) // no round trip of its own
		}
	}
	tx.appendBackups(b)
	if mutant.UnlockBeforeBackups {
		for i := range tx.items {
			if it := &tx.items[i]; it.write != writeNone && it.from == 0 {
				b.Write(v.At(it.addr, 0), tx.logAt+uint32(it.w), it.wlen)
			}
		}
	}
	if !tx.s.caps.Placed {
		tx.flushBackups(b)
	}
	if mutant.AcknowledgeBeforeLog {
		c.Post(b)
	} else if err := c.Do(b); err != nil {
		f.bg.Forget()
		err = tx.unknown(err)
		tx.conclude(history.Unknown)
		return err
	}
	if durable && tx.s.caps.Synchronous && !mutant.LogNotFlushed {
		if err := tx.s.flushLogs(c, logs, off, n); err != nil {
			err = tx.unknown(err)
			tx.conclude(history.Unknown)
			return err
		}
	}
	tx.conclude(history.Committed)
	c.Count = &tx.phases[PhaseRelease]
	if err := tx.installPrimaries(); err != nil || !durable {
		return err
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

// logCopies is to how many blades the log record goes at least: f+1, as long as so many
// are up.
func (tx *Tx) logCopies(v *memory.View) int {
	want := min(tx.s.eng.space.Backups()+1, v.UpBlades())
	if mutant.LogOnFBlades {
		want = max(want-1, 1)
	}
	return want
}

// logBlades are those that the log record goes to: every blade that gets a backup image,
// in front of it, and others until there are want copies.
func (tx *Tx) logBlades(v *memory.View, want int) bladeSet {
	logs, homes := tx.behind, tx.homes
	if all := logs | homes; all.len() == want {
		return all
	}
	for homes &^= logs; homes != 0 && logs.len() < want; {
		logs.add(homes.take())
	}
	for k := 0; logs.len() < want; k++ {
		if x := rdma.BladeID((int(tx.s.coord.ID) + k) % v.Blades()); v.Up(x) {
			logs.add(x)
		}
	}
	return logs
}

// flushBackups appends what makes the images on the backups placed when it has completed.
func (tx *Tx) flushBackups(b *rdma.Batch) {
	if mutant.NoFlush {
		return
	}
	for backups := tx.behind; backups != 0; {
		b.Flush(tx.lastImageOn(backups.take()), 8)
	}
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

// backups is one more than how many backups an item's image goes to.
func (tx *Tx) backups(it *item) int {
	n := tx.view.Written(it.addr)
	if mutant.NewCopyNotWritten {
		n = tx.view.Copies(it.addr)
	}
	if mutant.FirstBackupOnly {
		n = min(n, 2)
	}
	return n
}

// installPrimaries writes the primary images, each of which releases its lock,
// without waiting; and moves the records that outgrew their blocks.
func (tx *Tx) installPrimaries() error {
	bg := &tx.flights[tx.flight].bg
	for i := range tx.items {
		it := &tx.items[i]
		switch {
		case it.write == writeNone:
			if it.locked && !mutant.KeepUnwrittenLocks {
				tx.appendRelease(it)
			}
		case it.from != 0: // below
		case mutant.UnlockBeforeBackups:
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
	case n > record.LineSize && mutant.GuardBeforeBody:
		body := a
		body.Off += record.LineSize
		bg.Write(a, at, record.LineSize)
		bg.Write(body, at+record.LineSize, n-record.LineSize)
	default:
		if n > record.LineSize {
			body := a
			body.Off += record.LineSize
			bg.Write(body, at+record.LineSize, n-record.LineSize)
		}
		bg.Write(a, at, record.LineSize)
	}
}

// appendRelease appends the WRITE that gives a lock back at the version found.
func (tx *Tx) appendRelease(it *item) {
	g := tx.view.At(it.addr, 0)
	g.Off += record.GuardOff
	at := it.buf + record.GuardOff
	if mutant.AbortChangesVersion {
		it.prior = record.FreeAt(tx.id)
	}
	tx.s.thread.PutWord(at, uint64(it.prior))
	tx.flights[tx.flight].bg.Write(g, at, 8)
	it.locked = false
}

// releaseLocks releases every lock that the transaction holds, without waiting.
func (tx *Tx) releaseLocks() {
	tx.c.Count = &tx.phases[PhaseRelease]
	for i := range tx.items {
		if it := &tx.items[i]; it.locked && !it.inserted {
			tx.appendRelease(it)
		}
	}
	if bg := &tx.flights[tx.flight].bg; bg.Len() > 0 {
		tx.c.Post(bg)
	}
}

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
	tx.hist.Drop()
	tx.finish()
	return err
}

// abandon rolls back because of err, and returns it.
func (tx *Tx) abandon(err error) error {
	if e := tx.rollback(); e != nil {
		return fmt.Errorf("%w (and rolling back: %w)", err, e)
	}
	return err
}

// Forsake records a transaction that has not ended as one of unknown outcome: its
// thread is gone, as a simulated one that was stopped, and nobody will ever be told.
func (tx *Tx) Forsake() {
	if tx.active && tx.hist != nil {
		tx.report(history.Unknown)
	}
}

// conclude reports the transaction to the history, and ends it for its caller.
func (tx *Tx) conclude(outcome history.Outcome) {
	if tx.tap != nil {
		tx.tell(outcome == history.Committed)
	}
	tx.concluded = outcome == history.Committed
	if tx.linked && tx.concluded {
		tx.usePlaceholders()
	}
	if tx.hist != nil {
		tx.report(outcome)
	}
	if tx.s.eng.opts.Policy == PolicyDefault || outcome == history.Committed {
		tx.afterCommit()
	}
	tx.finish()
}

// usePlaceholders notes that the blocks of inserts are in use.
func (tx *Tx) usePlaceholders() {
	for i := range tx.items {
		if it := &tx.items[i]; it.inserted {
			tx.s.alloc.Used(it.addr)
		}
	}
}

// afterCommit remembers deleted records for reclaiming.
func (tx *Tx) afterCommit() {
	if !tx.deletes {
		return
	}
	for i := range tx.items {
		if it := &tx.items[i]; it.write == writeDelete {
			tx.s.reclaim.add(it, tx.id)
		}
	}
}

func (tx *Tx) finish() {
	tx.active = false
	if !tx.queried {
		return
	}
	for i := range tx.items {
		if it := &tx.items[i]; it.query != nil && (it.from == 0 || it.write == writeNone) {
			tx.freeQuery(it) // those of records that move are used once more
		}
	}
}

func (tx *Tx) freeQuery(it *item) {
	tx.queries = append(tx.queries, it.query)
	it.query = nil
}

// report writes the transaction's operations to the history.
func (tx *Tx) report(outcome history.Outcome) {
	h := tx.hist
	for i := range tx.items {
		it := &tx.items[i]
		key := history.Key(it.keyHash())
		kind := history.Read
		if it.state != record.Live {
			kind = history.ReadAbsent
		}
		h.Op(history.Op{Key: key, Version: history.Version(it.version), Kind: kind})
		switch it.write {
		case writePut:
			h.Op(history.Op{Key: key, Version: history.Version(tx.id), Prev: history.Version(it.version), Kind: history.Write})
		case writeDelete:
			h.Op(history.Op{Key: key, Version: history.Version(tx.id), Prev: history.Version(it.version), Kind: history.Delete})
		}
	}
	h.End(uint64(tx.id), tx.start, tx.clock(), outcome)
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

// bladeSet is a set of blades with less than memory.MaxBlades: one bit each.
type bladeSet uint64

func (s *bladeSet) add(b rdma.BladeID) { *s |= 1 << (b % memory.MaxBlades) }

func (s bladeSet) len() int { return bits.OnesCount64(uint64(s)) }

// take removes the lowest blade from a set that is not empty.
func (s *bladeSet) take() rdma.BladeID {
	b := bits.TrailingZeros64(uint64(*s))
	*s &= *s - 1
	return rdma.BladeID(b)
}
