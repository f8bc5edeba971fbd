package occ

import "txnode/memory/record"

// TableCounts are running totals of what transactions have done to the keys of one table. A key
// counts once for a transaction. Reads, Updates, Inserts and Deletes are of transactions that have
// committed; Conflicts are attempts that have not, because of a key of the table.
type TableCounts struct {
	Reads     uint64 // keys that were read, absent ones included, and not written
	Updates   uint64 // records that were replaced
	Inserts   uint64 // keys that had no value and got one
	Deletes   uint64
	Conflicts uint64
}

// Add adds d to c.
func (c *TableCounts) Add(d *TableCounts) {
	c.Reads += d.Reads
	c.Updates += d.Updates
	c.Inserts += d.Inserts
	c.Deletes += d.Deletes
	c.Conflicts += d.Conflicts
}

// tally counts what a Tx has done to one table: keys by what was written, and the state that was
// read. The loop over the items of a transaction that has committed only counts; TableCounts
// says what that means.
type tally struct {
	done [4 * tallyStates]uint64 // as many as are a power of two, so that no index is out of bounds
}

// tallyStates is how many states of a block there are, rounded up to a power of two.
const tallyStates = 4

// Elements of a tally that are of no write.
const (
	tallyFresh     = 3 * tallyStates // not 0: it has changed since Tallies told it
	tallyConflicts = 3*tallyStates + 1
)

// counts is what the tally means.
func (t *tally) counts() TableCounts {
	at := func(w write, s record.State) uint64 { return t.done[uint8(w)*tallyStates+uint8(s)] }
	c := TableCounts{Conflicts: t.done[tallyConflicts]}
	for s := range record.State(tallyStates) {
		c.Reads += at(writeNone, s)
	}
	c.Updates = at(writePut, record.Live)
	c.Inserts = at(writePut, record.Absent) + at(writePut, record.Free)
	c.Deletes = at(writeDelete, record.Live)
	return c
}

// tallyAll counts the items of a transaction that has committed.
func (tx *Tx) tallyAll() {
	items, all := tx.items, tx.tallies
	for i := range items {
		it := &items[i]
		id := uint(it.table.ID)
		if id >= uint(len(all)) || all[id].done[tallyFresh] == 0 {
			tx.tallyFresh(it.table)
			all = tx.tallies
		}
		all[id].done[(it.write*tallyStates+write(it.state))%(4*tallyStates)]++
	}
	for s := tx.scans; s != nil; s = s.next {
		tx.tallyFresh(s.table).done[uint8(writeNone)*tallyStates+uint8(record.Live)] += s.count()
	}
}

// tallyFresh makes sure that a table has a tally, and notes that it changes. It is a function of
// its own, so that tallyAll needs no frame for it.
//
//go:noinline
func (tx *Tx) tallyFresh(t *Table) *tally {
	id := int(t.ID)
	for id >= len(tx.tallies) {
		tx.tallies = append(tx.tallies, tally{})
	}
	x := &tx.tallies[id]
	if x.done[tallyFresh] == 0 {
		x.done[tallyFresh] = 1
		tx.tallied = append(tx.tallied, t.ID)
	}
	return x
}

// Tallies tells the totals of each table, by its number, that have changed since it was called
// last. It is called where the transaction runs.
func (tx *Tx) Tallies(tell func(table uint16, c TableCounts)) {
	for _, id := range tx.tallied {
		x := &tx.tallies[id]
		x.done[tallyFresh] = 0
		tell(id, x.counts())
	}
	tx.tallied = tx.tallied[:0]
}
