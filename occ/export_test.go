package occ

import (
	"encoding/binary"

	"txnode/index/addrcache"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// ForgetAddresses empties the address cache.
func (e *Engine) ForgetAddresses() {
	e.cache, e.runs = addrcache.New(e.opts.CacheBytes), addrcache.NewRuns(e.opts.CacheBytes)
}

// Join makes c the session's coordinator.
func (s *Session) Join(c memory.Coordinator) { s.join(c) }

// SpendIDs leaves the session's coordinator so many transaction ids.
func (s *Session) SpendIDs(left uint64) { s.seq = record.MaxSequence - 1 - left }

// Tombstones is how many deleted records wait to be reclaimed.
func (s *Session) Tombstones() int { return s.reclaim.len() }

// Together is what is flushed for log records of 64 bytes at some places: blade, first byte and
// end of each.
func (e *Engine) Together(at ...rdma.RemoteAddr) (flushed [][3]uint64) {
	var ranges []logRange
	for _, a := range at {
		ranges = append(ranges, logRange{a.Blade, a.Off, 64})
	}
	for _, r := range e.durable.together(e.space, ranges) {
		flushed = append(flushed, [3]uint64{uint64(r.blade), r.off, r.off + uint64(r.n)})
	}
	return flushed
}

// LogAreas are the log areas that the session writes to, by blade.
func (s *Session) LogAreas() []memory.LogArea { return s.ring.areas }

// Built is how many items have had their requests built when they were staged.
func (tx *Tx) Built() int { return tx.built }

// Roundabout keeps the session's transactions from the straight path.
func (s *Session) Roundabout() { s.plain, s.straight, s.lines = false, false, 0 }

// Far makes transactions load blocks before they are asked for, however few there are.
func (e *Engine) Far() { e.farRuns = 0 }

// Expecting is how many keys are expected whose blocks are not on their way yet.
func (tx *Tx) Expecting() int { return tx.expecting }

// Judged is how many items certify does not look at again.
func (tx *Tx) Judged() int { return int(tx.judged) }

// ItemAddr is where the record of an item is.
func (tx *Tx) ItemAddr(i int) layout.Addr { return tx.items[i].addr }

// Holds reports whether a block is on its way: the session has it, and no commit has
// made it one in use.
func (s *Session) Holds(a layout.Addr) bool { return s.alloc.Holds(a) }

// Known reports whether the address of the record of an 8-byte key is cached.
func (e *Engine) Known(t *Table, key []byte) bool {
	it := item{table: t, klen: 8, short: binary.LittleEndian.Uint64(key)}
	if _, _, ok := e.runs.Lookup(t.ID, it.short); ok {
		return true
	}
	_, _, ok := e.cache.Lookup(it.place())
	return ok
}

// Drain waits for everything that the transaction has posted.
func (tx *Tx) Drain() error { return tx.drain(tx.c) }
