package occ

import (
	"errors"
	"fmt"

	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// join makes c the session's coordinator: nothing of another one's is under way.
func (s *Session) join(c memory.Coordinator) {
	s.coord = c
	s.ring.init(c)
	s.count()
	s.eng.space.Join(s.thread, c.ID)
	v := s.eng.space.Current()
	s.epoch = v.Epoch
	v.Rekey(s.thread)
}

// moved takes note of a new epoch. Blades may have come up, on which the session
// now has log areas; or it was declared dead itself, although none of its verbs has
// failed, and has to rejoin.
func (s *Session) moved(v *memory.View) error {
	if s.alloc == nil {
		s.epoch = v.Epoch
		return nil
	}
	c, err := s.eng.space.Coordinator(s.coord.ID)
	if err != nil {
		return s.fail(fmt.Errorf("%w: in epoch %d: %w", ErrFenced, v.Epoch, err))
	}
	for b := range c.Logs {
		if c.Logs[b].Size > 0 && s.ring.areas[b].Size == 0 {
			// The queue pair is that to the blade before it died. A failure shows at the next verb.
			_ = s.thread.Reconnect(rdma.BladeID(b))
		}
	}
	s.ring.areas = c.Logs
	s.epoch = v.Epoch
	v.Rekey(s.thread)
	return nil
}

// outlived returns nil, or breaks the session because it was declared dead while it
// was idle.
func (s *Session) outlived() error {
	if v := s.eng.space.Current(); v.Epoch != s.epoch {
		return s.moved(v)
	}
	return nil
}

// Resolved tells the history what has become of a transaction that had ended with
// ErrOutcomeUnknown, and that is the last one that ended here.
func (tx *Tx) Resolved(id record.TxID, committed bool) {
	if tx.hist != nil {
		tx.hist.Resolve(uint64(id), tx.clock(), committed)
	}
}

// enlist is enroll that waits while the transactions of a lost blade are decided.
func (s *Session) enlist(c *rdma.Coro) error {
	for {
		err := s.enroll(c.Thread().Now())
		if !errors.Is(err, memory.ErrGated) {
			return err
		}
		c.Sleep(rejoinPollNs)
	}
}
