package occ

import (
	"bytes"
	"encoding/binary"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// AddTombstone puts the block of a deleted record, at a version, on the list of those that the
// session reclaims: of a table that is being dropped, for records that were deleted before.
func (s *Session) AddTombstone(t *Table, key []byte, a layout.Addr, class layout.Class, v record.TxID) {
	it := item{table: t, klen: uint32(len(key)), long: bytes.Clone(key)}
	if len(key) == 8 {
		it.short = binary.LittleEndian.Uint64(key)
	}
	s.reclaim.push(tombstone{t, it.long, it.keyHash(), it.place(), a, class, v})
}

// addTombstone puts the block of a deleted record of an ordered table that a walk has met on the
// list of those that the session reclaims, if its coordinator is gone: nobody else has it on a
// list.
func (tx *Tx) addTombstone(t *Table, x index.Candidate, img record.Image) {
	if v := img.Version(); tx.s.alloc != nil && tx.gone(v) {
		tx.s.AddTombstone(t, img.Key(), x.Addr, x.Class, v)
	}
}
