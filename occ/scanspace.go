package occ

import (
	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// scanSpace is what a Scan collects. It is used again by scans of later transactions, so that a
// scan allocates nothing for its records. A Scan whose transaction has ended no longer looks at it.
type scanSpace struct {
	found []evidence
	batch rdma.Batch
	// cands are the blocks of a piece of the index, and reading those that are read together.
	cands, reading []index.Candidate
	blocks         []block // of an ordered table, that are read together
	ordered        orderedScan

	rows []scanRow // of the piece
	data []byte    // their keys and values
	// given are the data of earlier pieces, which the caller may keep until the transaction
	// ends; spare are free.
	given, spare [][]byte
}

// spareSpace is how many bytes of scanSpace a Tx keeps between transactions, about: the next one
// may not begin for long.
const spareSpace = 1 << 20

// newScan begins a scan that has read nothing.
func (tx *Tx) newScan(t *Table) *Scan {
	s := &Scan{
		tx: tx, id: tx.id, table: t, want: scanFirst, next: tx.scans, since: len(tx.notes.list), writes: tx.writes > 0,
	}
	if n := len(tx.spaces); n > 0 {
		s.scanSpace, tx.spaces = tx.spaces[n-1], tx.spaces[:n-1]
		s.found, s.rows = s.found[:0], s.rows[:0]
		s.spare = append(s.spare, s.given...)
		s.data, s.given = s.data[:0], s.given[:0]
	} else {
		s.scanSpace = new(scanSpace)
	}
	tx.scans = s
	tx.loops = append(tx.loops, s)
	return s
}

// endScans takes the spaces of all scans back, as many as may be kept.
func (tx *Tx) endScans() {
	room := spareSpace
	for _, x := range tx.spaces {
		room -= x.size()
	}
	for s := tx.scans; s != nil; s = s.next {
		if room -= s.size(); room < 0 {
			break
		}
		tx.spaces = append(tx.spaces, s.scanSpace)
	}
	tx.scans = nil
	clear(tx.loops)
	tx.loops = tx.loops[:0]
	tx.notes.reset()
	clear(tx.proofs) // they lead to the spaces
	if (16+24)*cap(tx.proofs) > spareSpace {
		tx.checks, tx.proofs, tx.order = nil, nil, nil
	}
}

// size is about how many bytes the space has.
func (x *scanSpace) size() int {
	n := 40*cap(x.rows) + 32*cap(x.found) + 16*(cap(x.cands)+cap(x.blocks)) + cap(x.data)
	for _, b := range x.given {
		n += cap(b)
	}
	for _, b := range x.spare {
		n += cap(b)
	}
	return n
}

// nextData gives the data of the rows to the caller, and takes other room for those of the next
// piece.
func (s *Scan) nextData() {
	if len(s.data) == 0 {
		return
	}
	if s.unvalidated {
		s.data = s.data[:0]
		return
	}
	s.given = append(s.given, s.data)
	s.data = nil
	if n := len(s.spare); n > 0 {
		s.data, s.spare = s.spare[n-1][:0], s.spare[:n-1]
	}
}

// evidence is a block that a scan has met.
type evidence struct {
	addr  layout.Addr
	guard record.Guard // as it was read; it must still be that
	row   bool         // it was a record, and the caller gets it from the scan
	own   bool         // it is known by an item of the transaction only
	held  bool         // an item protects it: see cover
	gone  bool         // nothing depends on it any more
}

type scanRow struct {
	seen       int // of Scan.seen, before it
	at         int // of the key in Scan.data; the value follows
	klen, vlen int
	found      int32
}
