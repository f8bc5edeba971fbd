package race

import (
	"txnode/index"
	"txnode/memory/layout"
	"txnode/rdma"
)

// TryReplace is one attempt to make the slot of block old point to block a, by a
// client that holds no lock, as RACE publishes it (algorithm 3): it compares and swaps
// the slot that the query has seen. false: the slot has changed since, or is being
// moved; the caller looks the key up again. The block a must be placed.
//
// Of two clients that update a key one succeeds, and the other finds out: what the
// slot leads to was current at the moment of the swap, or its address had come back
// to the slot, which no blind write can tell. It is for indexes without backups: the
// steps of two clients would reach those in any order.
func (ix *Index) TryReplace(c *rdma.Coro, q *index.Query, old, a layout.Addr, class layout.Class) (bool, error) {
	s := ix.get()
	defer ix.put(s)
	own, n := ownSlot(ix.matches(c, s, q), old)
	if n != 1 || own.value.Moving() {
		return false, nil
	}
	return ix.one(c, s, q.View, own.at, uint64(own.value), uint64(MakeSlot(fingerprint(q.Hash), class, a)))
}
