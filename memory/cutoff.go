package memory

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"txnode/memory/layout"
	"txnode/rdma"
)

// A process may be cut off a blade that lives: other members hear the blade, or it has the last
// copy of a segment and is waited for. The process goes on without the blade:
//
//	transactions          that need the blade, for a primary or for a copy that is to be written,
//	                      fail with a *CutOffError before anything
//	                      is posted there (rdma.Thread.Bar). All others go on
//	logs                  those of a coordinator that has areas there already go to f+1 other
//	                      blades; a new coordinator has no area there
//	blocks and segments   are taken on other blades
//	a coordinator         with a request whose effect on the blade is not known is given up by an
//	                      entry of the catalog (GiveUp), since its
//	                      log areas there cannot be read: any process that reaches the blade
//	                      recovers it
//	epochs                the process begins none, unless it declares a blade dead: the blade
//	                      would have no key of it, for anybody. So it
//	                      recovers no coordinator, ends no registration, and takes no right
//	                      (EndKeys)
//	epochs of others      begin in this process when all other blades have ended earlier keys.
//	                      Late verbs may take effect on the blade,
//	                      as far as this process knows: see EndKeys
//
// Only this process knows of it: its view of the blade is no evidence. See package memory/members.

// cut is the blades that a process does without.
type cut struct {
	blades atomic.Uint64 // a bit for each
	// why says of each what was heard of it last. Under mu of the store.
	why map[rdma.BladeID]string
}

// CutOff has this process do without blades, and says of each why: of these from now on, and of no
// others. Sessions and threads follow when they begin something. Safe for concurrent use.
func (s *membership) CutOff(why map[rdma.BladeID]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bits := uint64(0)
	for b := range why {
		bits |= rdma.BladeBit(b)
	}
	s.cut.why = why
	s.cut.blades.Store(bits)
}

// Without returns the blades that this process does without, as CutOff says: a bit for each
// (rdma.BladeBit). It takes no lock.
func (s *membership) Without() uint64 { return s.cut.blades.Load() }

// without lists the blades of a layout that are up, and that this process does without.
func (s *membership) without(l *layout.Layout) (out []rdma.BladeID) {
	bits := s.cut.blades.Load()
	if bits == 0 {
		return nil
	}
	for b := range l.Blades {
		// there are MaxBlades
		if id := rdma.BladeID(b); l.Blades[b].State == layout.BladeUp && bits&rdma.BladeBit(id) != 0 {
			out = append(out, id)
		}
	}
	return out
}

// IsCutOff reports whether a blade that is up is one that this process does without.
func (s *membership) IsCutOff() bool {
	v, bits := s.View(), s.cut.blades.Load()
	if v == nil || bits == 0 {
		return bits != 0
	}
	for b := range v.Blades() {
		if id := rdma.BladeID(b); bits&rdma.BladeBit(id) != 0 && v.Up(id) { // there are MaxBlades
			return true
		}
	}
	return false
}

// Suffices reports whether the blades that are left when this process does without some can take
// what a transaction writes: f+1 copies, as long as so many blades are up.
func (s *membership) Suffices(blades uint64) bool {
	v, left := s.View(), 0
	for b := range v.Blades() {
		if id := rdma.BladeID(b); v.Up(id) && blades&rdma.BladeBit(id) == 0 { // there are MaxBlades
			left++
		}
	}
	return left >= min(s.opts.Backups+1, v.UpBlades())
}

// CutOffError returns what a caller fails with that needs one of some blades, of which blades has
// the bits; nil: this process uses all of them.
func (s *membership) CutOffError(blades uint64) error {
	if s.cut.blades.Load()&blades == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cutOffError(func(b rdma.BladeID) bool { return blades&rdma.BladeBit(b) != 0 })
}

// cutOffError is CutOffError of the blades that concern a caller; it is nil if there are none. The
// caller holds the lock.
func (s *membership) cutOffError(concerns func(b rdma.BladeID) bool) error {
	e := &CutOffError{}
	var names []string
	for b, why := range s.cut.why {
		if !concerns(b) {
			continue
		}
		e.Blades = append(e.Blades, b)
		names = append(names, fmt.Sprintf("%s: %s", s.opts.bladeName(b), why))
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(e.Blades)
	slices.Sort(names)
	e.why = strings.Join(names, "; ")
	return e
}

// cutOff is the error of what this process cannot do as long as it is cut off a blade that is up;
// nil: it is not. The caller holds the lock.
func (s *membership) cutOff(l *layout.Layout) error {
	out := s.without(l)
	if len(out) == 0 {
		return nil
	}
	return s.cutOffError(func(b rdma.BladeID) bool { return slices.Contains(out, b) })
}

// CutOffError is an ErrCutOff that names the blades.
type CutOffError struct {
	Blades []rdma.BladeID
	why    string
}

// Error names the blades, and says what was heard of them and what to do.
func (e *CutOffError) Error() string {
	return fmt.Sprintf("memory: this process is cut off %s: %v", e.why, ErrCutOff)
}

// Is matches ErrCutOff.
func (e *CutOffError) Is(target error) bool { return target == ErrCutOff }

// GiveUp has the catalog say that no session stands for a coordinator of this process any
// more, so that any process that reaches all blades recovers it. After an error Renew tries it
// again. See Abandon.
func (s *allocation) GiveUp(id uint32) error {
	s.Abandon(id)
	return s.updateAs(&update{turn: true, unwaiting: true}, s.amend)
}

// GivenUp reports whether a process has given up a coordinator that is not being recovered yet, as
// far as this one has followed. It takes no lock.
func (s *membership) GivenUp() bool { return s.regs.Load().givenUp }

// allocReached is Alloc of a process that is cut off blades.
func (a *Allocator) allocReached(c *rdma.Coro, class layout.Class) (layout.Addr, error) {
	s := a.space
	enough := 2 * len(s.fabric.Blades()) // so often each segment that is open has its turn
	for tries := 0; ; tries++ {
		if addr, ok := a.popReached(class); ok {
			return addr, nil
		}
		if tries == 2*enough {
			return 0, s.CutOffError(s.Without())
		}
		var err error
		if tries == enough { // all have copies where they are not reached
			_, err = a.taken(c, func() (int, error) { return 0, s.openReached(class) })
		}
		if err == nil {
			err = a.refill(c, class, refillThorough)
		}
		if err != nil {
			return 0, err
		}
	}
}

// popReached is pop of a block whose copies are all on blades that this process uses.
func (a *Allocator) popReached(class layout.Class) (layout.Addr, bool) {
	v, cut := a.space.View(), a.space.Without()
	a.mu.Lock()
	defer a.mu.Unlock()
	l := &a.lists[class]
	l.gather()
	for i := len(l.free) - 1; i >= 0; i-- {
		if addr := l.free[i]; BladesOf(v, addr)&cut == 0 {
			l.free = slices.Delete(l.free, i, i+1)
			a.out.add(addr)
			return addr, true
		}
	}
	return 0, false
}

// openReached opens a segment of a class that is the next one from which blocks are taken. Its
// copies are on blades that this process uses.
func (s *allocation) openReached(class layout.Class) error {
	return s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if err := s.enroll(); err != nil {
			return err
		}
		if err := s.openSegment(class); err != nil {
			return err
		}
		open := s.pools[class].open
		open[0], open[len(open)-1] = open[len(open)-1], open[0]
		return nil
	})
}

// BladesOf returns the blades to which the copies of an address are written: a bit for each
// (rdma.BladeBit), none if the address is not valid.
func BladesOf(v *layout.View, a layout.Addr) (blades uint64) {
	if !v.Valid(a) {
		return 0
	}
	for _, r := range v.Replicas(a) {
		blades |= rdma.BladeBit(r.Blade)
	}
	return blades
}
