package memory

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// pool is what a Space has of one class and allocators may take.
type pool struct {
	// free are blocks that were given back, or found free by a scan.
	free []layout.Addr
	// open are segments with blocks that were never handed out, nor will be found by a scan.
	open []carve
	// unseen, tails and holes are what is left to be scanned of segments of
	// earlier sessions: see adopt.go.
	unseen, tails, holes []*scan
	turn                 int
	// again are parts of segments of this process to be looked through for what others have freed;
	// looked is the segment that was put there last: see owner.go.
	again  []*scan
	looked int
	// vain is until when, on the fabric's clock, they are not all looked through once more, since
	// nothing was found.
	vain int64
	// adopted is how many segments have been adopted since one was added that can be full.
	adopted int
	// back is when segments were withdrawn last, and hasty how often another one was
	// needed soon: see needed.
	back  int64
	hasty uint8
}

// carve hands out the blocks of a segment one after the other.
type carve struct {
	seg     layout.SegmentID
	next, n uint32 // the next one, and one past the last that has memory
}

// chunkBytes is about how many bytes of blocks an allocator takes at a time, and
// maxChunk how many blocks at most.
const (
	chunkBytes = 64 << 10
	maxChunk   = 64
)

// chunkBlocks is how many blocks of a class an allocator takes at a time.
func chunkBlocks(class layout.Class) int { return int(max(1, min(maxChunk, chunkBytes/class.Size()))) }

// blocks is how many blocks of a class a segment holds.
func (s *store) blocks(class layout.Class) uint32 { return s.opts.SegmentSize / class.Size() }

// initPools notes the segments of earlier sessions.
func (s *allocation) initPools() {
	for i := range s.layout.Segments {
		if seg := &s.layout.Segments[i]; seg.Kind == layout.KindBlocks && s.mine(layout.SegmentID(i)) && !seg.Gone() {
			p := &s.pools[seg.Class]
			used := s.layout.Backed(layout.SegmentID(i)) / seg.Class.Size()
			p.unseen = append(p.unseen, &scan{seg: layout.SegmentID(i), class: seg.Class, end: used})
			s.openRest(layout.SegmentID(i))
		}
	}
}

// openRest has the blocks of a segment handed out that have no memory yet: no session has had them.
// The caller holds the lock, or is the only one.
func (s *allocation) openRest(id layout.SegmentID) {
	seg := &s.layout.Segments[id]
	if used := s.layout.Backed(id) / seg.Class.Size(); used < s.blocks(seg.Class) && seg.Placement.N > 0 {
		p := &s.pools[seg.Class]
		p.open = append(p.open, carve{seg: id, next: used, n: used})
	}
}

// take gives an allocator up to want free blocks: those that were given back or, when they are few,
// blocks never used, each time from another of as many segments as there are blades, so that all
// have primaries of a table's records. It adds at most one segment, when there are fewer than that,
// and there is enough to be spread. When none may be added, or there is no room, it takes what
// other allocators have in stock, unless it is to look ahead. err says why nothing was found.
func (s *allocation) take(a *Allocator, class layout.Class, want int, how refilling) (n int, err error) {
	added := false
	err = s.updateLight(func() (err error) {
		n, err = s.takeNow(a, class, want, how, &added)
		return err
	})
	return n, err
}

// takeNow is take; the caller holds the lock, in a change. added: it has added a segment.
func (s *allocation) takeNow(a *Allocator, class layout.Class, want int, how refilling, added *bool) (
	n int, err error) {
	if err := s.writable(); err != nil {
		return 0, err
	}
	if !s.serving(a) {
		return 0, fmt.Errorf("%w: %d was declared dead, and is given no blocks", ErrNoCoordinator, a.owner)
	}
	if err := s.enroll(); err != nil {
		return 0, err
	}
	p := &s.pools[class]
	few := func() bool { return min(want, len(p.free)) <= want/4 }
	for few() && s.stays(class) { // blocks of a segment that was to go back
		s.needed(class)
	}
	switch few := few(); {
	case how == refillPresent:
		err = fmt.Errorf("%w: there is no free block of %d bytes", ErrNoSpace, class.Size())
	case few && len(p.open) < s.layout.StayingBlades() && !*added && !(s.quiet() && s.present(class)):
		err = s.openMore(class, added)
	}
	if errors.Is(err, errAgain) {
		return 0, err
	}
	if n = min(want, len(p.free)); n <= want/4 && len(p.open) > 0 {
		err = s.stock(class, want-n)
		// the disks are full that the open segments are on, and others may not be
		if errors.Is(err, ErrNoSpace) && !*added {
			if err = s.openSegment(class); err == nil {
				*added = true
			}
		}
	}
	if errors.Is(err, errAgain) {
		return 0, err
	}
	if err != nil && how != refillAhead && len(p.free) == 0 {
		s.halve(a, class)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.room(class)
	out := &a.lists[class].free
	had := len(*out)
	n = min(want, len(p.free))
	at := len(p.free) - n
	*out = append(*out, p.free[at:]...)
	p.free = p.free[:at]
	if n <= want/4 && len(p.open) > 0 {
		*out = s.carve(*out, class, want-n)
	}
	if n = len(*out) - had; n > 0 {
		err = nil
	}
	return n, err
}

// present reports whether there are blocks of a class that need no change of the catalog. The
// caller holds the lock.
func (s *allocation) present(class layout.Class) bool {
	p := &s.pools[class]
	return len(p.free) > 0 || slices.ContainsFunc(p.open, func(c carve) bool { return c.next < c.n })
}

// openMore opens a segment of a class more to take blocks from, if there is to be one: rather one
// without owner that has blocks that no session has had, than a new one. For each new one some are
// adopted that may be full, too, and looked through first. added: one was opened. The caller holds
// the lock, in a change.
func (s *allocation) openMore(class layout.Class, added *bool) error {
	p, k := &s.pools[class], spread{layout.KindBlocks, class}
	if id := s.adoptee(k, -1, true); id != 0 {
		err := s.adoptSegment(id)
		*added = err == nil
		return err
	}
	if !s.spreads(class) {
		return nil
	}
	if id := s.adoptee(k, -1, false); id != 0 && p.adopted < rescanSegments && len(p.again) == 0 {
		p.adopted++
		return s.adoptSegment(id)
	}
	if err := s.openSegment(class); err != nil {
		return err
	}
	*added, p.adopted = true, 0
	s.lookAgain(class, rescanSegments)
	return nil
}

// halve takes half of what all other allocators have of a class. What the dead had is not taken: a
// sweep finds it. The caller holds the lock.
func (s *allocation) halve(a *Allocator, class layout.Class) {
	p := &s.pools[class]
	for _, b := range s.allocators {
		if b == a || !s.serving(b) {
			continue
		}
		b.mu.Lock()
		b.lists[class].gather()
		free := &b.lists[class].free
		n := (len(*free) + 1) / 2
		p.free = append(p.free, (*free)[:n]...)
		*free = (*free)[:copy(*free, (*free)[n:])]
		b.mu.Unlock()
	}
}

// A class has segments on all blades from the beginning as long as less than a roomyPart of the
// room for segments is taken: nobody misses it, and what is used together lies on different blades.
const roomyPart = 4

// roomy reports whether so little is taken on every blade. The caller holds the lock.
func (s *store) roomy() bool {
	for b := range s.layout.Blades {
		if x := &s.layout.Blades[b]; s.layout.Stays(b) && x.Used >= s.layout.Slots(rdma.BladeID(b))/roomyPart {
			return false
		}
	}
	return true
}

// Else spreadBytes is how much of a segment is in use before a class has one more, to be spread
// over the blades, or a spreadPart of it if that is less, but spreadBlocks at least: a segment of
// each class for each blade would be a large part of small blades.
const (
	spreadBytes  = 256 << 10
	spreadPart   = 16
	spreadBlocks = 4
)

// spreads reports whether a class is to have one more segment to take blocks from: there is plenty
// of room, or it has none, or something of all that it has is in use.
func (s *allocation) spreads(class layout.Class) bool {
	if s.roomy() {
		return true
	}
	for _, c := range s.pools[class].open {
		few := c.next < spreadBlocks || c.next*class.Size() < min(spreadBytes, s.opts.SegmentSize/spreadPart)
		if few && c.next < s.blocks(class) {
			return false
		}
	}
	return true
}

// serving reports whether an allocator may be given blocks: who stands for it was not
// declared dead. The caller holds the lock.
func (s *store) serving(a *Allocator) bool {
	if a.owner == 0 {
		return true
	}
	i, err := s.findCoordinator(a.owner)
	return err == nil && !s.layout.Coordinators[i].Recovering
}

// stock gives open segments of a class memory until there are want blocks to be carved. An error
// says why there is none. The caller holds the lock, in a change.
func (s *allocation) stock(class layout.Class, want int) (err error) {
	p, have := &s.pools[class], 0
	for i := 0; i < len(p.open) && have < want; i++ {
		c := p.open[i]
		if end := min(c.next+uint32(want-have), s.blocks(class)); end > c.n && !(s.quiet() && s.present(class)) {
			e := s.extend(blocksOf(class), c.seg, end*class.Size())
			if errors.Is(e, errAgain) {
				return e
			}
			if e != nil {
				err = e
			}
			if i = p.opened(c.seg); i < 0 { // others have taken the rest meanwhile, or withdrawn it
				continue
			}
			p.open[i].n = s.layout.Backed(c.seg) / class.Size()
		}
		have += int(p.open[i].n - p.open[i].next)
	}
	if have > 0 {
		return nil
	}
	return err
}

// opened is where an open segment is in the list; -1: it is not. The caller holds the lock.
func (p *pool) opened(seg layout.SegmentID) int {
	return slices.IndexFunc(p.open, func(c carve) bool { return c.seg == seg })
}

// carve takes blocks of one open segment, so that what is allocated together lies
// together, and the next time of another. The one to be allocated first comes last.
func (s *allocation) carve(out []layout.Addr, class layout.Class, want int) []layout.Addr {
	p, from, all := &s.pools[class], len(out), s.blocks(class)
	for i := 0; want > 0 && i < len(p.open); {
		c := &p.open[i]
		for ; want > 0 && c.next < c.n; want-- {
			out = append(out, layout.MakeAddr(c.seg, c.next*class.Size()))
			c.next++
		}
		if c.next == all {
			p.open = slices.Delete(p.open, i, i+1)
		} else {
			i++
		}
	}
	if len(p.open) > 1 {
		p.open = append(p.open[1:], p.open[0])
	}
	slices.Reverse(out[from:])
	return out
}

// openSegment adds a segment of the class.
func (s *allocation) openSegment(class layout.Class) error {
	id, err := s.addSegment(layout.KindBlocks, class, -1, blocksOf(class), class.Size())
	if err != nil {
		return err
	}
	p := &s.pools[class]
	p.open = append(p.open, carve{seg: id, n: s.layout.Backed(id) / class.Size()})
	s.needed(class)
	return nil
}

// blocksOf is what segments of a class are for.
func blocksOf(class layout.Class) string { return fmt.Sprintf("blocks of %d bytes", class.Size()) }

// dropLost forgets free blocks of segments that have lost all copies, those that allocators have
// included, from whom others may get them (spill, halve), and where
// the primaries of index segments were. The caller holds the lock.
func (s *allocation) dropLost() {
	v := s.View()
	lost := func(id layout.SegmentID) bool { return v.Placement(id).N == 0 }
	for class := range s.pools {
		p := &s.pools[class]
		p.free = keep(p.free, func(a layout.Addr) bool { return !lost(a.Segment()) })
		p.open = keep(p.open, func(c carve) bool { return !lost(c.seg) })
	}
	for _, a := range s.allocators {
		a.mu.Lock()
		for class := range a.lists {
			l := &a.lists[class]
			l.gather()
			l.free = keep(l.free, func(a layout.Addr) bool { return !lost(a.Segment()) })
		}
		a.mu.Unlock()
	}
	leaving := len(s.leaving)
	maps.DeleteFunc(s.leaving, func(id layout.SegmentID, _ withdrawn) bool { return lost(id) })
	if len(s.leaving) < leaving {
		s.departures++
		s.strays = nil
	}
	for _, x := range s.extents.segs {
		if pl := v.Placement(x.id); pl.N > 0 {
			x.primary = pl.Replicas[0].Blade
		}
	}
}

// keep filters a slice in place.
func keep[T any](list []T, ok func(T) bool) []T {
	kept := list[:0]
	for _, x := range list {
		if ok(x) {
			kept = append(kept, x)
		}
	}
	return kept
}

// Spare lists the blocks that were given back, and that allocators may take: none twice,
// and each is free on all copies. It is for checks.
func (s *allocation) Spare() (all []layout.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.pools {
		all = append(all, s.pools[i].free...)
	}
	return all
}
