package occ

import (
	"errors"
	"fmt"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// placeholders links a locked block in state absent for every key, of the items
// from number first on, that is to be inserted and has no block. From then on the
// key's absence is a record like any other: others that look for the key meet the
// lock, and a second insert of the same key finds the block, so two can not both
// commit.
func (tx *Tx) placeholders(first int) error {
	c, b := tx.c, &tx.batch
	b.Reset()
	// No two images of a block may have the same version: a READ that is copied while
	// the second is written would take the first one for it.
	version := record.TxID(0)
	for i := first; i < len(tx.items); i++ {
		it := &tx.items[i]
		if it.write != writePut || it.addr != 0 || it.table.Ordered != nil {
			continue
		}
		class, ok := record.ClassFor(int(it.klen), int(it.vlen))
		if !ok {
			return &TooLargeError{What: "record", Got: int(it.wlen), Limit: int(layout.MaxBlock)}
		}
		if err := tx.s.reachesIndex(it.table, it.query); err != nil {
			return err
		}
		n := uint32(record.Size(int(it.klen), 0))
		at, err := tx.alloc(n)
		if err != nil {
			return err
		}
		if version == 0 {
			if version, err = tx.s.nextTx(); err != nil {
				return err
			}
		}
		a, class, err := tx.block(c, class)
		if err != nil {
			return tx.s.failed(fmt.Errorf("txn: a block for a new record of table %q: %w", it.table.Name, err))
		}
		if !tx.reaches(a) {
			tx.s.alloc.Free(a, class)
			return fmt.Errorf("%w: the memory map has changed", ErrConflict)
		}
		it.addr, it.class, it.inserted = a, class, true
		it.buf, it.bufLen, it.prior = at, n, record.FreeAt(tx.id)
		record.Image(tx.bytes(at, n)).Put(a, version, record.Absent, it.table.ID, class, tx.id, it.key(), nil)
		b.Write(tx.view.At(a, 0), at, n) // only primaries carry locks; backups get the image
	}
	if b.Len() == 0 {
		return nil
	}
	if err := c.Do(b); err != nil {
		return tx.s.stopped(err)
	}
	// A slot must not lead anybody to a block that is not there yet.
	if err := c.Fence(rdma.FenceThread, 0, b); err != nil {
		return tx.s.fail(err)
	}
	tx.linked = true
	tx.s.openSpare()
	defer tx.s.closeSpare()
	for i := first; i < len(tx.items); i++ {
		it := &tx.items[i]
		if !it.inserted || it.locked {
			continue
		}
		err := it.table.Index.Insert(c, it.query, it.addr, it.class)
		if err == nil {
			it.locked = true
			tx.remember(it)
			continue
		}
		if errors.Is(err, index.ErrDuplicate) {
			if other := (*index.UnclearError)(nil); errors.As(err, &other) {
				tx.met = meeting{addr: other.Block, table: it.table, key: it.key()}
			}
			return tx.conflict(AbortPhantom, it)
		}
		it.locked = true // it may be linked: see removePlaceholders
		if errors.Is(err, index.ErrBusy) {
			return tx.busyInsert(it, err)
		}
		return tx.indexError(it, "inserting into", err)
	}
	return nil
}

// busyInsert is what becomes of an insert that has waited for too long for somebody else's change
// of the index. The slot may be set, on the primary alone, and whoever is in the way may be dead:
// so the index is brought into order before the slot is cleared again, and the attempt is a
// conflict. A session whose verbs fail in that, or that finds the slot stuck when it rolls back, is
// broken, and looks after it when it has rejoined. What is in the way of an index that is damaged
// stays there until that is repaired: no attempt gets any further.
func (tx *Tx) busyInsert(it *item, err error) error {
	_ = tx.conflict(AbortStale, it) // counts it
	e := tx.s.seeTo(tx.c)
	if errors.Is(e, rdma.ErrVerb) {
		_ = tx.s.fail(e)
	}
	if recovery.Damaged(e, it.table.ID) {
		return tx.indexError(it, "inserting into", e)
	}
	return fmt.Errorf("%w: %w", ErrConflict, tx.indexError(it, "inserting into", err))
}

// reinsertOutgrown takes the placeholders back of records that have outgrown them since they were
// inserted: they get larger ones, as nothing of the transaction is decided yet. They do not
// move, as records do that were there before: the lock of a placeholder may be lost with a
// blade, and no other copy says then that there was one. Meanwhile the keys are anybody's;
// whoever has come to use one of them is met by its lookup, or by the insert.
func (tx *Tx) reinsertOutgrown() error {
	outgrown := func(it *item) bool { return it.inserted && it.write == writePut && it.wlen > it.class.Size() }
	for i := range tx.items {
		it := &tx.items[i]
		it.changed = outgrown(it)
	}
	if err := tx.removePlaceholdersOf(outgrown); err != nil {
		return err
	}
	for i := range tx.items {
		if it := &tx.items[i]; it.changed {
			it.addr = 0
		}
	}
	return tx.lookAgain(len(tx.items))
}

// removePlaceholders unlinks the blocks that the transaction had linked, and frees
// the ones that it had taken.
func (tx *Tx) removePlaceholders() error {
	return tx.removePlaceholdersOf(func(it *item) bool { return it.inserted })
}

// removePlaceholdersOf is removePlaceholders for some of the items.
func (tx *Tx) removePlaceholdersOf(which func(it *item) bool) error {
	found := false
	for i := range tx.items {
		found = found || which(&tx.items[i])
	}
	if !found {
		return nil
	}
	c, b := tx.c, &tx.batch
	c.Count = &tx.phases[PhaseRelease]
	tx.s.openSpare()
	defer tx.s.closeSpare()
	for i := range tx.items {
		it := &tx.items[i]
		if !which(it) || !it.locked {
			continue
		}
		if it.table.Ordered != nil {
			continue // the commit would have linked it
		}
		tx.forget(it, it.addr)
		if err := it.table.Index.Remove(c, it.query, it.addr); err != nil && !errors.Is(err, index.ErrChanged) {
			return tx.s.fail(fmt.Errorf("unlinking an aborted insert from table %q: %w", it.table.Name, err))
		}
	}
	b.Reset()
	for i := range tx.items {
		if it := &tx.items[i]; which(it) {
			tx.appendFree(it)
		}
	}
	if err := c.Do(b); err != nil {
		return tx.s.fail(err)
	}
	if err := c.Fence(rdma.FenceThread, 0, b); err != nil { // before anybody has the block again
		return tx.s.fail(err)
	}
	for i := range tx.items {
		if it := &tx.items[i]; which(it) {
			tx.s.alloc.Free(it.addr, it.class)
			it.inserted, it.locked = false, false
		}
	}
	return nil
}

// appendFree appends what makes an inserted item's block free again; the
// backups never had it.
func (tx *Tx) appendFree(it *item) {
	record.Image(tx.bytes(it.buf, record.LineSize)).PutFree(it.addr, tx.id, it.table.ID, it.class,
		tx.s.eng.space.CountFree(it.addr))
	record.AppendFree(&tx.batch, tx.view.At(it.addr, 0), it.buf, tx.s.caps.OrderedLine)
}

// resolve makes sure that the item has a query that has been looked up.
func (tx *Tx) resolve(it *item) error {
	if it.query != nil {
		return nil
	}
	q, err := tx.query(it)
	if err != nil {
		return err
	}
	if err := lookup(tx.c, it.table, q); err != nil {
		return tx.indexError(it, "looking up in", err)
	}
	return nil
}
