package occ

import (
	"errors"
	"fmt"

	"txnode/index"
	"txnode/rdma"
)

// A process may be cut off blades that live (see memory.Space.CutOff). Its sessions go on without
// these: their threads post nothing there (rdma.Thread.Bar), so nothing that has met such a blade
// is undecided, and the session is not broken by it.
//
//	a READ, or a lock      of a record or an index there fails with memory.ErrCutOff, and the
//	                       transaction rolls back
//	a commit               looks at all copies of what it writes before it writes its log: refrain
//	a session              that was broken by a request to such a blade gives up its coordinator,
//	                       and goes on as another one: settleOld
//	a coordinator          with log areas there cannot be closed, since they cannot be cleared. It
//	                       is given up, and others close it

// bar has the thread do without the blades that the process does without.
func (s *Session) bar() {
	s.without = bladeSet(s.eng.space.Without())
	s.thread.Bar(uint64(s.without))
	s.ring.reach(s.without)
}

// reach is bar when the process has been cut off others since, or reaches them again. The session
// rejoins if too few blades are left that have log areas of it, or if it has no area on a blade
// that is reached again.
func (s *Session) reach() error {
	was := s.without | bladeSet(s.thread.Barred())
	s.bar()
	v := s.eng.space.View()
	for again := was &^ s.without; again != 0; {
		b := again.take()
		_ = s.thread.Reconnect(b) // a failure shows at the next verb
		if s.alloc != nil && v.Up(b) && !s.ring.on.has(b) {
			return s.fail(fmt.Errorf("%w: blade %d is reached again, and has no log area of the session", ErrFenced, b))
		}
	}
	if s.alloc != nil && s.ring.on.len() < min(s.eng.space.Backups()+1, v.UpBlades()) {
		return s.fail(fmt.Errorf("%w: %w", ErrFenced, s.eng.space.CutOffError(uint64(s.without))))
	}
	return nil
}

// stopped is fail for an error of requests that only read, or that lock, and that were all posted
// at once: if none was posted, since a blade is one that the session does without, nothing has
// happened, and the session is not broken.
func (s *Session) stopped(err error) error {
	if e := s.refused(err); e != nil {
		return e
	}
	return s.fail(err)
}

// refused returns the memory.ErrCutOff that an error comes to if requests were not posted because
// of a blade that the session does without; else nil.
func (s *Session) refused(err error) error {
	var v *rdma.VerbError
	if s.broken == nil && errors.Is(err, rdma.ErrBarred) && errors.As(err, &v) {
		return s.cutOff(bladeSet(rdma.BladeBit(v.Blade)))
	}
	return nil
}

// cutOff is the memory.ErrCutOff of what needs one of some blades, which the session does without.
func (s *Session) cutOff(blades bladeSet) error {
	if err := s.eng.space.CutOffError(uint64(blades)); err != nil {
		return err
	}
	return fmt.Errorf("%w: a blade is reached again just now", ErrConflict) // the next attempt uses it
}

// refrain returns a memory.ErrCutOff if the transaction, which is sealed, is about to write to a
// blade that its session does without.
func (tx *Tx) refrain() error {
	if bar := tx.s.without & (tx.homes | tx.behind); bar != 0 {
		return tx.s.cutOff(bar)
	}
	return nil
}

// placed is an index that says where a change of the slot of a resolved query is written: a
// bit for each blade.
type placed interface {
	Blades(q *index.Query) uint64
}

// reachesIndex returns a memory.ErrCutOff if a change of a table's index, which is made in steps,
// would be written to a blade that the session does without.
func (s *Session) reachesIndex(t *Table, q *index.Query) error {
	if s.without == 0 || q == nil {
		return nil
	}
	if x, ok := t.Index.(placed); ok {
		if bar := bladeSet(x.Blades(q)) & s.without; bar != 0 {
			return s.cutOff(bar)
		}
	}
	return nil
}

// reachDiffers reports whether the session, or its thread, does without other blades than the
// process: others have been cut off, or are reached again.
func (s *Session) reachDiffers() bool {
	now := s.eng.space.Without()
	return uint64(s.without) != now || s.thread.Barred() != now
}

// follow is reach between two transactions.
func (s *Session) follow() error {
	if s.broken != nil || !s.reachDiffers() {
		return s.broken
	}
	return s.reach()
}

// beyond reports whether only another process can decide the transactions of the session's
// coordinator: log areas of it, or requests with an unknown effect, are on blades that this
// process does without.
func (s *Session) beyond() bool {
	return s.eng.space.IsCutOff() && (s.ring.left() || s.thread.Uncertain())
}

// giveUp leaves the transactions of a coordinator to other processes. They end earlier keys
// before they decide.
func (s *Session) giveUp(coordinator uint32) error {
	if err := s.eng.space.GiveUp(coordinator); err != nil {
		return err
	}
	s.thread.ClearUncertain()
	return nil
}

// dropOld forgets what the transactions of a coordinator may have left that was given up, and
// is undecided, or that cannot be resolved without blades which are not reached. No block of
// theirs counts as free.
func (s *Session) dropOld() error {
	for _, tx := range s.txs {
		tx.nodes = tx.nodes[:0]
		for i := range tx.flights {
			tx.flights[i].installs = nil
		}
		clear(tx.items)
		tx.items = tx.items[:0]
	}
	return s.alloc.Abandon()
}
