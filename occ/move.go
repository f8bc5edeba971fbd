package occ

import (
	"fmt"

	"txnode/log"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// sealMove is seal for a record that outgrows its block.
func (tx *Tx) sealMove(it *item) error {
	class, ok := layout.ClassOf(it.wlen)
	if !ok {
		return &TooLargeError{What: "record", Got: int(it.wlen), Limit: int(layout.MaxBlock)}
	}
	if err := tx.resolve(it); err != nil { // now, since nothing may fail after the decision
		return err
	}
	if err := tx.s.reachesIndex(it.table, it.query); err != nil {
		return err
	}
	to, class, err := tx.block(tx.c, class)
	if err != nil {
		return tx.s.failed(fmt.Errorf("txn: a larger block for a record of table %q: %w", it.table.Name, err))
	}
	if !tx.reaches(to) {
		tx.s.alloc.Free(to, class)
		return fmt.Errorf("%w: the memory map has changed", ErrConflict)
	}
	if bar := bladeSet(memory.BladesOf(tx.view, to)|memory.BladesOf(tx.view, it.addr)) & tx.s.without; bar != 0 {
		tx.s.alloc.Free(to, class)
		return tx.s.cutOff(bar)
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

// moveRecords finishes the records that outgrew their blocks, after the decision
// to commit: the new block is written everywhere, on the primary with the lock still
// on, the slot is switched to it, the old block becomes free, and then the lock is released.
// Who comes by the old block meets the old lock; who comes by the slot, the new one. As long
// as a copy of the old block is not free, nobody else has the new one: so that who decides,
// after the loss of a blade, does not take the move for complete when somebody had.
// It needs no memory of the transaction's. Without unlock the new blocks stay locked.
func (tx *Tx) moveRecords(unlock bool) error {
	if err := tx.writeMoved(); err != nil {
		return err
	}
	if err := tx.switchMoved(); err != nil {
		return err
	}
	if err := tx.vacateMoved(); err != nil {
		return err
	}
	if unlock {
		b := &tx.batch
		b.Reset()
		tx.appendMovedUnlocks(b)
		if err := tx.c.Do(b); err != nil {
			return err
		}
	}
	for i := range tx.items {
		it := &tx.items[i]
		if !it.moves() {
			continue
		}
		if !unlock {
			f := &tx.flights[tx.flight]
			f.freed = append(f.freed, freed{it.from, it.fromClass})
			continue
		}
		tx.s.alloc.Free(it.from, it.fromClass)
	}
	return nil
}

// moves says of a sealed item that its record goes to another block.
func (it *item) moves() bool { return it.from != 0 && it.write != writeNone }

// writeMoved writes the new blocks, and returns when they are placed on all copies.
func (tx *Tx) writeMoved() error {
	c, b, v := tx.c, &tx.batch, tx.view
	b.Reset()
	building := false // a copy of a new block
	for i := range tx.items {
		it := &tx.items[i]
		if !it.moves() {
			continue
		}
		img := record.Image(tx.logBytes()[it.w : uint32(it.w)+it.wlen])
		img.SetGuard(record.HeldBy(tx.id))
		tx.s.thread.PutWord(it.buf, uint64(record.FreeAt(tx.id))) // the image as read is of no more use
		b.Write(v.At(it.addr, 0), tx.logAt+uint32(it.w), it.wlen)
		building = building || v.Written(it.addr) > v.Copies(it.addr)
	}
	// Nobody has locked the new blocks before. Who is building a copy must see the locks
	// before that copy is written: else he may put the free block there that he has seen.
	if building {
		if err := c.Do(b); err != nil {
			return err
		}
		if err := c.Fence(rdma.FenceThread, 0, b); err != nil {
			return err
		}
		b.Reset()
	}
	for i := range tx.items {
		it := &tx.items[i]
		if !it.moves() {
			continue
		}
		// Backups carry no locks, and are not written again: once the primary is unlocked,
		// a WRITE to a backup that is not placed yet could spoil the next writer's image.
		for k := 1; k < v.Written(it.addr); k++ {
			a := v.At(it.addr, k)
			b.Write(a, tx.logAt+uint32(it.w), it.wlen)
			a.Off += record.GuardOff
			b.Write(a, it.buf, 8)
		}
	}
	if err := c.Do(b); err != nil {
		return err
	}
	return c.Fence(rdma.FenceThread, 0, b)
}

// switchMoved has the slots lead to the new blocks.
func (tx *Tx) switchMoved() error {
	tx.s.openSpare()
	defer tx.s.closeSpare()
	for i := range tx.items {
		it := &tx.items[i]
		if !it.moves() {
			continue
		}
		tx.s.alloc.Used(it.addr)
		err := it.table.Index.Replace(tx.c, it.query, it.from, it.addr, it.class)
		tx.freeQuery(it)
		if err != nil {
			return fmt.Errorf("moving a record of table %q: %w", it.table.Name, err)
		}
	}
	return nil
}

// vacateMoved makes the old blocks free, and returns when all copies say so, before anybody
// has them again.
func (tx *Tx) vacateMoved() error {
	c, b, v := tx.c, &tx.batch, tx.view
	b.Reset()
	for i := range tx.items {
		it := &tx.items[i]
		if !it.moves() {
			continue
		}
		tx.forget(it, it.from)
		tx.remember(it)
		// The guard of the image, which is in place by now.
		tx.s.thread.PutWord(tx.logAt+uint32(it.w)+record.GuardOff, uint64(record.FreeAt(tx.id)))
		wiped := it.buf
		tx.s.alloc.Hold(it.from)
		record.Image(tx.bytes(wiped, record.LineSize)).PutFree(it.from, tx.id, it.table.ID, it.fromClass,
			tx.s.eng.space.CountFree(it.from))
		for k := range v.Written(it.from) {
			record.AppendFree(b, v.At(it.from, k), wiped, tx.s.caps.OrderedLine || k > 0)
		}
	}
	if err := c.Do(b); err != nil {
		return err
	}
	return c.Fence(rdma.FenceThread, 0, b)
}

// appendMovedUnlocks appends the WRITEs that release the locks of new blocks, whose guards
// are in the log's images.
func (tx *Tx) appendMovedUnlocks(b *rdma.Batch) {
	for i := range tx.items {
		it := &tx.items[i]
		if !it.moves() {
			continue
		}
		a := tx.view.At(it.addr, 0)
		a.Off += record.GuardOff
		b.Write(a, tx.logAt+uint32(it.w)+record.GuardOff, 8)
	}
}
