package occ

import (
	"txnode/memory/record"
	"txnode/rdma"
)

// freeReserved frees the blocks that a transaction without effect had reserved: see Tx.hold. The
// backups never had anything of it.
func (tx *Tx) freeReserved() error {
	c, b := tx.c, &tx.batch
	b.Reset()
	for i := range tx.items {
		it := &tx.items[i]
		if !it.reserved {
			continue
		}
		record.Image(tx.bytes(it.buf, record.LineSize)).PutFree(it.addr, tx.id, it.table.ID, it.class,
			tx.s.eng.space.CountFree(it.addr))
		record.AppendFree(b, tx.view.At(it.addr, 0), it.buf, tx.s.caps.OrderedLine)
	}
	if b.Len() == 0 {
		return nil
	}
	c.Count = &tx.phases[PhaseRelease]
	if err := c.Do(b); err != nil {
		return tx.s.fail(err)
	}
	if err := c.Fence(rdma.FenceThread, 0, b); err != nil { // before another session has the block
		return tx.s.fail(err)
	}
	for i := range tx.items {
		if it := &tx.items[i]; it.reserved {
			tx.s.alloc.Free(it.addr, it.class)
			it.reserved, it.locked = false, false
		}
	}
	return nil
}
