package occ

import (
	"txnode/index"
	"txnode/memory/record"
)

// insistMost is how many keys a transaction may have when a scan locks a further one. Each is an
// item, with room for its block in the arena.
const insistMost = 1 << 14

// Insist has the walk lock the records that it reads, and the leaves if the table is ordered, so
// that no other transaction can change them: for one that has lost too often to such changes.
// Beyond insistMost items and insistLeaves leaves it locks no more; what it reads without a lock is
// validated as always. The walk must not have begun. A range with a limit locks nothing: it is
// short, and its callers meet at one leaf.
//
// A lock is had by staging the key for update; records that come to be locked are read again, at
// the price of a second look at each unit of the walk.
func (s *Scan) Insist() {
	s.insists = !s.unvalidated && s.tx.s.alloc != nil && (s.o == nil || s.o.limit == 0)
}

// lock is what a walk that insists does with a unit of which it has read the leaves and rows from
// these numbers on. again: some were not locked. Leaves are by now, as far as nothing else has
// them, and records are staged for that: they are to be executed, and the unit is to be read again.
func (s *Scan) lock(leaves, rows int) (again bool, err error) {
	tx := s.tx
	if s.o != nil {
		if again, err = s.lockLeaves(leaves); err != nil {
			return false, err
		}
	}
	for k := rows; k < len(s.rows) && len(tx.items) < insistMost; k++ {
		r := &s.rows[k]
		if s.found[r.found].own {
			continue
		}
		i, err := tx.Stage(s.table, s.data[r.at:r.at+r.klen], true)
		if err != nil {
			return false, err
		}
		again = again || i >= tx.fetched // else the transaction has read it, and validates that
	}
	return again, nil
}

// insistLooks is how often a unit is read again for its locks.
const insistLooks = 3

// insistLeaves is how many leaves a transaction locks for its scans at most.
const insistLeaves = 256

// lockLeaves locks leaves, at the versions that were read. A leaf that cannot be locked now is read
// again, which tells why.
func (s *Scan) lockLeaves(first int) (tried bool, err error) {
	tx, b := s.tx, &s.batch
	b.Reset()
	s.locks = s.locks[:0]
	for i := first; i < len(s.o.leaves) && len(tx.nodes) < insistLeaves; i++ {
		e := &s.o.leaves[i]
		k := tx.node(s.table, index.Hop{Addr: e.addr})
		if n := &tx.nodes[k]; n.locked || n.used && n.version != e.guard.Version() {
			continue
		}
		g := tx.view.At(e.addr, 0)
		g.Off += record.GuardOff
		b.CAS(g, uint64(e.guard), uint64(record.HeldBy(tx.id)))
		s.locks = append(s.locks, leafLock{k, e.guard})
	}
	if len(s.locks) == 0 {
		return false, nil
	}
	if err := tx.c.Do(b); err != nil {
		return false, tx.s.stopped(err)
	}
	for i, x := range s.locks {
		if n := &tx.nodes[x.node]; record.Guard(b.Result(i)) == x.guard {
			if n.version != x.guard.Version() {
				n.state = nodeNew // its image is of another version
			}
			n.locked, n.prior, n.version, n.stale = true, x.guard, x.guard.Version(), false
		}
	}
	return true, nil
}

// leafLock is a leaf that is being locked.
type leafLock struct {
	node  int // in Tx.nodes
	guard record.Guard
}
