package memory

import (
	"maps"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// A segment of blocks goes back when all of its blocks are free, so that its places serve other
// classes, and indexes. The process that owns it sees to that, when it has time, in steps:
//
//	whole      all of its blocks are in the pool, or on lists of allocators, or were never handed
//	           out
//	withdrawn  they are taken out of there, in this process alone: none is handed out
//	leaving    the catalog says so (Depart): nothing that begins from then on uses an address of
//	           it (View.Valid), and no copy of it is built
//	rested     everything has ended that had begun before (Ask, Unrested), which the caller waits
//	           for: no verb goes there
//	vacant     its places are cleared, and a change of the catalog takes its copies away
//	           (GiveBack). They can be taken at once
//
// No epoch begins, and no transaction is interrupted. A block in the pool is free on all copies, no
// slot leads to it, no session holds it, and no transaction that finds it free changes it. What may
// still name it, and why that does no harm:
//
//	a transaction of    reads or locks the block, which is where it was: it finds it free. It
//	                    meets no other view in which the
//	before              segment is valid, and tries again (View.Leaves)
//	a log               as long as the segment is leaving, or vacant, recovery passes over its
//	                    blocks: none was in use when it began to
//	                    leave. Later the block counts as freed since (Segment.Freed), which no
//	                    record of before can deny
//	a log of before a   with DurabilityPower those count after a loss of power: a segment is ripe
//	                    when the generation of the records has
//	checkpoint          ended that could name it
//	an address cache,   the address is not valid any more, and the record is looked for in the
//	                    index
//	a cached node
//	a list of a sweep   as the address of a record that was deleted since, and whose block is
//	                    another one's by now
//	an allocator        of another process, which is about to give it back: forgotten there when
//	                    the number is used again (leave)
//	a recovery          its coordinators are waited for, as everything else that has begun before
//	a copier            copies nothing of it: no copy of a segment that leaves is being built, or
//	                    will be
//	a backup            begins with a cut (see cut.go): while it is made no segment goes back
//	the root of a       the catalog names it until the table is dropped, a little longer than the
//	                    block is in use: its segment
//	table               stays as long (Layout.Rooted)
//
// The number of the segment stays in the catalog (Segment.Vacant), and is used again for a segment
// of the same class. So an address never leads to anything but the header of a block of that class,
// whatever segment is there.
//
// A segment that leaves never stays, since its copies may be cleared in part. If its process dies,
// another one adopts it, and waits again: in an epoch that ends what the process had under way. If
// a blade is lost meanwhile, its copy is gone; that is no loss.

// withdrawn is a segment that no block is taken of any more.
type withdrawn struct {
	next  uint32 // the first block that was never handed out
	bound bool   // the catalog is being told that it leaves: its blocks are not to be had any more
}

// Search says which segments Withdraw looks for.
type Search struct {
	Now      int64  // of the fabric's clock
	Patience int64  // for how many nanoseconds a segment must have been whole
	Full     bool   // the blades are full: all that are whole, at once
	Needs    uint64 // but for those of the classes of these bits, of which more is asked for
}

// Withdraw looks for segments that are whole, and withdraws them. Of a class in use some are kept,
// unless the blades are full: see spare. It reports whether any are withdrawn or leaving, by this
// call or an earlier one.
func (s *allocation) Withdraw(o Search) (some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patience = o.Patience
	if s.writable() != nil || s.doubt != nil || s.beginning() || s.withheld || !s.tidy() || s.FailoverPending() {
		return s.leaves()
	}
	s.left()
	for class := range layout.Class(layout.NumClasses) {
		whole, all := s.whole(class)
		for id := range s.wholeSince[class] {
			if !slices.Contains(whole, id) {
				delete(s.wholeSince[class], id)
			}
		}
		switch {
		case o.Full && o.Needs>>class&1 != 0:
			continue
		case !all && !o.Full:
			whole = s.spare(class, whole)
		}
		for _, id := range whole {
			since, ok := s.wholeSince[class][id]
			switch {
			case o.Full || ok && o.Now-since >= o.Patience<<s.pools[class].hasty:
				if s.withdraw(id) {
					s.pools[class].back = o.Now
				}
			case !ok:
				if s.wholeSince[class] == nil {
					s.wholeSince[class] = map[layout.SegmentID]int64{}
				}
				s.wholeSince[class][id] = o.Now
			}
		}
	}
	return s.leaves()
}

// leaves reports whether segments are withdrawn, or leaving, that this process is to have go back.
// The caller holds the lock.
func (s *allocation) leaves() bool {
	return len(s.leaving) > 0 || slices.ContainsFunc(s.layout.Segments, func(g layout.Segment) bool {
		return g.Leaving && s.mayEnd(&g)
	})
}

// left forgets that segments are withdrawn which are leaving, or more, by a change of the catalog
// of which this process did not know what became of it. The caller holds the lock.
func (s *allocation) left() {
	n := len(s.leaving)
	if maps.DeleteFunc(s.leaving,
		func(id layout.SegmentID, _ withdrawn) bool { return s.layout.Segments[id].Gone() }); len(s.leaving) < n {
		s.leftPools()
	}
}

// leftPools notes that segments leave. A block that was in use when a sweep has claimed it may look
// as it did before, in another segment of the number. The caller holds the lock.
func (s *allocation) leftPools() {
	s.departures++
	s.strays = nil
	for class := range s.pools {
		p := &s.pools[class]
		p.again = keep(p.again, func(r *scan) bool { return !s.layout.Segments[r.seg].Gone() })
	}
}

// mayEnd reports whether this process may have a segment go back that leaves: it owns it, or its
// owner is gone, with all of its sessions (see adoptee), and no verb of it takes effect any more.
// The caller holds the lock.
func (s *allocation) mayEnd(g *layout.Segment) bool {
	l := s.layout
	return l.Owns(s.process, g) || s.opts.Shared && !s.unrevoked.Load() && l.Process(g.Owner) == nil &&
		!slices.ContainsFunc(l.Coordinators, func(c layout.CoordinatorEntry) bool {
			return c.Process == g.Owner || c.Process == 0
		})
}

// spare returns those segments that can go back of a class that is in use, of the ones that are
// whole. One is kept in which blocks were handed out before. If there is none, blocks are taken in
// turn of as many segments as there are blades, see take: those that are kept for that would be
// needed at once. The caller holds the lock.
func (s *allocation) spare(class layout.Class, whole []layout.SegmentID) []layout.SegmentID {
	p := &s.pools[class]
	open := func(id layout.SegmentID) bool { return p.opened(id) >= 0 }
	if i := slices.IndexFunc(whole, func(id layout.SegmentID) bool { return !open(id) }); i >= 0 {
		return slices.Delete(whole, i, i+1)
	}
	others := len(p.open) - len(whole)
	return whole[min(max(s.layout.StayingBlades()-others, 1), len(whole)):]
}

// A class that needs a segment within hastyLooks times the patience after one was withdrawn has had
// it withdrawn too early: it is twice as patient from then on, maxHasty times at most.
const (
	hastyLooks = 16
	maxHasty   = 6
)

// needed notes that a class needs another segment. The caller holds the lock.
func (s *allocation) needed(class layout.Class) {
	p := &s.pools[class]
	switch early := s.fabric.Now()-p.back < hastyLooks*s.patience<<p.hasty; {
	case p.back == 0:
	case early:
		p.hasty = min(p.hasty+1, maxHasty)
	default:
		p.hasty = 0
	}
	p.back = 0
}

// whole lists the segments of a class that are whole, in order. all: no block of the class is in
// use, as far as this process knows. The caller holds the lock.
func (s *allocation) whole(class layout.Class) (ids []layout.SegmentID, all bool) {
	if class.Size() > s.opts.SegmentSize {
		return nil, true
	}
	p, blocks := &s.pools[class], s.blocks(class)
	n := len(p.free)
	for i := range p.open {
		n += int(blocks - p.open[i].next)
	}
	for _, a := range s.allocators {
		n += a.has(class)
	}
	if uint64(n) < uint64(blocks) {
		return nil, false
	}
	free := make(map[layout.SegmentID]uint32)
	last, count := layout.SegmentID(0), uint32(0)
	add := func(list []layout.Addr) { // neighbours lie together
		for _, a := range list {
			if a.Segment() != last {
				free[last] += count
				last, count = a.Segment(), 0
			}
			count++
		}
	}
	add(p.free)
	for _, a := range s.allocators {
		if !s.serving(a) {
			continue // a sweep finds what it has
		}
		a.mu.Lock()
		a.lists[class].gather()
		add(a.lists[class].free)
		a.mu.Unlock()
	}
	free[last] += count
	for i := range p.open {
		free[p.open[i].seg] += blocks - p.open[i].next
	}
	unknown := map[layout.SegmentID]bool{}
	note := func(list []*scan) {
		for _, x := range list {
			unknown[x.seg] = true
		}
	}
	note(p.unseen)
	note(p.tails)
	note(p.holes)
	for _, a := range s.allocators {
		note(a.scans)
	}
	for a := range s.orphans {
		unknown[a.Segment()] = true
	}
	all = true
	for i := range s.layout.Segments {
		id, g := layout.SegmentID(i), &s.layout.Segments[i]
		switch _, gone := s.leaving[id]; {
		case g.Kind != layout.KindBlocks || g.Class != class || g.Placement.N == 0 || !s.mine(id) || gone || g.Leaving:
		case free[id] == blocks && !unknown[id] && !s.layout.Rooted(id):
			ids = append(ids, id)
		default:
			all = false
		}
	}
	return ids, all
}

// withdraw takes all blocks of a segment that is whole out of the pool and the lists. false: an
// allocator has handed one out since, as it does without the lock, and the others stay. The
// caller holds the lock.
func (s *allocation) withdraw(id layout.SegmentID) bool {
	class := s.layout.Segments[id].Class
	p, x := &s.pools[class], withdrawn{next: s.blocks(class)}
	var taken []layout.Addr
	others := func(a layout.Addr) bool {
		if a.Segment() == id {
			taken = append(taken, a)
		}
		return a.Segment() != id
	}
	p.free = keep(p.free, others)
	if i := p.opened(id); i >= 0 {
		x.next = p.open[i].next
	}
	for _, a := range s.allocators {
		a.mu.Lock()
		l := &a.lists[class]
		l.gather()
		l.free = keep(l.free, others)
		a.mu.Unlock()
	}
	if len(taken) != int(x.next) {
		p.free = append(p.free, taken...)
		return false
	}
	p.open = keep(p.open, func(c carve) bool { return c.seg != id })
	p.again = keep(p.again, func(r *scan) bool { return r.seg != id })
	s.departures++
	if s.leaving == nil {
		s.leaving = map[layout.SegmentID]withdrawn{}
	}
	s.leaving[id] = x
	delete(s.wholeSince[class], id)
	return true
}

// stays gives the blocks of a segment of a class to the pool that was withdrawn: they are needed
// after all. The caller holds the lock.
func (s *allocation) stays(class layout.Class) bool {
	if s.doubt != nil {
		return false // it may be leaving
	}
	s.left()
	for _, id := range slices.Sorted(maps.Keys(s.leaving)) {
		g := &s.layout.Segments[id]
		p, x := &s.pools[class], s.leaving[id]
		if g.Class != class || g.Placement.N == 0 || !s.mine(id) || x.bound {
			continue
		}
		for i := x.next; i > 0; i-- { // the lowest is handed out first
			p.free = append(p.free, layout.MakeAddr(id, (i-1)*class.Size()))
		}
		if x.next < s.blocks(class) {
			p.open = append(p.open, carve{seg: id, next: x.next, n: max(x.next, s.layout.Backed(id)/class.Size())})
		}
		delete(s.leaving, id)
		return true
	}
	return false
}

// Depart has segments leave that are withdrawn, and lists those which leave, and which this process
// has go back: GiveBack is called with them when everything has ended that had begun before (Ask).
// None leaves while a backup is made, or something is not decided.
func (s *allocation) Depart() (ids []layout.SegmentID, err error) {
	err = s.update(func() error {
		ids = nil
		if err := s.writable(); err != nil {
			return err
		}
		s.left()
		maps.DeleteFunc(s.parting, func(id layout.SegmentID, _ uint32) bool { return !s.layout.Segments[id].Leaving })
		if !s.leaves() || !s.mayGoBack() {
			return nil
		}
		if err := s.enroll(); err != nil {
			return err
		}
		if s.parting == nil {
			s.parting = map[layout.SegmentID]uint32{}
		}
		l := s.layout
		next := map[layout.SegmentID]layout.Segment{}
		var changes []layout.Entry
		for i := range l.Segments {
			id, g := layout.SegmentID(i), l.Segments[i]
			_, whole := s.leaving[id]
			whole = whole && s.mine(id) && g.Placement.N > 0 && g.Placement.Building == 0 && !l.Rooted(id)
			if !whole && !(g.Leaving && s.mayEnd(&g)) {
				continue
			}
			if _, known := s.parting[id]; !known {
				s.parting[id] = l.Checkpoint
			}
			if ids = append(ids, id); whole || !s.mine(id) {
				g.Leaving, g.Owner = true, s.process
				next[id], changes = g, append(changes, layout.EntryOfSegment(id, g))
			}
		}
		if len(changes) == 0 {
			return nil
		}
		s.bind(next, true)
		if err := s.commit(changes...); err != nil {
			s.bind(next, false)
			return err
		}
		for id, g := range next {
			s.layout.Segments[id] = g
			delete(s.leaving, id)
		}
		s.leftPools()
		if !s.beginning() {
			s.publish()
		}
		return nil
	})
	return ids, err
}

// bind notes whether the catalog is being told of segments that they leave. The caller holds the
// lock.
func (s *allocation) bind(next map[layout.SegmentID]layout.Segment, bound bool) {
	for id := range next {
		if x, ok := s.leaving[id]; ok {
			x.bound = bound
			s.leaving[id] = x
		}
	}
}

// ripe is Ripe of a segment. The caller holds the lock.
func (s *allocation) ripe(id layout.SegmentID) bool {
	since, ok := s.parting[id]
	n := s.layout.Checkpoint
	// records of the next generation may have been written before the catalog says that it has
	// begun
	return ok && (n == 0 || n >= since+2)
}

// Ripe reports whether no log that counts after a loss of power names a block of some segments
// that leave. Without DurabilityPower none does; else the second checkpoint since Depart
// listed them makes it so.
func (s *allocation) Ripe(ids ...layout.SegmentID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(ids, func(id layout.SegmentID) bool {
		return s.layout.Segments[id].Leaving && !s.ripe(id)
	})
}

// mayGoBack reports whether segments can go back now, as Depart says. The caller holds the lock.
func (s *allocation) mayGoBack() bool {
	return s.layout.Holder(layout.RightBackup) == 0 && !s.FailoverPending()
}

// GiveBack has segments go back which Depart has listed before everything ended that had begun
// before, and that are Ripe, and returns how many. What could not be cleared is left for another
// call, and so is everything if an epoch begins meanwhile; the first call after a WRITE has failed
// begins one, since that may be late.
func (s *allocation) GiveBack(c *rdma.Coro, ids ...layout.SegmentID) (n int, err error) {
	if err := s.EndKeys(); err != nil { // of sessions of before the epoch, which may write there
		return 0, err
	}
	s.mu.Lock()
	if err := s.writable(); err != nil || s.beginning() || s.unrevoked.Load() || !s.mayGoBack() {
		s.mu.Unlock()
		return 0, err
	}
	unsure, v := s.unsure == s.layout.Epoch, s.View()
	cleared := map[layout.SegmentID]layout.Placement{}
	for _, id := range ids {
		if g := &s.layout.Segments[id]; g.Leaving && s.mine(id) && s.ripe(id) {
			cleared[id] = g.Placement
		}
	}
	s.mu.Unlock()
	if unsure {
		return 0, s.AdvanceEpoch(nil)
	}
	for _, id := range slices.Sorted(maps.Keys(cleared)) {
		p := cleared[id]
		for _, r := range p.Replicas[:p.N] {
			if err := s.clearPlace(c, v, r.Blade, r.Base); err != nil {
				return 0, err
			}
		}
	}
	err = s.update(func() error {
		n = 0
		if err := s.writable(); err != nil {
			return err
		}
		if s.layout.Epoch != v.Epoch || !s.mayGoBack() {
			return nil
		}
		next := *s.layout
		next.Blades, next.Segments = slices.Clone(next.Blades), slices.Clone(next.Segments)
		var changes []layout.Entry
		for id, p := range cleared {
			if g := &next.Segments[id]; g.Leaving && s.mine(id) && g.Placement == p {
				next.GiveBack(id, s.frees.Add(1))
				changes = append(changes, layout.EntryOfSegment(id, *g))
				n++
			}
		}
		if n == 0 {
			return nil
		}
		for b := range next.Blades {
			if next.Blades[b] != s.layout.Blades[b] {
				changes = append(changes, layout.EntryOfBlade(rdma.BladeID(b), next.Blades[b]))
			}
		}
		if err := s.commit(changes...); err != nil {
			return err
		}
		s.layout.Blades, s.layout.Segments = next.Blades, next.Segments
		for id := range cleared {
			delete(s.parting, id)
		}
		s.departures++
		s.above.derive()
		return nil
	})
	return n, err
}

// leave forgets what sessions of this process are about to free in a segment that has gone back,
// and whose number is to be used again by this process. The caller holds the lock, and has not
// published a view with the segment.
func (s *allocation) leave(id layout.SegmentID) {
	for _, a := range s.allocators {
		a.mu.Lock()
		for _, x := range slices.Clone(a.out.list) {
			if x != 0 && x.Segment() == id {
				a.out.remove(x &^ disowned)
			}
		}
		a.mu.Unlock()
	}
	maps.DeleteFunc(s.orphans, func(a layout.Addr, _ *Resolution) bool { return a.Segment() == id })
}

// HasRoom reports whether there are places for another segment of blocks, and whether some are to
// come: of segments that are withdrawn, or have gone back and are to be cleared.
func (s *allocation) HasRoom() (now, soon bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, blades := s.layout, 0
	soon = s.leaves()
	for b := range l.Blades {
		if !l.Stays(b) {
			continue
		}
		if l.Vacancies(rdma.BladeID(b)) > 0 {
			blades++
		}
		soon = soon || len(s.dirty(rdma.BladeID(b))) > 0
	}
	return blades >= min(l.Backups+1, max(l.StayingBlades(), 1)), soon
}
