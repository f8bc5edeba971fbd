package occ

import (
	"bytes"
	"encoding/binary"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/record"
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

// Rest waits for the sessions of this process to end the transactions that they had begun at a moment.
type Rest struct {
	calm  calm
	since int64 // when all had said so; 0: they have not
}

// NewRest is about the transactions that coordinators of this process with smaller numbers than below (Space.NextCoordinator) have begun by
// now, a time of the fabric's clock.
func NewRest(now int64, below uint32) *Rest {
	return &Rest{calm: calm{since: now, below: below, drawn: map[*Session]uint64{}}}
}

// Ended reports whether they have ended, or are recovered, at a time of the fabric's clock, and what they did is placed. It asks the
// sessions that have not said so, which answer before their next transaction, and does not wait.
func (r *Rest) Ended(e *Engine, now int64) bool {
	if r.since == 0 {
		if !e.calm(&r.calm) {
			return false
		}
		r.since = max(now, 1)
	}
	return now-r.since > placedNs
}

// Late lists the coordinators whose sessions had not said so when Ended asked them last.
func (r *Rest) Late() []uint32 { return r.calm.late }
