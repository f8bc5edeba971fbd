package occ

import (
	"errors"
	"fmt"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// Unblock looks after the lock that the transaction's last conflict was with: if
// nobody alive stands for it, it is resolved, or its owner recovered. If it was a slot
// that leads to a block which nobody has, the slot is emptied. It reports
// whether that was so. If it was no lock at all, but a block that could not be read,
// it may be damaged: ErrCorrupt. If it needed log space, and who has died was in the way of
// that, they are recovered. The transaction has ended.
func (tx *Tx) Unblock() (bool, error) {
	m := tx.met
	tx.met = meeting{}
	done, err := tx.unblock(m)
	if errors.Is(err, ErrCorrupt) {
		tx.ill = ill{block: m.addr, table: m.table}
		if m.table != nil {
			tx.ill.hash = record.Hash(m.table.ID, m.key)
		}
	}
	return done, tx.naming(m, err)
}

func (tx *Tx) unblock(m meeting) (bool, error) {
	if tx.s.alloc == nil && (m.guard.Held() || m.table != nil && m.addr != 0) { // it only reads
		if err := tx.metReadOnly(m); err != nil || m.table == nil {
			return false, err
		}
		return false, tx.contradicted(m.addr)
	}
	if m.table != nil {
		done, err := tx.vacate(m)
		if err == nil && !done {
			err = tx.contradicted(m.addr)
		}
		return done, err
	}
	if !m.guard.Held() && m.addr != 0 {
		_, err := tx.Examine(m.addr)
		return false, err
	}
	if !m.guard.Held() && !m.stalled || tx.s.broken != nil {
		return false, nil // a broken session rejoins first
	}
	space := tx.s.eng.space
	owner := m.guard.Owner().Coordinator()
	if owner == tx.s.coord.ID && !m.stalled {
		if err := tx.s.reap(); err != nil {
			return false, err
		}
		return false, tx.locked(m)
	}
	tx.s.background++
	tx.s.openSpare()
	defer func() {
		tx.s.closeSpare()
		tx.s.background--
	}()
	if m.stalled {
		err := tx.s.recoverExpired(tx.c)
		return err == nil, err
	}
	switch space.Lease(owner, tx.s.thread.Now()) {
	case memory.LeaseGone:
		left, err := recovery.Unlock(tx.c, tx.s.Recovery(), m.addr)
		return left != recovery.UnlockedNot, err
	case memory.LeaseExpired:
		_, err := recovery.Recover(tx.c, tx.s.Recovery(), owner)
		if errors.Is(err, memory.ErrClaimed) {
			return false, nil
		}
		return err == nil, err
	case memory.LeaseLive:
		return false, tx.locked(m)
	}
	return false, nil
}

// metReadOnly says what the transaction has met, if the database is open read-only. It was swept
// before, but for what belongs to a damaged index: then nobody is at work who was known, and what a
// dead one has left in the way of others stays. Else who has closed has left no lock.
func (tx *Tx) metReadOnly(m meeting) error {
	space, owner := tx.s.eng.space, m.guard.Owner().Coordinator()
	switch {
	case m.table == nil && (space.Registered(owner) || owner >= space.Layout().NextCoordinator && !tx.s.eng.opts.Still):
		return nil
	case space.OnlyDamage():
		return fmt.Errorf("%w: block %v has something that a client has left which died, and the index of its table "+
			"was damaged; the database, closed, can be checked, and repaired from another copy: who opens it for "+
			"writing then finishes it", ErrCorrupt, m.addr)
	case m.table == nil:
		return fmt.Errorf("%w: block %v looks locked by transaction %v, and nobody is at work: its guard is damaged; "+
			"the database, closed, can be checked, and whoever opens it for writing takes that lock off",
			ErrCorrupt, m.addr, m.guard.Owner())
	}
	return nil
}

// reap looks whether a release of the session's has failed in the background, which
// breaks it: a transaction of its own is in the way.
func (s *Session) reap() error {
	for _, tx := range s.txs {
		for i := range tx.flights {
			if bg := &tx.flights[i].bg; bg.Done() && bg.Err() != nil {
				return s.fail(bg.Err())
			}
		}
	}
	return nil
}

// vacate empties a slot that leads to a block which nobody has, as far as can be seen.
func (tx *Tx) vacate(m meeting) (bool, error) {
	s := tx.s
	if m.addr == 0 || s.alloc == nil || s.broken != nil {
		return false, nil
	}
	s.background++
	s.openSpare()
	defer func() {
		s.closeSpare()
		s.background--
	}()
	done, err := recovery.Vacate(tx.c, s.Recovery(), m.table.ID, m.key, m.addr)
	if errors.Is(err, rdma.ErrVerb) {
		_ = s.fail(err) // it may have left locks of the index behind
	}
	return done, err
}

// meeting is what has ended an attempt: a lock that was met, or a slot whose block
// stayed free however often the key was looked up.
type meeting struct {
	addr  layout.Addr
	guard record.Guard
	table *Table // of the key, if it is a slot
	key   []byte

	stalled bool // it was a dead one's commit, for which a checkpoint waits
}

// Met returns where the record is whose lock has ended the last attempt; 0: it was no lock.
func (tx *Tx) Met() layout.Addr {
	if !tx.met.guard.Held() {
		return 0
	}
	return tx.met.addr
}

// MetLock returns the lock that has ended the last attempt; 0: it was none. No two transactions
// lock a record by the same word.
func (tx *Tx) MetLock() record.Guard {
	if !tx.met.guard.Held() {
		return 0
	}
	return tx.met.guard
}

// Locked reports whether the transaction, or the last one, was to lock the record at a.
func (tx *Tx) Locked(a layout.Addr) bool {
	for i := range tx.items {
		if it := &tx.items[i]; it.addr == a && (it.update || it.write != writeNone) {
			return true
		}
	}
	return false
}

// meet notes the lock of an item's block that is in the way, and is the conflict with its holder.
func (tx *Tx) meet(r AbortReason, it *item, g record.Guard) error {
	tx.met = meeting{addr: it.addr, guard: g}
	return tx.conflict(r, it)
}

// Waits reports whether Unblock may have to wait for the catalog or for blades: the transaction has
// met something that is not the lock of a coordinator that is known to live.
func (tx *Tx) Waits() bool {
	m := &tx.met
	switch {
	case m.table != nil || m.stalled || !m.guard.Held() && m.addr != 0:
		return true
	case !m.guard.Held():
		return false
	}
	owner := m.guard.Owner().Coordinator()
	return owner != tx.s.coord.ID && !tx.s.eng.space.Lives(owner, tx.s.thread.Now())
}
