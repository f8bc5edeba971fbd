package memory

import "slices"

// longAgo is an end of a lease that has passed by every clock of a fabric.
const longAgo = 1

// Silence says which processes have shown no sign of life for so long that they count as dead: exactly these, and not those of an
// earlier call. Their registrations, the leases of their coordinators, and their claims have expired then, as far as
// this process is concerned, whatever the catalog says. The number of this process, and leases that never expire, are passed over. A process
// whose registration has ended while it was silent stays silent until its coordinators are recovered: its number does not come back.
//
// It only says when others may declare a process dead, as the clock does with a lease. Whether it is dead is what the catalog says after
// [Space.TakeOver] and [Space.Claim], and no verb of it takes effect after the epoch of these. A process that was taken for dead and is
// alive registers anew, as after a lease that it has not renewed in time. Safe for concurrent use.
func (s *membership) Silence(processes ...uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := slices.DeleteFunc(slices.Clone(processes), func(id uint32) bool { return id == 0 || id == s.process })
	for _, id := range s.silent {
		left := func(c CoordinatorEntry) bool { return s.layout.Holder(c) == id }
		if !slices.Contains(silent, id) && s.layout.Process(id) == nil && slices.ContainsFunc(s.layout.Coordinators, left) {
			silent = append(silent, id)
		}
	}
	if s.closed == nil && !slices.Equal(s.silent, silent) {
		s.silent = silent
		s.register()
	}
}

// silenced reports whether the process that a coordinator, or the claim on it, belongs to is silent. The caller holds the lock.
func (s *membership) silenced(c CoordinatorEntry) bool {
	return len(s.silent) > 0 && c.Until != 0 && slices.Contains(s.silent, s.layout.Holder(c))
}
