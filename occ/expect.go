package occ

import (
	"encoding/binary"

	"txnode/memory/record"
)

// Who knows what the transaction after this one will use can say so: of a database that
// is larger than the processor's caches, the blocks are on their way then while this one
// runs, and the next waits for nothing. Expect begins with the lines that say where the
// blocks are, and Execute, for which they have arrived, goes on with the blocks. Nothing
// is posted, decided or remembered: what is expected and not used has cost a little time.

// expected is a key that was announced with Expect.
type expected struct {
	key    uint64
	table  uint16
	update bool
}

// maxExpected bounds the keys that are expected at a time; more are ignored.
const maxExpected = 8

// Expects reports whether Expect does anything: blades are memory of this machine, and
// the tables are large.
func (tx *Tx) Expects() bool { return tx.s.far }

// Expect tells, before a transaction begins or while it runs, that the one after it will
// use a key. update means that it will probably write it.
func (tx *Tx) Expect(t *Table, key []byte, update bool) {
	if !tx.s.far {
		return
	}
	if len(key) != 8 {
		tx.s.eng.cache.Prefetch(record.Hash(t.ID, key))
		return
	}
	if tx.expecting == maxExpected {
		return
	}
	k := binary.LittleEndian.Uint64(key)
	tx.expected[tx.expecting] = expected{k, t.ID, update}
	tx.expecting++
	if !tx.s.eng.runs.Prefetch(t.ID, k) {
		tx.s.eng.cache.Prefetch(spot(t.ID, k))
	}
}

// loadExpected begins to load the blocks of what is expected, as far as their addresses
// are known.
func (tx *Tx) loadExpected() {
	n := tx.expecting
	tx.expecting = 0
	for i := range tx.expected[:n] {
		e := &tx.expected[i]
		a, class, ok := tx.s.eng.runs.Lookup(e.table, e.key)
		if !ok {
			spot := spot(e.table, e.key)
			x := tx.s.eng.cache.First(spot)
			a, class, ok = x.Addr(), x.Class(), x.Is(spot)
		}
		if ok && tx.view.Valid(a) {
			tx.touchBlock(a, class, e.update)
		}
	}
}
