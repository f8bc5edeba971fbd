package memory

import (
	"sync/atomic"

	"txnode/rdma"
)

// joined is a thread whose coordinator is known.
type joined struct {
	coordinator uint32
	last        atomic.Pointer[View] // of when the coordinator was seen alive
}

// Join notes that a thread posts verbs for a coordinator that is open: see ViewOn.
func (s *membership) Join(t *rdma.Thread, coordinator uint32) {
	j := &joined{coordinator: coordinator}
	j.last.Store(s.View())
	s.threads.Store(t, j)
}

// Leave undoes Join.
func (s *membership) Leave(t *rdma.Thread) { s.threads.Delete(t) }

// ViewOn is the view by which a thread may post verbs in the middle of something that it has begun
// before. It is the current view, unless the thread's coordinator was declared dead since it
// joined. Then it is an older one whose keys are stale, so that verbs of a change that another
// session finishes fail.
//
// For a thread that has not joined it is View.
func (s *membership) ViewOn(t *rdma.Thread) *View {
	v := s.View() // before the question whether the coordinator lives: a claim is made known before its view
	x, ok := s.threads.Load(t)
	if !ok {
		return v
	}
	j := x.(*joined)
	if s.Lease(j.coordinator, 0) != LeaseLive {
		return j.last.Load()
	}
	j.last.Store(v)
	return v
}

// ViewOn is View: a claimant has no other one.
func (c *Claim) ViewOn(*rdma.Thread) *View { return c.View() }

// Missing is Space.Missing.
func (c *Claim) Missing(v *View, a Addr) error { return c.space.Missing(v, a) }

// LostError is Space.LostError.
func (c *Claim) LostError(a Addr) error { return c.space.LostError(a) }
