package memory

import "txnode/memory/layout"

// Resolution is the right to resolve the lock of a block whose owner is gone. Without it, two
// sessions that have met the lock could both free the block, and the second one could free what a
// transaction has put there since.
type Resolution struct {
	space *allocation
	addr  layout.Addr
	by    uint32
	// foreign: the segment had no owner when it began, and was adopted since. What was freed has
	// not got a number of this process.
	foreign bool
}

// BeginResolve returns the right to resolve the lock of a block, for coordinator by, or 0; nil:
// another session has it. The holder calls End.
func (s *allocation) BeginResolve(a layout.Addr, by uint32) *Resolution {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resolve(a, by)
}

// resolve is BeginResolve; the caller holds the lock.
func (s *allocation) resolve(a layout.Addr, by uint32) *Resolution {
	if r := s.orphans[a]; r != nil && s.outlives(r.by) {
		return nil
	}
	if s.orphans == nil {
		s.orphans = map[layout.Addr]*Resolution{}
	}
	r := &Resolution{space: s, addr: a, by: by}
	s.orphans[a] = r
	return r
}

// End ends the resolution. freed: the block was freed, under a version of the coordinator given,
// which is gone, and goes to the pool. Blocks of earlier sessions are left to the search for free
// blocks by their headers.
func (r *Resolution) End(freed bool, coordinator uint32) {
	s := r.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.orphans[r.addr] != r {
		return // it was not at an end when its coordinator was forgotten
	}
	delete(s.orphans, r.addr)
	if !freed || coordinator < s.since || s.writable() != nil {
		return
	}
	for _, a := range s.allocators { // it was on its way there when its coordinator died
		a.mu.Lock()
		a.out.remove(r.addr)
		a.mu.Unlock()
	}
	class := s.layout.Segments[r.addr.Segment()].Class
	p := &s.pools[class]
	if r.foreign {
		s.lookThrough(r.addr.Segment())
		return
	}
	// else it never was anybody's, or another process finds it
	if s.mine(r.addr.Segment()) && r.addr.Offset()/class.Size() < s.part(r.addr.Segment()).next {
		p.free = append(p.free, r.addr)
	}
}

// Taken reports whether a coordinator that is alive has the block on its way: handed out and not
// known to be in use, or held. What the given one has does not count.
func (s *allocation) Taken(a layout.Addr, but uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.allocators {
		if (but == 0 || x.owner != but) && s.outlives(x.owner) && x.Holds(a) {
			return true
		}
	}
	return false
}
