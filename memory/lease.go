package memory

import "slices"

// registry is what is asked of the open coordinators without a lock.
type registry struct {
	ids   []uint32 // in order
	until []int64
	dead  []bool // being recovered
	gated bool   // one of them was declared dead together with a blade
	next  uint32 // the number of the next coordinator: this process knows nothing of that one and later ones
}

// register publishes the open coordinators; the caller holds the lock.
func (s *Space) register() {
	n := len(s.layout.Coordinators)
	r := &registry{ids: make([]uint32, n), until: make([]int64, n), dead: make([]bool, n), next: s.layout.NextCoordinator}
	for i, c := range s.layout.Coordinators {
		r.ids[i], r.until[i], r.dead[i] = c.ID, c.Until, c.Recovering
		if from, ok := s.forsaken[c.ID]; ok {
			r.until[i] = from
		}
		r.gated = r.gated || c.Promoted
	}
	s.regs.Store(r)
}

// Registered reports whether a coordinator has not been closed: it is alive, or
// its transactions are not all decided. A lock of one that is not registered
// belongs to a transaction that has had no effect. It takes no lock, unless another process may have
// registered the coordinator since this one has looked at the catalog: then it follows.
func (s *Space) Registered(id uint32) bool {
	r := s.regs.Load()
	if id >= r.next && s.Follow() == nil {
		r = s.regs.Load()
	}
	_, ok := slices.BinarySearch(r.ids, id)
	return ok
}

// LeaseState says whether a session stands for a coordinator.
type LeaseState uint8

// States of a lease.
const (
	LeaseGone    LeaseState = iota // the coordinator was closed
	LeaseLive                      // it has a lease, or needs none
	LeaseExpired                   // it may be declared dead
	LeaseClaimed                   // it is being recovered
)

// Lease says how things stand with a coordinator at a time of the fabric's clock.
// A claim that has expired is LeaseExpired. It takes no lock, unless another process may have
// registered the coordinator, or renewed its lease, since this one has looked at the catalog: then it follows.
func (s *Space) Lease(id uint32, now int64) LeaseState {
	r := s.regs.Load()
	state := r.lease(id, now)
	if (state == LeaseExpired || id >= r.next) && s.Follow() == nil {
		state = s.regs.Load().lease(id, now)
	}
	return state
}

func (r *registry) lease(id uint32, now int64) LeaseState {
	i, ok := slices.BinarySearch(r.ids, id)
	switch {
	case !ok:
		return LeaseGone
	case r.until[i] != 0 && now > r.until[i]:
		return LeaseExpired
	case r.dead[i]:
		return LeaseClaimed
	}
	return LeaseLive
}

// Gated reports whether coordinators that were declared dead together with a blade
// are still to be recovered: until then there are no new ones. It takes no lock.
func (s *Space) Gated() bool { return s.regs.Load().gated }

// Expired lists the coordinators whose lease, or the claim on them, has expired. If there seem to be any
// it follows, since another process may have renewed their leases.
func (s *Space) Expired(now int64) []uint32 {
	out := s.regs.Load().expired(now)
	if len(out) > 0 && s.Follow() == nil {
		out = s.regs.Load().expired(now)
	}
	return out
}

func (r *registry) expired(now int64) (out []uint32) {
	for i, id := range r.ids {
		if r.until[i] != 0 && now > r.until[i] {
			out = append(out, id)
		}
	}
	return out
}

// Forsake notes that no session stands for a coordinator any more. Its lease counts as expired,
// unless it is being recovered already. The process remembers this. The catalog does not: it may be
// what has kept the coordinator from being closed.
func (s *Space) Forsake(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.findLive(id); err == nil {
		s.forsake(id, 1)
	}
}

// forsakeUnknown forsakes coordinators that are being recovered under claims of this process of which
// their claimants were told that they had failed. The caller holds the lock.
func (s *Space) forsakeUnknown(was []CoordinatorEntry) {
	old := Layout{Coordinators: was}
	for i := range s.layout.Coordinators {
		e := &s.layout.Coordinators[i]
		if had := old.coordinator(e.ID); e.Recovering && (had == nil || *had != *e) {
			s.forsake(e.ID, 1)
		}
	}
}

// forsake makes the lease of a coordinator, or the claim on it, expire at a time of the fabric's clock,
// unless somebody claims it. The caller holds the lock.
func (s *Space) forsake(id uint32, from int64) {
	if s.forsaken == nil {
		s.forsaken = map[uint32]int64{}
	}
	s.forsaken[id] = from
	s.register()
}

// Renew extends leases to a time of the fabric's clock, in one change of the catalog. A coordinator
// that was declared dead keeps its claim, and learns of it from its verbs. One that is gone is
// passed over. The registration of a process that has joined is extended, too (Options.Until).
//
// The bound on the drift of clocks is in the caller's arithmetic: until lies behind the moment from
// which others may declare the coordinator dead. Only liveness depends on it.
func (s *Space) Renew(until int64, ids ...uint32) error {
	return s.updateAs(&update{unwaiting: true}, func() error { // a blade that does not revoke ends no lease
		if err := s.writable(); err != nil {
			return err
		}
		l := s.layout
		var changes []Entry
		var at []int
		for _, id := range ids {
			if i, err := s.findCoordinator(id); err == nil && !l.Coordinators[i].Recovering && l.Coordinators[i].Until < until {
				c := l.Coordinators[i]
				c.Until = until
				changes, at = append(changes, coordinatorEntry(c)), append(at, i)
			}
		}
		p, more := s.prolong(until)
		if changes = append(changes, more...); len(changes) == 0 {
			return nil
		}
		if err := s.commit(changes...); err != nil {
			return err
		}
		for _, i := range at {
			l.Coordinators[i].Until = until
		}
		if p != nil {
			p.Until = until
		}
		s.register()
		return nil
	})
}

// Current is View, but waits for a change of the epoch that is under way: blades
// have new keys before the view that has them is published.
func (s *Space) Current() (v *View) {
	s.settled(func() { v = s.View() })
	return v
}
