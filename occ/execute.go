package occ

import (
	"bytes"
	"errors"
	"fmt"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
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
		return tx.s.stopped(err)
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
	if len(tx.nodes) > 0 {
		tx.dropStale()
	}
	tx.fetched = len(tx.items)
	tx.lines = min(tx.s.lines, int(tx.end-tx.next)/record.LineSize)
	if tx.inserts > 0 {
		tx.inserts = 0
		if err := tx.placeholders(first); err != nil {
			return err
		}
	}
	if first == 0 && tx.scans == nil && (unlocked == 0 || n == 1 && done == 1 && len(items) == 1) {
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
			return unlocked, tx.s.stopped(err)
		}
	}
}

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
			if it.step == stepProbe && tx.s.caps.MaskedCAS && !it.unsure {
				g := from
				g.Off += record.GuardOff
				it.cas = int32(b.MaskedCAS(g, 0, uint64(record.HeldBy(tx.id)), tx.s.masks))
			}
		} else if tx.s.eng.opts.ReadBackups && !it.primary && tx.view.Copies(it.addr) > 1 &&
			!tx.s.without.has(tx.view.At(it.addr, 1).Blade) {
			from = tx.view.At(it.addr, 1)
			it.backup = true
		}
		it.rd = int32(b.Read(from, it.buf, n))
	case stepCopy:
		it.rd = int32(b.Read(tx.view.At(it.addr, int(it.copy)), it.buf, it.bufLen))
	case stepSearch:
		if it.table.Ordered != nil {
			return tx.appendSearch(it)
		}
		q, err := tx.query(it)
		if err != nil {
			return err
		}
		it.table.Index.Search(b, q)
	case stepMany:
		total := uint32(0)
		for _, x := range it.query.Candidates {
			if !tx.reaches(x.Addr) || x.Class >= layout.NumClasses {
				return tx.lost(it, x.Addr)
			}
			total += it.looks(x.Class)
		}
		if it.bufLen < total { // else it is that of the last look
			at, err := tx.alloc(total)
			if err != nil {
				return err
			}
			it.buf, it.bufLen = at, total
		}
		at := it.buf
		for _, x := range it.query.Candidates {
			n := it.looks(x.Class)
			k := min(int(it.copy), tx.view.Copies(x.Addr)-1)
			it.rd = int32(b.Read(tx.view.At(x.Addr, k), at, n)) // the last of len(Candidates)
			at += n
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

// advance interprets the results of an item's step and chooses the next.
func (tx *Tx) advance(it *item) error {
	switch it.step {
	case stepProbe, stepReread:
		return tx.probed(it)
	case stepCopy:
		return tx.copyRead(it)
	case stepSearch:
		if it.table.Ordered != nil {
			return tx.searchedNode(it)
		}
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
		case prior == record.FreeAt(it.version):
			it.locked, it.prior = true, prior
			it.step = stepDone
			return nil
		case prior.Held():
			return tx.meet(AbortLocked, it, prior)
		default:
			return tx.conflict(AbortValidation, it)
		}
	}
	return nil
}

// reaches reports whether an address lies in a segment that exists. Segments are
// added while transactions run: the transaction goes over to a newer map of the
// same epoch when it meets one that its own lacks.
func (tx *Tx) reaches(a layout.Addr) bool {
	if tx.view.Valid(a) {
		return true
	}
	space := tx.s.eng.space
	if !space.View().Valid(a) {
		// another process may have added the segment; if the catalog cannot be asked, lost says so
		_ = tx.c.Await(space.Follow, nil)
	}
	if v := space.View(); v.Epoch == tx.view.Epoch {
		tx.view = v
	}
	return tx.view.Valid(a)
}

// lost is the error of an index that points to no segment: it is damaged, or the segment is one of
// a later epoch than that of the transaction, or the catalog cannot be asked for it.
func (tx *Tx) lost(it *item, a layout.Addr) error {
	space := tx.s.eng.space
	if space.View().Epoch == tx.view.Epoch {
		if err := space.Missing(tx.view, a); err != nil && !errors.Is(err, rdma.ErrStaleKey) {
			return fmt.Errorf("txn: table %q: %w", it.table.Name, err)
		}
	}
	if v := space.View(); v.Epoch != tx.view.Epoch || v.Valid(a) || v.Leaves(a) { // it has changed since
		return tx.conflict(AbortStale, it)
	}
	return fmt.Errorf("%w: index of table %q points to %v", ErrCorrupt, it.table.Name, a)
}

func (tx *Tx) damaged(it *item, err error) error {
	if tx.ill = (ill{block: it.addr}); it.proof&proofKey == 0 { // no copy shows the key: the index may have led astray
		tx.ill.table, tx.ill.hash = it.table, it.keyHash()
	}
	return fmt.Errorf("%w: table %q, key %x: block %v: %w; no copy of it is intact, or its guard is damaged",
		ErrCorrupt, it.table.Name, bytes.Clone(it.key()), it.addr, err)
}

// conflict counts a conflict over an item, and returns its error.
func (tx *Tx) conflict(r AbortReason, it *item) error {
	tx.aborts[r]++
	tx.tallyFresh(it.table).done[tallyConflicts]++
	return conflictErrors[r]
}
