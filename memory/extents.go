package memory

import (
	"errors"
	"fmt"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// granulesFor is how many granules hold size bytes, at least one.
func granulesFor(size, unit uint32) uint32 { return (max(size, 1)-1)/unit + 1 }

// extentSegment is an index segment in memory.
type extentSegment struct {
	id      layout.SegmentID
	starts  []uint32 // by granule: length of the extent that starts here
	used    []uint64 // bitmap by granule
	free    uint32   // granules
	fresh   uint32   // granules from here on were never used
	hint    uint32   // no granule below is free
	primary rdma.BladeID
	source  rdma.BladeID // whose table was read when the space was opened: the primary's, if it was sound
}

// extentSpace is all index segments.
type extentSpace struct {
	segs    []*extentSegment
	byID    map[layout.SegmentID]*extentSegment
	pending []layout.Addr          // freed, with the word still on the blades
	late    []lateExtent           // freed, and verbs to them may be on their way
	owners  map[layout.Addr]origin // of an extent that was allocated since the database was opened, or inherited
	serial  uint64                 // of the last one
	offered []Extent               // their reservations are in doubt: see ReserveExtent
	rotate  int                    // blade whose turn it is
	unread  []layout.SegmentID     // adopted, and their tables are not read yet
}

// lateExtent is an extent that is free once no verb of an epoch takes effect any more.
type lateExtent struct {
	addr  layout.Addr
	epoch layout.Epoch
	since int64 // by the fabric's clock
}

// origin tells one allocation of a place from the next one.
type origin struct {
	owner  uint64 // the coordinator that has allocated the extent: see inherited
	serial uint64 // 0: it was allocated before the database was opened
}

// inherited is the owner of what was allocated in a segment before this process adopted it. The
// process that has allocated it is gone: if no index and no reservation leads to it, none will.
const inherited = 1 << 63

// latePatienceNs is how long a late extent waits for an epoch before it is given one.
const latePatienceNs = 1e9

func (s *store) newExtentSegment(id layout.SegmentID) *extentSegment {
	size := s.layout.SegmentSize
	n := size / layout.Granule(size)
	x := &extentSegment{id: id, starts: make([]uint32, n), used: make([]uint64, (n+63)/64), free: n}
	x.mark(0, layout.TableGranules(size), true)
	x.fresh, x.hint = layout.TableGranules(size), layout.TableGranules(size)
	if p := s.layout.Segments[id].Placement; p.N > 0 {
		x.primary = p.Replicas[0].Blade
		x.source = x.primary
	}
	return x
}

// addExtentSegment has extents allocated in a segment. The caller holds the lock.
func (s *allocation) addExtentSegment(x *extentSegment) {
	if s.extents.byID == nil {
		s.extents.byID, s.extents.owners = map[layout.SegmentID]*extentSegment{}, map[layout.Addr]origin{}
	}
	s.extents.segs = append(s.extents.segs, x)
	s.extents.byID[x.id] = x
}

func (x *extentSegment) taken(g uint32) bool { return x.used[g/64]>>(g%64)&1 != 0 }

func (x *extentSegment) mark(at, n uint32, used bool) {
	for g := at; g < at+n; g++ {
		if used {
			x.used[g/64] |= 1 << (g % 64)
			x.free--
		} else {
			x.used[g/64] &^= 1 << (g % 64)
			x.free++
		}
	}
	if !used {
		x.hint = min(x.hint, at)
	}
}

// find returns the first run of n free granules.
func (x *extentSegment) find(n uint32) (at uint32, ok bool) {
	if n > x.free {
		return 0, false
	}
	end := uint32(len(x.starts))
	run := uint32(0)
	first := true
	for g := x.hint; g < end; g++ {
		if g%64 == 0 && x.used[g/64] == ^uint64(0) {
			run, g = 0, g+63
			continue
		}
		if x.taken(g) {
			run = 0
			continue
		}
		if first {
			x.hint, first = g, false
		}
		if run++; run == n {
			return g + 1 - n, true
		}
	}
	return 0, false
}

// MaxExtent is the size of the largest extent, in bytes.
func (s *store) MaxExtent() uint32 {
	size := s.opts.SegmentSize
	return size - layout.TableGranules(size)*layout.Granule(size)
}

// NewExtent returns a contiguous area of at least size bytes, 256-byte aligned, all zero, on
// every replica of an index segment. Successive extents have their primaries on different
// blades. It costs a round trip, and a change of the catalog when a new segment is needed. An
// extent of which a verb has failed that may still arrive is not used again before the thread's
// coordinator is gone, or, without one, before the next epoch. One that is not reachable from a
// table's root, nor reserved, when the process dies is given back by the process that adopts its
// segment: DeadExtents.
//
// When the epoch moves meanwhile it fails with rdma.ErrStaleKey, and may be called
// again after [rdma.Thread.Reconnect]; nothing is lost.
func (s *allocation) NewExtent(c *rdma.Coro, size uint32) (Extent, error) {
	if size > s.MaxExtent() {
		return Extent{}, fmt.Errorf("%w: an extent of %d bytes; at most %d are possible with segments of %d",
			ErrTooLarge, size, s.MaxExtent(), s.opts.SegmentSize)
	}
	unit := layout.Granule(s.opts.SegmentSize)
	n := granulesFor(size, unit)
	var x Extent
	dirty := false
	for adopted := true; adopted; {
		err := s.readAdopted(c)
		if !s.unrevoked.Load() {
			// else later: there may be room without
			_ = c.Await(func() error { return errors.Join(s.settleOffered(), s.reclaim()) }, nil)
		}
		if err == nil {
			err = s.settleFrees(c)
		}
		if err == nil {
			x, dirty, adopted, err = s.awaitExtent(c, n)
		}
		if err != nil {
			return Extent{}, err
		}
	}
	v, a, err := s.ViewOn(c.Thread()), x.Addr, error(nil)
	if dirty {
		err = clearExtent(c, v, a, n*unit, s.durable())
	}
	if err == nil {
		err = s.writeWords(c, v, []layout.Addr{a}, []uint64{extentWord(a, n)})
	}
	if err != nil {
		s.unsettled(c, v, a) // the word may be there
		return Extent{}, fmt.Errorf("memory: allocating an extent of %d bytes at %v: %w", size, a, err)
	}
	return x, nil
}

// awaitExtent is reserveExtent, which may have to change the catalog. An extent that comes when the
// context of the coroutine has ended is offered: it goes back before long.
func (s *allocation) awaitExtent(c *rdma.Coro, n uint32) (Extent, bool, bool, error) {
	type reserved struct {
		x              Extent
		dirty, adopted bool
	}
	r, owner := &reserved{}, c.Thread().Owner()
	err := c.Await(func() (err error) {
		r.x, r.dirty, r.adopted, err = s.reserveExtent(n, owner)
		return err
	}, func(err error) {
		if err == nil && !r.adopted {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.extents.offered = append(s.extents.offered, r.x)
		}
	})
	if err != nil {
		return Extent{}, false, false, err
	}
	return r.x, r.dirty, r.adopted, nil
}

// unsettled notes that verbs to extents which are to be free have failed: that will be tried again.
// As long as a verb may still arrive, the extents are nobody else's, but the thread's, until its
// coordinator is gone (DeadExtents). Those of a thread without one are late, until the keys of the
// view have ended with which the verbs were posted.
func (s *allocation) unsettled(c *rdma.Coro, v *layout.View, addrs ...layout.Addr) {
	if c.Thread().Uncertain() {
		s.disown(c, v, addrs)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unit := layout.Granule(s.opts.SegmentSize)
	for _, a := range addrs {
		// else it stays allocated: the word may be one of another extent by then
		if x := s.extents.byID[a.Segment()]; x != nil {
			x.starts[a.Offset()/unit] |= freed
			s.extents.pending = append(s.extents.pending, a)
		}
	}
}

// disown leaves extents that are to be free to the recovery of the thread's coordinator, or,
// without one, to a later epoch.
func (s *allocation) disown(c *rdma.Coro, v *layout.View, addrs []layout.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unit := layout.Granule(s.opts.SegmentSize)
	for _, a := range addrs {
		x := s.extents.byID[a.Segment()]
		if x == nil {
			continue // its segment has another owner, or will have: see inherited
		}
		if owner := c.Thread().Owner(); owner != 0 && owner < layout.MaxCoordinators {
			x.starts[a.Offset()/unit] &^= freed
			s.extents.owners[a] = s.origin(owner)
			continue
		}
		x.starts[a.Offset()/unit] |= freed
		s.extents.late = append(s.extents.late, lateExtent{a, v.Epoch, c.Thread().Now()})
	}
}

// ended reports whether no verb with a key of an epoch takes effect any more. The caller holds the
// lock.
func (s *membership) ended(e layout.Epoch) bool {
	v := s.view.Load().Epoch
	return e < v && s.layout.Epoch == v && !s.unrevoked.Load()
}

// ripen frees the late extents to which no verb is on its way any more. The caller holds the lock.
func (s *allocation) ripen() {
	s.extents.late = slices.DeleteFunc(s.extents.late, func(x lateExtent) bool {
		ripe := s.ended(x.epoch)
		if ripe {
			s.extents.pending = append(s.extents.pending, x.addr)
		}
		return ripe
	})
}

// ExtentsDue reports whether SettleExtents would clear words on the blades at a time of the
// fabric's clock, or begin an epoch for them, or read the tables of segments that were adopted, or
// ask the catalog about a reservation.
func (s *allocation) ExtentsDue(now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.extents.pending)+len(s.extents.unread)+len(s.extents.offered) > 0 ||
		slices.ContainsFunc(s.extents.late, func(x lateExtent) bool {
			return s.ended(x.epoch) || now-x.since > latePatienceNs
		})
}

// reserveExtent finds n granules for an owner and marks them. dirty: they may have been used
// before. adopted: a segment was, instead: its table is to be read, and the caller tries again.
func (s *allocation) reserveExtent(n uint32, owner uint64) (e Extent, dirty, adopted bool, err error) {
	err = s.updateLight(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if err := s.enroll(); err != nil {
			return err
		}
		var x *extentSegment
		var at uint32
		var err error
		if x, at, adopted, err = s.extentRoom(n); err != nil || adopted {
			return err
		}
		x.mark(at, n, true)
		x.starts[at] = n
		dirty = at < x.fresh
		x.fresh = max(x.fresh, at+n)
		s.extents.rotate = int(x.primary) + 1
		unit := layout.Granule(s.opts.SegmentSize)
		e = Extent{layout.MakeAddr(x.id, at*unit), n * unit, s.origin(owner)}
		s.extents.owners[e.Addr] = e.origin
		return nil
	})
	return e, dirty, adopted, err
}

// origin is that of an extent which is allocated now. The caller holds the lock.
func (s *allocation) origin(owner uint64) origin {
	s.extents.serial++
	return origin{owner, s.extents.serial}
}

// extentRoom finds room on the blade whose turn it is, or next around the ring; on a blade that has
// none, a segment is adopted that has no owner, or, if it has place for one, added. The caller
// holds the lock, in a change.
func (s *allocation) extentRoom(n uint32) (found *extentSegment, at uint32, adopted bool, err error) {
	const what = "an index"
	l := s.layout
	blades := len(l.Blades)
	var full error
	first := (layout.TableGranules(l.SegmentSize) + n) * layout.Granule(l.SegmentSize) // of a new segment
	for _, x := range s.extents.segs {
		if !s.quiet() {
			break
		}
		if at, ok := x.find(n); ok && l.Segments[x.id].Placement.N > 0 &&
			(at+n)*layout.Granule(l.SegmentSize) <= l.Backed(x.id) {
			return x, at, false, nil
		}
	}
	for i := range blades {
		b := rdma.BladeID((s.extents.rotate + i) % blades)
		for _, x := range s.extents.segs {
			if x.primary != b || l.Segments[x.id].Placement.N == 0 {
				continue
			}
			at, ok := x.find(n)
			for ok {
				if err := s.extend(what, x.id, (at+n)*layout.Granule(l.SegmentSize)); errors.Is(err, errAgain) {
					return nil, 0, false, err
				} else if err != nil {
					break
				}
				was := at
				if at, ok = x.find(n); ok && at == was { // else others have taken it meanwhile
					return x, at, false, nil
				}
			}
		}
		if id := s.adoptee(spread{kind: layout.KindIndex}, int(b), false); id != 0 {
			return nil, 0, true, s.adoptSegment(id)
		}
		id, err := s.addSegment(layout.KindIndex, 0, int(b), what, first)
		if err == nil {
			x := s.newExtentSegment(id)
			s.addExtentSegment(x)
			at, _ := x.find(n)
			return x, at, false, nil
		}
		if errors.Is(err, errAgain) {
			return nil, 0, false, err
		}
		// that a blade does not answer says more: with another one there may be room
		if full == nil || errors.Is(full, ErrNoSpace) {
			full = err
		}
	}
	return nil, 0, false, full
}

// FreeExtent gives an extent back when no reader can hold the address any more. The place
// is used again after a later NewExtent, SettleExtents or Close has cleared the extent's
// word on the blades.
//
// Nothing happens (done is false) if this process does not have that extent any more: it was given
// back before, or the segment has been another process's since, even if it is this one's again.
// Then the process that adopted the segment gives back what nothing leads to (DeadExtents), and the
// place may be another extent's.
func (s *allocation) FreeExtent(x Extent) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freeExtent(x)
}

// freeExtent is FreeExtent; the caller holds the lock.
func (s *allocation) freeExtent(x Extent) (done bool, err error) {
	if err := s.writable(); err != nil {
		return false, err
	}
	if !s.holds(x) {
		return false, nil
	}
	s.extents.byID[x.Addr.Segment()].starts[s.granule(x.Addr)] |= freed // a second FreeExtent finds nothing
	s.extents.pending = append(s.extents.pending, x.Addr)
	return true, nil
}

// holds reports whether an extent is allocated, and in a segment of this process ever since. The
// caller holds the lock.
func (s *allocation) holds(x Extent) bool {
	now := s.extentAt(x.Addr)
	return now.Size > 0 && now == x
}

// ExtentAt is the extent that starts at an address, or, with a size of 0, there is none in the
// segments of this process.
func (s *allocation) ExtentAt(a layout.Addr) Extent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.extentAt(a)
}

// extentAt is ExtentAt; the caller holds the lock.
func (s *allocation) extentAt(a layout.Addr) (x Extent) {
	unit := layout.Granule(s.opts.SegmentSize)
	g, at := s.extents.byID[a.Segment()], s.granule(a)
	if a>>layout.AddrBits != 0 || g == nil || a.Offset()%unit != 0 || int(at) >= len(g.starts) ||
		g.starts[at]&freed != 0 || g.starts[at] == 0 {
		return x
	}
	return Extent{a, g.starts[at] * unit, s.extents.owners[a]}
}

// granule is the number of the granule of an address in its segment.
func (s *store) granule(a layout.Addr) uint32 { return a.Offset() / layout.Granule(s.opts.SegmentSize) }

// Extent is an allocated extent.
type Extent struct {
	Addr layout.Addr
	Size uint32 // bytes, rounded up to granules

	origin origin
}

// Extents lists the extents that are allocated, for checks.
func (s *allocation) Extents() []Extent {
	return s.extentsOf(func(uint64) bool { return true })
}

// DeadExtents lists the extents in segments of this process that were allocated since the opening
// by coordinators that are not registered any more (rdma.Thread.Owner), or by a process that had
// the segment before. When the index changes of these coordinators are finished or taken back, such
// extents that no index leads to, and no reservation, are lost.
func (s *allocation) DeadExtents() []Extent {
	s.mu.Lock()
	s.listed = s.leaked
	s.mu.Unlock()
	return s.extentsOf(func(owner uint64) bool {
		_, ok := slices.BinarySearch(s.regs.Load().ids, uint32(owner))
		return owner == inherited || owner != 0 && owner < layout.MaxCoordinators && !ok
	})
}

// extentsOf lists the extents of owners that want accepts; it is called under the lock.
func (s *allocation) extentsOf(want func(owner uint64) bool) []Extent {
	s.mu.Lock()
	defer s.mu.Unlock()
	unit := layout.Granule(s.opts.SegmentSize)
	var out []Extent
	for _, x := range s.extents.segs {
		for g := range x.starts {
			if e := s.extentAt(layout.MakeAddr(x.id, uint32(g)*unit)); e.Size > 0 && want(e.origin.owner) {
				out = append(out, e)
			}
		}
	}
	return out
}

// SettleExtents clears on the blades the words of extents that were freed, or discarded with
// their reservation, so that their places can be used again. NewExtent does it, too. Both read
// the tables of segments that were adopted, before, and find out what became of reservations in
// doubt (ReserveExtent). For extents that verbs may still arrive at, and have been waited for,
// it begins an epoch.
func (s *allocation) SettleExtents(c *rdma.Coro) error {
	s.mu.Lock()
	late := slices.ContainsFunc(s.extents.late, func(x lateExtent) bool {
		return x.epoch == s.layout.Epoch && c.Thread().Now()-x.since > latePatienceNs
	})
	s.mu.Unlock()
	if late {
		if err := s.AdvanceEpoch(nil); err != nil {
			return err
		}
	}
	if err := s.readAdopted(c); err != nil {
		return err
	}
	if err := errors.Join(s.settleOffered(), s.reclaim()); err != nil {
		return err
	}
	return s.settleFrees(c)
}
