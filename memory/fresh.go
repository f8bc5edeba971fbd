package memory

import (
	"math"

	"txnode/memory/layout"
	"txnode/rdma"
)

// A blade of which a process hears nothing may serve another one, and its keys cannot be ended.
// When it is declared dead, that other process may go on reading from it until it learns of the
// epoch, although newer images are elsewhere. So
//
//	a transaction that has only read       asks, behind its last READ, whether the epoch has moved
//	                                       and whether the
//	                                       registration of its process has lasted: Fresh
//	the process that declares it dead      lets no new transaction begin until each other process
//	                                       has said that it knows the
//	                                       epoch (Acknowledge), or is not registered any more:
//	                                       Claim.Outlasts
//
// A transaction that writes needs neither: its commit goes to blades whose keys have been ended.
//
// What lies on one blade alone, without logs, is made anew elsewhere when that blade is lost:
// objects of channels. It has no claim that could wait. So a new one is made when every other
// process has said that it knows of the loss: LossKnown. What a process does to the old one counts
// if it is Fresh behind that.

// Fresh reports whether what a thread has read by a view, up to now, could be read by the newest
// view as well: the catalog had no later epoch then, as far as other processes have gone on from
// it. It takes no lock.
func (s *membership) Fresh(v *layout.View, t *rdma.Thread) bool {
	return s.regs.Load().epoch == v.Epoch && !s.Lapsed(t)
}

// Lapsed reports whether other processes may go on as if this one were gone, as far as it
// knows, by the clock of a thread: its registration is over, unless the catalog says
// otherwise. It takes no lock.
func (s *membership) Lapsed(t *rdma.Thread) bool {
	good := s.regs.Load().good
	return good != math.MaxInt64 && t.Now() > good
}

// good is until when no other process goes on as if this one were gone: its registration, but for
// what clocks may drift apart within. It is counted from before the catalog was changed, and other
// processes count from when they have seen the change. The caller holds the lock.
func (s *membership) good() int64 {
	if !s.opts.Shared {
		return math.MaxInt64
	}
	p := s.layout.Process(s.process)
	switch {
	case p == nil || p.Resigned():
		return 0
	case p.Until == 0:
		return math.MaxInt64
	}
	d := s.opts.ClockDrift
	return s.until - int64(float64(p.Term)*max(d/(1+d), leastDrift))
}

// leastDrift is which part of a registration's term is left out at least because clocks run
// at different rates.
const leastDrift = 1. / 8

// Outlasts reports whether every other process knows the epoch of the claim, or is gone. It asks
// the catalog. It belongs to the claim's coroutine.
func (c *Claim) Outlasts() (bool, error) {
	s := c.space
	if !c.waits || !s.opts.Shared {
		return true, nil
	}
	if err := s.Listen(); err != nil {
		return false, err
	}
	r := s.regs.Load()
	c.waits = !s.knows(r.process, r, c.view.Load().Epoch)
	return !c.waits, nil
}

// Acknowledge tells the other processes that this one knows the newest epoch, once: some may wait
// for that (Claim.Outlasts, LossKnown, Withdrawn). An error is left to the next sign of life,
// which tells them, too.
func (s *membership) Acknowledge() error {
	if e := uint32(s.regs.Load().epoch); !s.opts.Shared || s.acknowledged.Swap(e) == e {
		return nil
	}
	return s.hear()
}

// lossOf notes in r, of a layout, which blades are down, and the last epoch in which this process
// has seen that one had been lost. Behind several epochs that it sees at once one may have been
// taken in and lost again.
func (r *registry) lossOf(l *layout.Layout, old *registry) {
	for b := range l.Blades {
		if l.Blades[b].State == layout.BladeDown {
			r.down |= 1 << b
		}
	}
	switch {
	case old != nil && (r.down&^old.down == 0 && r.epoch <= old.epoch+1 || r.down == 0):
		r.loss = old.loss
	case r.down != 0:
		r.loss = r.epoch
	}
}

// LossKnown reports whether every other process knows the last epoch in which a blade was lost, as
// far as this process, of a number, has seen one, or does not go on as if it were registered.
// Processes whose registrations never end are left out. It takes no lock.
func (s *membership) LossKnown(process uint32) bool {
	r := s.regs.Load()
	return !s.opts.Shared || r.loss == 0 || s.knows(process, r, r.loss)
}

// knows reports whether every other process than one knows an epoch, as far as r says, or does not
// go on as if it were registered.
func (s *membership) knows(process uint32, r *registry, e layout.Epoch) bool {
	for i, id := range r.processes {
		if id != process && r.ends[i] != 0 && s.fabric.Now() <= r.ends[i] && r.seen[id].knows < e {
			return false
		}
	}
	return true
}
