package occ

import (
	"bytes"
	"errors"
	"fmt"

	"txnode/index"
	"txnode/internal/mutant"
	"txnode/memory"
	"txnode/memory/record"
)

// Execute fetches every staged item: the blocks whose addresses are cached, and
// the index for the others, share one round trip, and so does every further step.
// Items staged for update come back locked. When it returns nil, everything the
// transaction has seen existed at one moment. After an error only Rollback is
// allowed; a conflict is a *ConflictError.
func (tx *Tx) Execute() error {
	if !tx.active {
		return ErrDone
	}
	if tx.fetched == len(tx.items) {
		return nil
	}
	c := tx.c
	c.Count = &tx.phases[PhaseExecute]
	first := tx.fetched
	b := &tx.batch
	items := tx.items[first:]
	n := tx.built
	tx.built = 0
	if n <= 0 {
		n = 0
		b.Reset()
	}
	if n < len(items) {
		n += tx.probeLines(items[n:])
	}
	for i := n; i < len(items); i++ {
		it := &items[i]
		if it.step == stepNew {
			tx.locate(it)
		}
		if err := tx.append(it); err != nil {
			return err
		}
	}
	if err := c.Do(b); err != nil {
		return tx.s.fail(err)
	}
	if tx.expecting > 0 {
		tx.loadExpected()
	}
	done, unlocked := tx.acceptLines(items[:n])
	if done < len(items) {
		k, err := tx.goOn(items[done:])
		if err != nil {
			return err
		}
		unlocked += k
	}
	tx.fetched = len(tx.items)
	tx.lines = min(tx.s.lines, int(tx.end-tx.next)/record.LineSize)
	if tx.inserts > 0 {
		tx.inserts = 0
		if err := tx.placeholders(first); err != nil {
			return err
		}
	}
	if first == 0 && (unlocked == 0 || n == 1 && done == 1 && len(items) == 1) {
		tx.valid = true // everything is locked, or a single record was read
		return nil
	}
	return tx.certify(first)
}

// goOn lets the items take their steps, of which the first has been posted, until all
// are done. It returns how many of them are not locked.
func (tx *Tx) goOn(items []item) (unlocked int, err error) {
	c, b := tx.c, &tx.batch
	for left := len(items); ; {
		// Every item takes its step, also behind a conflict: what was locked must be known.
		var failed error
		for i := range items {
			it := &items[i]
			if it.step == stepDone {
				continue
			}
			if err := tx.advance(it); err != nil && (failed == nil || errors.Is(failed, ErrConflict)) {
				failed = err
			}
			if mutant.ForgetLocksBehindConflict && failed != nil {
				break
			}
			if it.step == stepDone {
				left--
				if !it.locked {
					unlocked++
				}
			}
		}
		if failed != nil {
			tx.fetched = len(tx.items)
			return unlocked, failed
		}
		if left == 0 {
			return unlocked, nil
		}
		b.Reset()
		for i := range items {
			if it := &items[i]; it.step != stepDone {
				if err := tx.append(it); err != nil {
					return unlocked, err
				}
			}
		}
		if err := c.Do(b); err != nil {
			return unlocked, tx.s.fail(err)
		}
	}
}

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
	old, fresh, locked, fromBackup := 0, 0, 0, false
	for i := range tx.items {
		it := &tx.items[i]
		switch {
		case it.locked:
			if i >= first {
				locked++
			}
			continue
		case i < first:
			old++
		default:
			fresh++
		}
		fromBackup = fromBackup || it.backup
	}
	if tx.s.eng.opts.Policy == PolicyFORD || fromBackup {
		tx.valid = old+fresh == 0 || len(tx.items) == 1 && !fromBackup
		if tx.valid || tx.s.eng.opts.Policy == PolicyFORD {
			return nil
		}
		return tx.validate(len(tx.items))
	}
	if fresh == 1 && locked == 0 {
		if old == 0 || mutant.LateReadCertifiesAll {
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

// reaches reports whether an address lies in a segment that exists. Segments are
// added while transactions run: the transaction goes over to a newer map of the
// same epoch when it meets one that its own lacks.
func (tx *Tx) reaches(a memory.Addr) bool {
	if tx.view.Valid(a) {
		return true
	}
	if v := tx.s.eng.space.View(); v.Epoch == tx.view.Epoch {
		tx.view = v
	}
	return tx.view.Valid(a)
}

// lost is the error of an index that points to no segment: it is damaged, or the
// segment is one of a later epoch than that of the transaction.
func (tx *Tx) lost(it *item, a memory.Addr) error {
	if tx.s.eng.space.View().Epoch != tx.view.Epoch {
		return tx.conflict(AbortStale)
	}
	if err := tx.s.eng.space.LostError(a); err != nil {
		return fmt.Errorf("occ: table %q: %w", it.table.Name, err)
	}
	return fmt.Errorf("%w: index of table %q points to %v", ErrCorrupt, it.table.Name, a)
}

// readLen is how much of a block is read at first.
func readLen(c memory.Class) uint32 { return min(c.Size(), probeLen) }

// append posts the requests of an item's step.
func (tx *Tx) append(it *item) error {
	b := &tx.batch
	it.cas = -1
	switch it.step {
	case stepProbe, stepReread:
		n := readLen(it.class)
		if it.step == stepReread {
			n = max(it.bufLen, n)
		}
		if it.bufLen < n {
			at, err := tx.alloc(n)
			if err != nil {
				return err
			}
			it.buf, it.bufLen = at, n
		}
		from := tx.view.At(it.addr, 0)
		if it.update {
			if it.step == stepProbe && tx.s.caps.MaskedCAS {
				g := from
				g.Off += record.GuardOff
				it.cas = int32(b.MaskedCAS(g, 0, uint64(record.HeldBy(tx.id)), tx.s.masks))
			}
		} else if tx.s.eng.opts.ReadBackups && !it.primary && tx.view.Copies(it.addr) > 1 {
			from = tx.view.At(it.addr, 1)
			it.backup = true
		}
		it.rd = int32(b.Read(from, it.buf, n))
	case stepSearch:
		q, err := tx.query(it)
		if err != nil {
			return err
		}
		it.table.Index.Search(b, q)
	case stepMany:
		for _, x := range it.query.Candidates {
			if !tx.reaches(x.Addr) || x.Class >= memory.NumClasses {
				return tx.lost(it, x.Addr)
			}
			n := readLen(x.Class)
			if it.whole {
				n = x.Class.Size()
			}
			at, err := tx.alloc(n)
			if err != nil {
				return err
			}
			it.rd = int32(b.Read(tx.view.At(x.Addr, 0), at, n)) // the last of len(Candidates)
		}
	case stepConfirm:
		at, err := tx.alloc(uint32(it.table.Index.BufferSize()) + 64)
		if err != nil {
			return err
		}
		it.vbuf = (at + 63) &^ 63
		it.table.Index.Validate(b, it.query, it.vbuf)
	case stepLock:
		g := tx.view.At(it.addr, 0)
		g.Off += record.GuardOff
		it.cas = int32(b.CAS(g, uint64(record.FreeAt(it.version)), uint64(record.HeldBy(tx.id))))
	}
	return nil
}

// query gives the item a query object.
func (tx *Tx) query(it *item) (*index.Query, error) {
	if it.query != nil {
		return it.query, nil
	}
	var q *index.Query
	if n := len(tx.queries); n > 0 {
		q, tx.queries = tx.queries[n-1], tx.queries[:n-1]
	} else {
		q = &index.Query{}
	}
	at, err := tx.alloc(uint32(it.table.Index.BufferSize()) + 64)
	if err != nil {
		return nil, err
	}
	q.Key, q.Hash, q.Local, q.View = it.key(), it.keyHash(), (at+63)&^63, tx.view
	it.query = q
	tx.queried = true
	return q, nil
}

// advance interprets the results of an item's step and chooses the next.
func (tx *Tx) advance(it *item) error {
	switch it.step {
	case stepProbe, stepReread:
		return tx.probed(it)
	case stepSearch:
		return tx.searched(it)
	case stepMany:
		return tx.readMany(it)
	case stepConfirm:
		if it.table.Index.Unchanged(it.query, it.vbuf) {
			return tx.absent(it)
		}
		return tx.searchAgain(it)
	case stepLock:
		prior := record.Guard(tx.batch.Result(int(it.cas)))
		switch {
		case prior == record.FreeAt(it.version), mutant.LockByHope && !prior.Held():
			it.locked, it.prior = true, prior
			it.step = stepDone
			return nil
		case prior.Held():
			return tx.meet(AbortLocked, it.addr, prior)
		default:
			return tx.conflict(AbortValidation)
		}
	}
	return nil
}

// probed looks at a block that was read, perhaps locked.
func (tx *Tx) probed(it *item) error {
	held := it.locked
	lost := false // the lock was wanted and somebody else has it
	if it.cas >= 0 {
		prior := record.Guard(tx.batch.Result(int(it.cas)))
		if prior.Held() {
			lost = true
			if mutant.ReleaseForeignLock {
				it.locked, it.prior = true, record.FreeAt(tx.image(it).Version())
			}
		} else {
			it.locked, it.prior = true, prior
			held = true
		}
	}
	img := tx.image(it)
	if it.klen == 8 && !lost {
		if _, _, ok := record.CheckShort((*record.Line)(img), it.addr, it.table.ID, it.short); ok && accepts(img, it, held, tx.id) {
			return tx.found(it, img)
		}
	}
	need, err := img.Check(it.addr)
	if err == nil && !tx.matches(it, img) {
		if it.backup {
			// A block that is being inserted is on the primary alone, until it is committed.
			it.backup, it.primary = false, true
			it.step = stepProbe
			return nil
		}
		// Another key's block, or nobody's: the address is stale.
		if held && mutant.KeepLockOfStaleAddress {
			it.locked = false
		} else if held {
			if err := tx.unlockForeign(it); err != nil {
				return err
			}
		}
		if it.cached {
			tx.forget(it, it.addr)
			it.addr = 0
			it.step = stepSearch
			return nil
		}
		return tx.notThis(it, img)
	}
	if lost {
		if err != nil && it.tries < maxRereads {
			// Being written by the holder of the lock: whose key it is decides whether that is a conflict.
			return tx.reread(it, need)
		}
		return tx.meet(AbortLocked, it.addr, record.Guard(tx.batch.Result(int(it.cas))))
	}
	g := img.Guard()
	if mutant.ReadLocked && err == nil && !it.update && g.Held() {
		return tx.found(it, img)
	}
	switch {
	case errors.Is(err, record.ErrForm) && it.tries >= maxRereads && !it.cached:
		return tx.damaged(it, err)
	case err != nil:
		return tx.reread(it, need)
	case held:
		if img.Version() != it.prior.Version() || g != record.HeldBy(tx.id) {
			return tx.reread(it, need) // its last lines are still on their way
		}
	case g.Held():
		if it.update {
			return tx.meet(AbortLocked, it.addr, g)
		}
		return tx.meet(AbortReadLocked, it.addr, g)
	case !img.Stable() && !mutant.GuardNotCompared:
		return tx.reread(it, need)
	}
	return tx.found(it, img)
}

// accepts reports whether the guard of a verified image lets it be used: free at
// its version, or held by this transaction since that version.
func accepts(img record.Image, it *item, held bool, id record.TxID) bool {
	if held {
		return img.Guard() == record.HeldBy(id) && img.Version() == it.prior.Version()
	}
	return img.Stable() || mutant.GuardNotCompared && !img.Guard().Held()
}

// notThis notes that the only candidate of the item's key has been seen not to hold
// it. A block that is free is about to leave its slot, or its slot to get another: the
// lookup is repeated. One of another key stays what it is as long as slot and
// version do, which is confirmed before the absence is believed. One of several
// candidates, that seemed to be the one, tells nothing about the others.
func (tx *Tx) notThis(it *item, img record.Image) error {
	it.addr = 0
	if mutant.BelieveOtherKey {
		return tx.absent(it)
	}
	if img.Meta().State() == record.Free {
		tx.hollow = it.query.Candidates[0].Addr
		return tx.searchAgain(it)
	}
	if len(it.query.Candidates) > 1 {
		return tx.searchAgain(it)
	}
	it.query.Candidates[0].Version = img.Version()
	it.step = stepConfirm
	return nil
}

// found accepts a verified image, and locks it if that is still to be done.
func (tx *Tx) found(it *item, img record.Image) error {
	m := img.Meta()
	it.version, it.class = img.Version(), m.Class()
	it.sees(m)
	if !it.cached {
		tx.remember(it)
	}
	it.step = stepDone
	if it.update && !it.locked {
		it.step = stepLock
	}
	return nil
}

// matches reports whether a verified image is that of the item's key.
func (tx *Tx) matches(it *item, img record.Image) bool {
	m := img.Meta()
	if mutant.TrustStaleAddress && it.cached {
		return true
	}
	return m.State() != record.Free && m.Table() == it.table.ID && m.KeyLen() == int(it.klen) && bytes.Equal(img.Key(), it.key())
}

// reread reads the block again, all of it, unless it has been read too often.
func (tx *Tx) reread(it *item, need int) error {
	if int(it.bufLen) < need {
		at, err := tx.alloc(it.class.Size())
		if need > int(it.class.Size()) {
			at, err = tx.alloc(uint32(need))
		}
		if err != nil {
			return err
		}
		it.buf, it.bufLen = at, max(it.class.Size(), uint32(need))
	}
	it.tries++
	if it.tries > maxRereads {
		if it.cached {
			return tx.doubt(it)
		}
		if it.locked {
			return tx.damaged(it, record.ErrTorn)
		}
		return tx.meet(AbortReadLocked, it.addr, tx.image(it).Guard())
	}
	it.step = stepReread
	if it.tries > 2 {
		tx.c.Yield()
	}
	return nil
}

// doubt looks a key up whose block, found by a cached address, does not become whole:
// perhaps nobody has it any more, and its header was torn by somebody who died.
func (tx *Tx) doubt(it *item) error {
	if it.locked {
		if err := tx.unlockForeign(it); err != nil {
			return err
		}
	}
	tx.forget(it, it.addr)
	it.addr, it.tries = 0, 0
	it.step = stepSearch
	return nil
}

func (tx *Tx) damaged(it *item, err error) error {
	return fmt.Errorf("%w: block %v of table %q: %w", ErrCorrupt, it.addr, it.table.Name, err)
}

func (tx *Tx) searched(it *item) error {
	q := it.query
	again, err := it.table.Index.Resolve(tx.c, q)
	if err != nil {
		return tx.indexError(it, "looking up in", err)
	}
	if again {
		return tx.searchAgain(it)
	}
	switch len(q.Candidates) {
	case 0:
		return tx.absent(it)
	case 1:
		it.addr, it.class = q.Candidates[0].Addr, q.Candidates[0].Class
		if !tx.reaches(it.addr) || it.class >= memory.NumClasses {
			return tx.lost(it, it.addr)
		}
		it.bufLen = 0
		it.step = stepProbe
	default:
		it.step = stepMany
	}
	return nil
}

func (tx *Tx) searchAgain(it *item) error {
	it.tries++
	if it.tries > maxSearches {
		tx.met, tx.hollow = meeting{addr: tx.hollow, table: it.table, key: it.key()}, 0
		return tx.conflict(AbortStale)
	}
	if it.tries > 2 {
		tx.c.Yield()
	}
	it.step = stepSearch
	return nil
}

// readMany looks for the key among several candidates, which were read without locks.
func (tx *Tx) readMany(it *item) error {
	first := int(it.rd) - len(it.query.Candidates) + 1
	torn, long := false, false // being written; longer than what was read
	for k, x := range it.query.Candidates {
		w := tx.batch.WR(first + k)
		img := record.Image(tx.bytes(w.Local, w.Len))
		need, err := img.Check(x.Addr)
		if err != nil {
			torn = true
			long = long || need > int(w.Len)
			continue
		}
		if tx.matches(it, img) {
			it.addr, it.class = x.Addr, x.Class
			it.buf, it.bufLen = w.Local, w.Len
			if img.Guard().Held() || !img.Stable() {
				it.step = stepProbe // decides by itself what that means
				return nil
			}
			return tx.found(it, img)
		}
		if img.Meta().State() == record.Free {
			torn, tx.hollow = true, x.Addr
		}
		it.query.Candidates[k].Version = img.Version()
	}
	if torn {
		if long && !it.whole {
			it.whole = true // and stays at this step
			return nil
		}
		return tx.searchAgain(it)
	}
	it.step = stepConfirm
	return nil
}

// absent accepts that the key has no block.
func (tx *Tx) absent(it *item) error {
	it.addr, it.version, it.state = 0, 0, record.Free
	it.step = stepDone
	return nil
}

func (tx *Tx) conflict(r AbortReason) error {
	tx.aborts[r]++
	return conflictErrors[r]
}

// unlockForeign releases a lock that was taken on a block that turned out not to
// hold the key. The block may be in other hands by now, so it is a
// compare-and-swap: only our own lock is replaced.
func (tx *Tx) unlockForeign(it *item) error {
	g := tx.view.At(it.addr, 0)
	g.Off += record.GuardOff
	f := &tx.flights[tx.flight]
	f.bg.CAS(g, uint64(record.HeldBy(tx.id)), uint64(it.prior))
	tx.c.Post(&f.bg)
	it.locked = false
	return nil
}

// validate repeats every read that is not protected by a lock: one READ of the
// guard for a record, the index buckets for an absent key. All of them were read
// before and all of them are found unchanged after, so they held together at the
// moment between; and so did everything that is locked.
//
// Only the items with a number less than n are validated: see certify.
func (tx *Tx) validate(n int) error {
	if mutant.SkipValidation {
		tx.valid = true
		return nil
	}
	for round := 0; ; round++ {
		c, b := tx.c, &tx.batch
		c.Count = &tx.phases[PhaseValidate]
		tx.unbuild()
		b.Reset()
		if err := tx.appendValidation(n); err != nil {
			return err
		}
		if b.Len() > 0 {
			if err := c.Do(b); err != nil {
				return tx.s.fail(err)
			}
		}
		err := tx.checkValidation(n)
		if !errors.Is(err, errOwnBlocks) {
			return err
		}
		if round == maxOwnRounds {
			return tx.conflict(AbortPhantom)
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
var errOwnBlocks = errors.New("occ: buckets have changed")

// maxOwnRounds bounds how often such keys are looked up again.
const maxOwnRounds = 4

// lookAgain looks up the absent ones of the first n items whose buckets have changed,
// with the transaction's own blocks in them. They have been read anew then, and
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
				return tx.s.fail(err)
			}
			if err := tx.advance(it); err != nil {
				return err
			}
		}
		if it.addr != 0 {
			return tx.conflict(AbortPhantom)
		}
	}
	return nil
}

func (tx *Tx) appendValidation(n int) error {
	b := &tx.batch
	for i := range tx.items[:n] {
		it := &tx.items[i]
		if it.locked || mutant.TrustBackup && it.backup {
			continue
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
		if it.vbuf == 0 {
			at, err := tx.alloc(8)
			if err != nil {
				return err
			}
			it.vbuf = at
		}
		g := tx.view.At(it.addr, 0)
		g.Off += record.GuardOff
		b.Read(g, it.vbuf, 8)
	}
	return nil
}

// checkValidation compares what appendValidation has read: nil, a conflict, or
// errOwnBlocks.
func (tx *Tx) checkValidation(n int) error {
	var own error
	for i := range tx.items[:n] {
		it := &tx.items[i]
		if it.locked || mutant.TrustBackup && it.backup {
			continue
		}
		if it.addr == 0 {
			if !it.table.Index.Unchanged(it.query, it.vbuf) && !mutant.SkipAbsenceValidation {
				if !tx.linked {
					return tx.conflict(AbortPhantom)
				}
				it.changed, own = true, errOwnBlocks
			}
			continue
		}
		if g := record.Guard(tx.s.thread.Word(it.vbuf)); g != record.FreeAt(it.version) {
			if mutant.ValidationIgnoresLocks && g.Held() {
				continue
			}
			if g.Held() {
				return tx.meet(AbortReadLocked, it.addr, g)
			}
			return tx.conflict(AbortValidation)
		}
	}
	tx.valid = own == nil
	return own
}

// Certify makes sure that everything the transaction has read existed at one
// moment: a caller that is about to act on it without committing asks. It posts
// nothing when that is known already.
func (tx *Tx) Certify() error {
	if !tx.active {
		return nil
	}
	return tx.validateReads()
}
