package occ

import (
	"bytes"
	"encoding/binary"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// Bury puts the block of a deleted record, at a version, on the list of those that the session
// reclaims: of a table that is being dropped, for records that were deleted before.
func (s *Session) Bury(t *Table, key []byte, a memory.Addr, class memory.Class, v record.TxID) {
	it := item{table: t, klen: uint32(len(key)), long: bytes.Clone(key)}
	if len(key) == 8 {
		it.short = binary.LittleEndian.Uint64(key)
	}
	s.reclaim.push(tombstone{t, it.long, it.keyHash(), it.place(), a, class, v})
}

// bury puts the block of a deleted record of an ordered table that a walk has met on the list of those that the session
// reclaims, if its coordinator is gone: nobody else has it on a list.
func (tx *Tx) bury(t *Table, x index.Candidate, img record.Image) {
	if v := img.Version(); tx.s.alloc != nil && tx.gone(v) {
		tx.s.Bury(t, img.Key(), x.Addr, x.Class, v)
	}
}

// Rest waits for every session to end the transactions that it had begun at a moment.
type Rest struct{ calm calm }

// NewRest is about the transactions that coordinators with smaller numbers than below (Space.NextCoordinator) have begun by
// now, a time of the fabric's clock.
func NewRest(now int64, below uint32) *Rest {
	return &Rest{calm{since: now, below: below, drawn: map[*Session]uint64{}}}
}

// Ended reports whether they have ended, and each of these coordinators is a session of this engine. It asks the
// sessions that have not said so. They answer before their next transaction. The session s of the
// caller answers at once.
func (r *Rest) Ended(s *Session, c *rdma.Coro) bool {
	if s.broken != nil {
		return false
	}
	s.queried.Store(anyQuery)
	s.reply()
	if !s.eng.calm(&r.calm) {
		return false
	}
	c.Sleep(placedNs) // what has completed by then is placed
	return true
}
