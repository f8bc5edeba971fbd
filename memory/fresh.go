package memory

import (
	"math"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// A blade of which a process hears nothing may serve another one, and its keys cannot be ended. When it is declared dead, that other
// process may go on reading from it until it learns of the epoch, although newer images are elsewhere. So
//
//	a transaction that has only read       asks, behind its last READ, whether the epoch has moved and whether the
//	                                       registration of its process has lasted: Fresh
//	the process that declares it dead      lets no new transaction begin until each other process has changed the catalog
//	                                       since, for which it had to learn of the epoch, or is not registered any more:
//	                                       Claim.Outlasts
//
// A transaction that writes needs neither: its commit goes to blades whose keys have been ended.

// Fresh reports whether what a thread has read by a view, up to now, could be read by the newest view as well: the catalog
// had no later epoch then, as far as other processes have gone on from it. It takes no lock.
func (s *membership) Fresh(v *View, t *rdma.Thread) bool {
	r := s.regs.Load()
	return r.epoch == v.Epoch && (r.good == math.MaxInt64 || t.Now() <= r.good)
}

// good is until when no other process goes on as if this one were gone: its registration, but for what clocks may drift apart
// within. It is counted from before the catalog was changed, and other processes count from when they have seen the change.
// The caller holds the lock.
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
	return p.Until - int64(float64(p.Term)*max(d/(1+d), leastDrift))
}

// leastDrift is which part of a registration's term is left out at least because clocks run at different rates.
const leastDrift = 1. / 8

// others are the registrations of other processes, as they were when a claim was made, and when they end by the clock of this
// one. Those that never end are left out. The caller holds the lock.
func (s *membership) others() (all []layout.ProcessEntry) {
	seen := s.regs.Load().seen
	for _, p := range s.layout.Processes {
		if p.ID == s.process || p.Resigned() || p.Until == 0 {
			continue
		}
		if x, ok := seen[p.ID]; ok && x.until == p.Until {
			p.Term = x.ends
		} else if p.Term != 0 { // it has not been registered yet in this process
			p.Term += s.fabric.Now()
		} else {
			p.Term = p.Until
		}
		all = append(all, p)
	}
	return all
}

// Outlasts reports, at a time of the fabric's clock, whether every other process that was registered when the claim was made
// has learnt of its epoch, or is gone. It follows. It belongs to the claim's coroutine.
func (c *Claim) Outlasts(now int64) (bool, error) {
	if len(c.others) == 0 {
		return true, nil
	}
	s := c.space
	if err := s.Follow(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.others = slices.DeleteFunc(c.others, func(p layout.ProcessEntry) bool {
		is := s.layout.Process(p.ID)
		return is == nil || is.Until != p.Until || now > p.Term
	})
	return len(c.others) == 0, nil
}

// Acknowledge renews the registration of this process for as long as last time, which tells another one that waits for it (Claim.Outlasts)
// that it knows the epoch.
func (s *allocation) Acknowledge() error {
	s.mu.Lock()
	lasts := s.lasts
	s.mu.Unlock()
	if lasts == 0 {
		return nil
	}
	return s.Renew(s.fabric.Now() + lasts)
}
