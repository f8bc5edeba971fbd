package occ

import (
	"errors"
	"fmt"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// join makes c the session's coordinator: nothing of another one's is under way.
func (s *Session) join(c memory.Coordinator) {
	space := s.eng.space
	v := space.Current()
	s.epoch = 0 // if it is dead already, the next transaction finds out
	// A blade may have come up since c was registered: its log area is not in c.
	if now, of, err := space.Coordinator(c.ID); err == nil {
		c, v = now, of
		s.epoch = v.Epoch
	}
	s.coord = c
	s.ring.init(c)
	s.count()
	space.Join(s.thread, c.ID)
	v.Rekey(s.thread)
}

// moved takes note of a new epoch, and returns its view. Blades may have come up, on
// which the session now has log areas; or it was declared dead itself, although none of
// its verbs has failed, and has to rejoin.
func (s *Session) moved(co *rdma.Coro) (*layout.View, error) {
	var c memory.Coordinator
	var v *layout.View
	space, id, none := s.eng.space, s.coord.ID, s.alloc == nil
	err := co.Await(func() (err error) { // an epoch that another process has begun begins here, too
		if none {
			v = space.Current()
			return nil
		}
		c, v, err = space.Coordinator(id)
		return err
	}, nil)
	if errors.Is(err, rdma.ErrLeft) {
		return nil, err
	}
	if none {
		s.epoch = v.Epoch
		return v, nil
	}
	if err != nil {
		return nil, s.fail(fmt.Errorf("%w: after epoch %d: %w", ErrFenced, s.epoch, err))
	}
	for b := range c.Logs {
		if c.Logs[b].Size > 0 && s.ring.areas[b].Size == 0 {
			// The queue pair is that to the blade before it died. A failure shows at the next verb.
			_ = s.thread.Reconnect(rdma.BladeID(b))
		}
	}
	s.ring.take(c.Logs)
	// as of a new coordinator, there are always so many
	if s.ring.on.len() < min(s.eng.space.Backups()+1, v.UpBlades()) {
		return nil, s.fail(fmt.Errorf("%w: after epoch %d too few blades have log areas of the session",
			ErrFenced, v.Epoch))
	}
	s.epoch = v.Epoch
	v.Rekey(s.thread)
	return v, nil
}

// outlived returns nil, or breaks the session because it was declared dead while it
// was idle.
func (s *Session) outlived(c *rdma.Coro) error {
	if s.eng.space.Current().Epoch == s.epoch {
		return nil
	}
	_, err := s.moved(c)
	return err
}

// Resolved tells the history what has become of a transaction that had ended with
// ErrOutcomeUnknown, and that is the last one that ended here.
func (tx *Tx) Resolved(id record.TxID, committed bool) {
	if tx.hist != nil {
		tx.hist.Resolve(uint64(id), tx.clock(), committed)
	}
}

// enlist is enroll that waits while the transactions of a lost blade are decided, and
// sees to it that they are: whoever was at it may have died.
func (s *Session) enlist(c *rdma.Coro) error {
	for {
		err := s.enroll(c.Thread().Now())
		if !errors.Is(err, memory.ErrGated) {
			return err
		}
		if down := s.eng.opts.BladeDown; down != nil {
			if err := down(c, err); err != nil {
				return err
			}
		}
		c.Sleep(rejoinPollNs)
	}
}
