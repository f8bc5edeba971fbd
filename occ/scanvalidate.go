package occ

import (
	"errors"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// Validation of what scans have read: see Scan, and docs/ordered.md.

// validateScans repeats what the scans of the transaction have read: nil, a conflict, or
// errOwnBlocks if an index has changed, but no record is new: then everything is to be
// validated once more.
func (tx *Tx) validateScans() error {
	var again error
	for s := tx.scans; s != nil; s = s.next {
		if err := s.validate(); errors.Is(err, errOwnBlocks) {
			again = err
		} else if err != nil {
			return err
		}
	}
	tx.valid = again == nil
	return again
}

func (s *Scan) validate() error {
	if s.o != nil {
		return nil // see guardsJoined
	}
	if err := s.guards(); err != nil {
		return err
	}
	if !s.complete {
		return nil
	}
	same, err := s.ix.Unchanged(s.tx.c)
	if err != nil {
		return s.indexError(err)
	}
	if same {
		return nil
	}
	return s.walkAgain()
}

// cover finds the blocks that items of the transaction protect: by a lock, or because they are
// validated themselves. A block that the scan knows by an item only is forgotten when no item has
// it any more, as another record may get it.
func (s *Scan) cover() error {
	if s.unvalidated {
		return nil
	}
	if s.o != nil {
		if err := s.coverLeaves(); err != nil {
			return err
		}
		s.knowFound()
	}
	if len(s.found) == 0 {
		return nil
	}
	for i := range s.found {
		s.found[i].held = false
	}
	for i := range s.tx.items {
		it := &s.tx.items[i]
		if it.table != s.table || it.addr == 0 {
			continue
		}
		k, ok := s.known[it.addr]
		if !ok {
			continue
		}
		switch e := &s.found[k]; {
		case e.gone:
		case e.own:
			e.held = true
		case it.locked && e.guard != it.prior:
			return s.tx.conflict(AbortValidation, it)
		case it.locked:
			e.held = true
		}
	}
	for i := range s.found {
		if e := &s.found[i]; e.own && !e.held && !e.gone {
			e.gone = true
			delete(s.known, e.addr)
		}
	}
	return nil
}

// guards compares the guards of all blocks.
func (s *Scan) guards() error {
	tx, t := s.tx, s.tx.s.thread
	if len(s.found) == 0 {
		return nil
	}
	buf, err := t.Alloc(8 * scanGuards)
	if err != nil {
		return s.indexError(err)
	}
	defer t.Free(buf, 8*scanGuards)
	for from := 0; from < len(s.found); {
		b := &s.batch
		b.Reset()
		to := from
		for ; to < len(s.found) && b.Len() < scanGuards; to++ {
			if e := &s.found[to]; !e.held && !e.gone {
				g := tx.view.At(e.addr, 0)
				g.Off += record.GuardOff
				b.Read(g, buf+uint32(8*b.Len()), 8)
			}
		}
		if b.Len() > 0 {
			if err := tx.c.Do(b); err != nil {
				return tx.s.stopped(err)
			}
		}
		n := uint32(0)
		for i := from; i < to; i++ {
			e := &s.found[i]
			if e.held || e.gone {
				continue
			}
			g := record.Guard(t.Word(buf + 8*n))
			n++
			if g == e.guard {
				continue
			}
			if it := (&item{table: s.table, addr: e.addr}); g.Held() {
				return tx.meet(AbortReadLocked, it, g)
			} else { //nolint:revive // it is of both
				return tx.conflict(AbortValidation, it)
			}
		}
		from = to
	}
	return nil
}

// walkAgain reads the index anew, since it has changed: perhaps by blocks of the transaction's own,
// or by a split. Records that were not known are the next rows, or a conflict if the caller was
// told that there are no more.
func (s *Scan) walkAgain() error {
	tx := s.tx
	s.checking = true
	defer func() { s.checking = false }()
	rows := len(s.rows)
	s.ix.Restart()
	for more := true; more; {
		var err error
		if more, err = s.unit(); err != nil {
			return err
		}
	}
	if s.claimed && len(s.rows) > rows {
		return tx.conflict(AbortPhantom, &item{table: s.table})
	}
	return errOwnBlocks
}

// count is how many records the scan has read for which no item stands.
func (s *Scan) count() (n uint64) {
	s.knowFound()
	for i := range s.found {
		if s.found[i].row && !s.found[i].held && !s.found[i].gone {
			n++
		}
	}
	for i := range s.tx.items {
		if k, ok := s.known[s.tx.items[i].addr]; ok && s.found[k].row && !s.found[k].held && !s.found[k].gone {
			n--
		}
	}
	return n
}

// knowFound makes Scan.known, which a walk over an ordered table needs only beside items.
func (s *Scan) knowFound() {
	if s.o == nil || len(s.tx.items) == 0 {
		return
	}
	if s.known == nil {
		s.known = make(map[layout.Addr]int32, len(s.found))
	}
	clear(s.known)
	for i := range s.found {
		s.known[s.found[i].addr] = int32(i)
	}
}

// coverLeaves finds the leaves that the transaction has locked, and so protects.
func (s *Scan) coverLeaves() error {
	tx := s.tx
	for i := range s.o.leaves {
		s.o.leaves[i].held = false
	}
	for i := range tx.nodes {
		n := &tx.nodes[i]
		if !n.locked || n.table != s.table {
			continue
		}
		for k := range s.o.leaves {
			e := &s.o.leaves[k]
			if e.addr != n.addr {
				continue
			}
			if e.guard != n.prior {
				return tx.conflict(AbortPhantom, &item{table: s.table, addr: n.addr})
			}
			e.held = true
		}
	}
	return nil
}

// tableEvidence is evidence of a table.
type tableEvidence struct {
	*evidence
	table *Table
}

// guardsJoined posts what appendValidation has appended, and compares the guards of all leaves and
// all records that scans of ordered tables have read, in the same round trip as far as there is
// room. Guards of blocks that lie side by side are read by one READ of the lines.
func (tx *Tx) guardsJoined() error {
	c, b, t := tx.c, &tx.batch, tx.s.thread
	tx.checks, tx.proofs = tx.checks[:0], tx.proofs[:0]
	for s := tx.scans; s != nil; s = s.next {
		if s.o == nil {
			continue
		}
		for _, all := range [][]evidence{s.o.leaves, s.found} {
			for i := range all {
				if e := &all[i]; !e.held && !e.gone {
					tx.checks = append(tx.checks, block{addr: e.addr + record.GuardOff, n: 8})
					tx.proofs = append(tx.proofs, tableEvidence{e, s.table})
				}
			}
		}
	}
	if len(tx.checks) == 0 {
		if b.Len() > 0 {
			if err := c.Do(b); err != nil {
				return tx.s.stopped(err)
			}
		}
		return nil
	}
	buf, room, err := scanBuffer(t)
	if err != nil {
		return tx.indexError(&item{table: tx.proofs[0].table}, "walking", err)
	}
	defer func() { t.Free(buf, room) }()
	for blocks, proofs := tx.checks, tx.proofs; len(blocks) > 0; b.Reset() {
		var n int
		n, tx.order = tx.joined(b, blocks, tx.order, buf, uint32(room))
		if err := c.Do(b); err != nil {
			return tx.s.stopped(err)
		}
		for i, e := range proofs[:n] {
			g := record.Guard(t.Word(blocks[i].to))
			if g == e.guard {
				continue
			}
			switch it := (&item{table: e.table, addr: e.addr}); {
			case g.Held():
				return tx.meet(AbortReadLocked, it, g)
			case e.row:
				return tx.conflict(AbortValidation, it)
			default:
				return tx.conflict(AbortPhantom, it)
			}
		}
		blocks, proofs = blocks[n:], proofs[n:]
	}
	return nil
}
