package memory

import (
	"maps"
	"slices"

	"txnode/rdma"
)

// A segment of blocks goes back when all of its blocks are free, so that its places serve other classes, and indexes. The
// process that owns it sees to that, when it has time, in steps:
//
//	whole      all of its blocks are in the pool, or on lists of allocators, or were never handed out
//	withdrawn  they are taken out of there, in this process alone: none is handed out
//	ripe       all transactions are decided that were under way then, which the caller has done: no log that counts names a block of it
//	back       a change of the catalog, with a new epoch, takes its copies away. Their places are dirty: see Reclaim
//
// A block in the pool is free on all copies, no slot leads to it, no session holds it, and no transaction that finds it free changes it. What
// may still name it, and why that does no harm:
//
//	a log               names no block of a ripe segment that a recovery has to decide about. So none meets a block that is gone, or is
//	                    another one by now
//	a log of before a   with DurabilityPower those count after a loss of power: a segment is ripe when the generation of the records has
//	checkpoint          ended that could name it
//	an address cache,   the address is not valid any more (View.Valid), and the record is looked for in the index. A verb of an
//	a cached node       earlier view fails by its key
//	a list of a reader  as the address of a record that was deleted since, and whose block is another one's by now
//	or a sweep
//	an allocator        of another process, which is about to give it back: forgotten there when the number is used again (leave)
//	a backup            begins with a cut (see cut.go): while it is made no segment goes back
//	the root of a       the catalog names it until the table is dropped, a little longer than the block is in use: its segment
//	table               stays as long (Layout.Rooted)
//
// The number of the segment stays in the catalog (Segment.Vacant), and is used again for a segment of the same class. So an address never
// leads to anything but the header of a block of that class, whatever segment is there.
//
// If the process dies in between, nothing has happened: the blocks are found free by their headers.

// withdrawn is a segment that no block is taken of any more.
type withdrawn struct {
	next uint32 // the first block that was never handed out
	// number is that of the next coordinator, and generation that of the last checkpoint, in a layout that is noted to be of later than
	// when the segment was withdrawn.
	number, generation uint32
	noted              bool
}

// Search says which segments Withdraw looks for.
type Search struct {
	Now      int64  // of the fabric's clock
	Patience int64  // for how many nanoseconds a segment must have been whole
	Full     bool   // the blades are full: all that are whole, at once
	Needs    uint64 // but for those of the classes of these bits, of which more is asked for
}

// Withdraw looks for segments that are whole, and withdraws them. Of a class in use some are kept, unless the blades are full: see spare. It
// reports whether any are withdrawn, by this call or an earlier one. As long as some are not ripe no others follow, unless the blades are full:
// each time all transactions have to be decided. An error is of the catalog, and the segments are not ripe before another call.
func (s *allocation) Withdraw(o Search) (some bool, err error) {
	if some = s.withdrawWhole(o); !some {
		return false, nil
	}
	if s.opts.Shared {
		if err := s.Follow(); err != nil { // coordinators may have been registered that this process does not know
			return true, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, x := range s.leaving {
		if !x.noted {
			s.leaving[id] = withdrawn{x.next, s.layout.NextCoordinator, s.layout.Checkpoint, true}
		}
	}
	return true, nil
}

func (s *allocation) withdrawWhole(o Search) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patience = o.Patience
	waits := false
	for _, x := range s.leaving {
		waits = waits || !s.ripe(x)
	}
	if s.writable() != nil || s.doubt != nil || s.beginning() || s.withheld || !s.tidy() || s.Gated() || waits && !o.Full {
		return len(s.leaving) > 0
	}
	for class := range Class(NumClasses) {
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
					s.wholeSince[class] = map[SegmentID]int64{}
				}
				s.wholeSince[class][id] = o.Now
			}
		}
	}
	return len(s.leaving) > 0
}

// spare returns those segments that can go back of a class that is in use, of the ones that are whole. One is kept in which blocks were
// handed out before. If there is none, blocks are taken in turn of as many segments as there are blades, see take: those that are kept for
// that would be needed at once. The caller holds the lock.
func (s *allocation) spare(class Class, whole []SegmentID) []SegmentID {
	p := &s.pools[class]
	open := func(id SegmentID) bool { return p.opened(id) >= 0 }
	if i := slices.IndexFunc(whole, func(id SegmentID) bool { return !open(id) }); i >= 0 {
		return slices.Delete(whole, i, i+1)
	}
	others := len(p.open) - len(whole)
	return whole[min(max(s.layout.StayingBlades()-others, 1), len(whole)):]
}

// A class that needs a segment within hastyLooks times the patience after one was withdrawn has had it withdrawn too early: it is twice as
// patient from then on, maxHasty times at most.
const (
	hastyLooks = 16
	maxHasty   = 6
)

// needed notes that a class needs another segment. The caller holds the lock.
func (s *allocation) needed(class Class) {
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

// whole lists the segments of a class that are whole, in order. all: no block of the class is in use, as far as this process knows. The
// caller holds the lock.
func (s *allocation) whole(class Class) (ids []SegmentID, all bool) {
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
	free := make(map[SegmentID]uint32)
	last, count := SegmentID(0), uint32(0)
	add := func(list []Addr) { // neighbours lie together
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
	unknown := map[SegmentID]bool{}
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
		id, g := SegmentID(i), &s.layout.Segments[i]
		switch _, gone := s.leaving[id]; {
		case g.Kind != KindBlocks || g.Class != class || g.Placement.N == 0 || !s.mine(id) || gone:
		case free[id] == blocks && !unknown[id] && !s.layout.Rooted(id):
			ids = append(ids, id)
		default:
			all = false
		}
	}
	return ids, all
}

// withdraw takes all blocks of a segment that is whole out of the pool and the lists. false: an allocator has handed one out since, as it
// does without the lock, and the others stay. The caller holds the lock.
func (s *allocation) withdraw(id SegmentID) bool {
	class := s.layout.Segments[id].Class
	p, x := &s.pools[class], withdrawn{next: s.blocks(class)}
	var taken []Addr
	others := func(a Addr) bool {
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
		s.leaving = map[SegmentID]withdrawn{}
	}
	s.leaving[id] = x
	delete(s.wholeSince[class], id)
	return true
}

// stays gives the blocks of a segment of a class to the pool that was withdrawn: they are needed after all. The caller holds the lock.
func (s *allocation) stays(class Class) bool {
	if s.doubt != nil {
		return false // it may have gone back
	}
	for _, id := range slices.Sorted(maps.Keys(s.leaving)) {
		g := &s.layout.Segments[id]
		if g.Class != class || g.Placement.N == 0 || !s.mine(id) {
			continue
		}
		p, x := &s.pools[class], s.leaving[id]
		for i := x.next; i > 0; i-- { // the lowest is handed out first
			p.free = append(p.free, MakeAddr(id, (i-1)*class.Size()))
		}
		if x.next < s.blocks(class) {
			p.open = append(p.open, carve{seg: id, next: x.next, n: max(x.next, s.layout.Backed(id)/class.Size())})
		}
		delete(s.leaving, id)
		return true
	}
	return false
}

// Withdrawn reports whether segments are withdrawn that can go back now, and whether any of them is ripe. Those that are not may be when all
// transactions were decided once more. None can while a backup is made, or something is not decided, or another process does not know this
// epoch yet: it could not tell it and the next one from the loss of a blade, if it saw them at once.
func (s *allocation) Withdrawn() (some, ripe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.regs.Load(); len(s.leaving) > 0 && s.opts.Shared && !s.knows(s.process, r, r.epoch) { // others may have said so since
		s.unlocked(func() { _ = s.hear() }) // without an answer they do not
	}
	if len(s.leaving) == 0 || !s.mayGoBack(s.layout) {
		return false, false
	}
	for _, x := range s.leaving {
		ripe = ripe || s.ripe(x)
	}
	return true, ripe
}

// mayGoBack reports whether segments can go back now, as Withdrawn says. The caller holds the lock.
func (s *allocation) mayGoBack(l *Layout) bool {
	r := s.regs.Load()
	return l.Mender(MendBackup) == 0 && !s.Gated() && (!s.opts.Shared || s.knows(s.process, r, r.epoch))
}

// ripe reports whether no log that counts names a block of a segment. The caller holds the lock.
func (s *allocation) ripe(x withdrawn) bool {
	l := s.layout
	old := func(c CoordinatorEntry) bool { return c.ID < x.number }
	// Records of the next generation may have been written before the catalog says that it has begun.
	return x.noted && !slices.ContainsFunc(l.Coordinators, old) && (l.Checkpoint == 0 || l.Checkpoint >= x.generation+2)
}

// GiveBack has the segments that are withdrawn, and ripe, go back in a new epoch, and returns how many. Without any there is no new
// epoch.
func (s *allocation) GiveBack() (n int, err error) {
	var ids []SegmentID
	_, err = s.advance(func(l *Layout) error {
		ids = ids[:0]
		if !s.mayGoBack(l) {
			return errUnchanged
		}
		for _, id := range slices.Sorted(maps.Keys(s.leaving)) {
			if s.mine(id) && l.Segments[id].Placement.N > 0 && !l.Rooted(id) && s.ripe(s.leaving[id]) {
				l.GiveBack(id)
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			return errUnchanged
		}
		return nil
	}, func() {
		for _, id := range ids {
			delete(s.leaving, id)
			p := &s.pools[s.layout.Segments[id].Class]
			p.again = keep(p.again, func(r *scan) bool { return r.seg != id })
		}
		s.departures++
		s.strays = nil // a block that was in use when it was claimed may look as it did before, in another segment of the number
	})
	return len(ids), err
}

// leave forgets what sessions of this process are about to free in a segment that has gone back, and whose number is to be used again by this
// process. The caller holds the lock, and has not published a view with the segment.
func (s *allocation) leave(id SegmentID) {
	s.forgetOut(id)
	maps.DeleteFunc(s.orphans, func(a Addr, _ *Resolution) bool { return a.Segment() == id })
}

// HasRoom reports whether there are places for another segment of blocks, and whether some are to come: of segments that are withdrawn, or
// have gone back and are to be cleared.
func (s *allocation) HasRoom() (now, soon bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, blades := s.layout, 0
	soon = len(s.leaving) > 0
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
