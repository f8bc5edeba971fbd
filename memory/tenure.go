package memory

import (
	"fmt"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// Nothing posts a verb, and no change of the catalog is made, under a name that has ended. What
// acts does so under a tenure:
//
//	a session          its coordinator. The tenure ends when that is declared dead
//	any other thread   the registration of this process: maintenance, copies, a table that is
//	                   made. The tenure ends with the registration
//	a right            the registration under which it was taken, also for the thread of a session
//	                   (Hold)
//
// Numbers of coordinators and of processes are never used again, so the number says which tenure it
// is. A registration is ended in a new epoch. A thread whose tenure has ended gets no view of that
// epoch: its verbs fail with rdma.ErrStaleKey, so whatever was under way fails, however long the
// process was stopped between two verbs. A process that registers anew begins all of that anew
// (Begin), under its new number: threads, sweeps (Stands), and rights.
//
// Changes of the catalog under a right are made in a layout that has the right (keeps): the catalog
// takes a change only at the revision of the layout that was looked at.

// tenure is what a thread acts under. It belongs to the thread.
type tenure struct {
	space       *membership
	coordinator uint32       // of the session; 0: the thread is none's
	process     uint32       // if it is none's: the number of the process
	held        []uint32     // likewise, of rights that are used: see Hold
	last        *layout.View // of when the tenure was seen to stand
}

// Join has a thread act for a coordinator that is open, or under the registration of this
// process, by its number.
func (s *membership) Join(t *rdma.Thread, id uint32) {
	v, r := s.View(), s.regs.Load()
	x := &tenure{space: s, coordinator: id}
	if id == r.process {
		x.coordinator, x.process = 0, id
	}
	if x.last = v; !r.stands(x) {
		x.last = s.stale(v)
	}
	t.SetTenure(x)
}

// Leave undoes Join.
func (s *membership) Leave(t *rdma.Thread) { t.SetTenure(nil) }

// Begin has a thread that is no session's begin anew under the registration of this process,
// which registers anew if others have ended that, and if the catalog can be changed. The
// thread has nothing under way. In a database that is not shared, and on the thread of a
// session, it does nothing.
func (s *allocation) Begin(t *rdma.Thread) {
	if !s.opts.Shared {
		return
	}
	if x := s.tenure(t); x == nil || x.coordinator == 0 {
		s.Join(t, s.Recoverer())
	}
}

// tenure is that of a thread; nil: it has none.
func (s *membership) tenure(t *rdma.Thread) *tenure {
	x, ok := t.Tenure().(*tenure)
	if !ok || x.space != s {
		return nil
	}
	return x
}

// stale is a view whose keys open nothing any more, as far as there is one; else the given one.
func (s *store) stale(v *layout.View) *layout.View {
	if past := s.past.Load(); past != nil {
		return past
	}
	return v
}

// ViewOn is the view by which a thread may post verbs in the middle of something that it has
// begun before: the current one, or, when the tenure of the thread has ended, an older one
// whose keys are stale. A thread without a tenure gets one under the registration of this
// process. It takes no lock.
func (s *membership) ViewOn(t *rdma.Thread) *layout.View {
	v := s.View() // before the question whether the tenure stands: the end of one is made known before the view
	x := s.tenure(t)
	if x == nil {
		process := s.regs.Load().process
		if process == 0 { // not shared, or not registered yet: nothing can have ended
			return v
		}
		s.Join(t, process)
		x = s.tenure(t)
	}
	if !s.regs.Load().stands(x) {
		return x.last
	}
	x.last = v
	return v
}

// stands reports whether a tenure has not ended.
func (r *registry) stands(x *tenure) bool {
	if x.coordinator != 0 && r.lease(x.coordinator, 0) != LeaseLive || x.process != 0 && !r.registered(x.process) {
		return false
	}
	for _, id := range x.held {
		if !r.registered(id) {
			return false
		}
	}
	return true
}

// registered reports whether a process is registered under a number.
func (r *registry) registered(process uint32) bool {
	_, ok := slices.BinarySearch(r.processes, process)
	return ok
}

// Stands returns nil as long as the tenure of a number, of a process or a coordinator, has not
// ended, and ErrEnded from then on. 0: it does not end. It takes no lock.
func (s *membership) Stands(id uint32) error {
	r := s.regs.Load()
	if id == 0 || r.registered(id) || r.lease(id, 0) == LeaseLive {
		return nil
	}
	return fmt.Errorf("%w: it was process, or coordinator, %d", ErrEnded, id)
}

// Hold runs fn, which acts under a right of AcquireRight on a thread. Its verbs fail with
// rdma.ErrStaleKey when the registration has ended under which the right was taken, also if the
// coordinator of the thread is alive.
func (s *membership) Hold(t *rdma.Thread, of uint32, fn func() error) error {
	if !s.opts.Shared {
		return fn()
	}
	s.mu.Lock()
	process := s.rights[of]
	s.mu.Unlock()
	v := s.ViewOn(t) // it has a tenure
	x := s.tenure(t)
	if x.held = append(x.held, process); !s.regs.Load().stands(x) {
		x.last = s.stale(v)
	}
	defer func() { // of this one: the session of the thread may have rejoined
		i := slices.Index(x.held, process)
		x.held = slices.Delete(x.held, i, i+1)
	}()
	return fn()
}

// ViewOn is View: a claimant has no other one.
func (c *Claim) ViewOn(*rdma.Thread) *layout.View { return c.View() }

// Missing is Space.Missing.
func (c *Claim) Missing(v *layout.View, a layout.Addr) error { return c.space.Missing(v, a) }

// LostError is Space.LostError.
func (c *Claim) LostError(a layout.Addr) error { return c.space.LostError(a) }
