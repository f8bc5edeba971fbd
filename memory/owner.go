package memory

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"txnode/memory/internal/blockline"
	"txnode/memory/layout"
	"txnode/rdma"
)

// A segment of blocks or of an index has an owner: the process whose allocators alone hand out what
// is free in it. A database that is not shared (Options.Shared) has process 0. The processes of one
// that is register, under a number that no coordinator and no other process ever has, and own the
// segments that they add. A segment whose owner is not registered any more has none. A process that
// needs room adopts such segments, one at a time, before it adds one: so what the dead had serves
// those that have use for it, and none has more than it needs. The first process to open the
// database, when no other one has it open, owns all segments of indexes from the beginning.
//
//	a block that another process frees    stays free on the blades; the owner finds it by its
//	                                      header
//	                                      when it looks through its segments again: see
//	                                      Space.rescan
//	an extent that another process frees  its word is cleared on the blades; the owner takes it
//	                                      for
//	                                      allocated until the segment has another owner
//	a process that is gone                its registration expires, and another process ends it,
//	                                      in a new
//	                                      epoch: see TakeOver. Its segments have no owner
//	a process that was only late          finds its registration gone when it follows, before it
//	                                      has
//	                                      keys of the new epoch, and gives away nothing more of
//	                                      the
//	                                      segments that were its own; it registers anew
//	a segment that is adopted             what is free in it is found by the headers. What this
//	                                      process was just about
//	                                      to free there is no exception: see adoptSegment
//
// Log segments have no owner: the catalog says which coordinator has which area.

// Process is the number under which this process has joined the database; 0: it is not shared.
func (s *membership) Process() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// RealTime reports whether the clock of the fabric is that of the world.
func (s *store) RealTime() bool { return s.fabric.Caps().RealTime }

// Shared reports whether several processes can have the database open.
func (s *store) Shared() bool { return s.opts.Shared }

// IsProcess reports whether a number is that of a process that has joined, and not of a
// coordinator. It takes no lock.
func (s *membership) IsProcess(id uint32) bool {
	_, ok := slices.BinarySearch(s.regs.Load().processes, id)
	return ok
}

// Recoverer is the number in whose name this process recovers others; 0: none. One whose
// registration has ended registers anew, if the catalog can be changed.
func (s *allocation) Recoverer() uint32 {
	if s.opts.Shared && !s.regs.Load().has(s.Process()) {
		_ = s.update(func() error { // without a registration it recovers nobody: Claim says so
			if err := s.writable(); err != nil {
				return err
			}
			return s.enroll()
		})
	}
	return s.Process()
}

// Company is how many other processes have had the database open since this one opened it, as far
// as it has noticed.
func (s *membership) Company() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.company
}

// countCompany counts the processes of l that an earlier layout does not have. The caller holds the
// lock, or is the only one.
func (s *membership) countCompany(old, l *layout.Layout) {
	for _, p := range l.Processes {
		if p.ID != s.process && !p.Resigned() && (old == nil || old.Process(p.ID) == nil) {
			s.company++
		}
	}
}

// enroll registers this process, if it is to join and is not registered, or no more. The caller
// holds the lock, in a change.
func (s *allocation) enroll() error {
	l := s.layout
	if !s.opts.Shared || l.Process(s.process) != nil {
		return nil
	}
	if other := l.Holder(layout.RightAlone); other != 0 {
		return fmt.Errorf("%w: process %d is alone with it, since this one was taken for dead: try again",
			ErrShared, other)
	}
	p, err := s.registration(l)
	if err != nil {
		return err
	}
	next, known := *l, s.rev
	next.NextCoordinator++
	if err := s.commit(layout.EntryOfProcess(p), next.EntryOfState(len(l.Segments)-1, len(l.Tables),
		len(l.Coordinators))); err != nil {
		return err
	}
	l.NextCoordinator++
	s.raiseFrees()
	s.rested = known
	l.Processes, s.process, s.until = append(l.Processes, p), p.ID, p.Until
	s.register()
	return nil
}

// registration is that of this process under the next number of l.
func (s *membership) registration(l *layout.Layout) (p layout.ProcessEntry, err error) {
	if l.NextCoordinator >= layout.MaxCoordinators {
		return p, fmt.Errorf("%w: of coordinators and processes: %s", layout.ErrExhausted, layout.Anew)
	}
	p.ID = l.NextCoordinator
	if s.opts.Until > 0 {
		p.Until, p.Term = s.fabric.Now()+s.lasts, s.lasts
	}
	return p, nil
}

// resign ends the registration of this process, if it has one: without segments it is gone, else
// others may end it at once, in a new epoch. The caller holds the lock, in a change.
func (s *membership) resign() error {
	l := s.layout
	p := l.Process(s.process)
	if p == nil {
		return nil
	}
	gone := layout.ProcessEntry{ID: p.ID, Until: layout.Resigned}
	change := []layout.Entry{layout.EntryOfProcess(gone)}
	owns := slices.ContainsFunc(l.Segments, func(g layout.Segment) bool { return g.Owner == gone.ID })
	if !owns {
		change = []layout.Entry{{Key: change[0].Key}}
	}
	others := slices.DeleteFunc(slices.Clone(l.Rights), func(m layout.Right) bool { return m.Process == gone.ID })
	for _, m := range l.Rights {
		if m.Process == gone.ID {
			change = append(change, layout.Entry{Key: layout.KeyOf(layout.PrefixRight, m.Of)})
		}
	}
	if err := s.commit(change...); err != nil {
		return err
	}
	l.Rights = others
	if *p = gone; !owns {
		l.Processes = slices.DeleteFunc(l.Processes, func(x layout.ProcessEntry) bool { return x.ID == gone.ID })
	}
	return nil
}

// abandon is resign for an opening that has failed, perhaps since others have changed the catalog
// meanwhile: it begins anew with what they have made of it.
func (s *membership) abandon() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range maxAsks {
		if s.process == 0 {
			return nil
		}
		l, rev, err := layout.Load(s.cat)
		if err != nil || l == nil {
			return err
		}
		s.layout, s.rev = l, rev
		if err = s.resign(); !errors.Is(err, errAgain) {
			return err
		}
	}
	return ErrRevision
}

// Owns reports whether this process alone hands out what is free in the segment of an address, and
// numbers what is freed there. It takes no lock.
func (s *store) Owns(a layout.Addr) bool { return s.View().Mine(a) }

// mine reports whether this process owns a segment. The caller holds the lock.
func (s *membership) mine(id layout.SegmentID) bool {
	return int(id) < len(s.layout.Segments) && s.layout.Owns(s.process, &s.layout.Segments[id])
}

// Deserted reports whether the registration of another process has expired at a time of the
// fabric's clock, or a blade has not ended the keys of those that were ended: see TakeOver. It
// takes no lock, but for the number of this one.
func (s *membership) Deserted(now int64) bool {
	if s.unrevoked.Load() {
		return true
	}
	r := s.regs.Load()
	for i, id := range r.processes {
		if r.ends[i] != 0 && now > r.ends[i] && id != s.Process() {
			return true
		}
	}
	return false
}

// TakeOver ends all registrations that have expired at a time of the fabric's clock, in one change
// of the catalog, which also begins an epoch: no verb of these processes takes effect any more, and
// their segments have no owner. It returns how many there were. Without such a process it costs
// nothing. The coordinators of these processes are to be recovered as all others. After an error of
// a blade, whose keys could not be ended, it is to be called again: Deserted says so, in every
// process that has found the blade so.
func (s *allocation) TakeOver(now int64) (n int, err error) {
	if err := s.EndKeys(); err != nil {
		return 0, err
	}
	return s.endProcesses(func(p layout.ProcessEntry) bool {
		return p.ID != s.process && s.regs.Load().ended(p.ID, now)
	})
}

// Evict ends the registration of another process, whatever its lease says, as TakeOver does: an
// operator's word. A process that lives registers anew, under another number; what it had begun has
// no effect. ErrNoCoordinator: no such process is registered, or it is this one.
func (s *allocation) Evict(process uint32) error {
	if err := s.Follow(); err != nil {
		return err
	}
	if err := s.EndKeys(); err != nil {
		return err
	}
	n, err := s.endProcesses(func(p layout.ProcessEntry) bool { return p.ID == process && p.ID != s.process })
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: no other process %d is registered", ErrNoCoordinator, process)
	}
	return err
}

// endProcesses ends the registrations of other processes: see TakeOver.
func (s *allocation) endProcesses(expired func(layout.ProcessEntry) bool) (n int, err error) {
	s.mu.Lock()
	dead := s.writable() == nil && slices.ContainsFunc(s.layout.Processes, expired)
	s.mu.Unlock()
	if !dead {
		return 0, nil
	}
	if err := s.hear(); err != nil && !errors.Is(err, ErrEnded) { // one of them may have said since that it is alive
		return 0, err
	}
	_, err = s.advance(func(l *layout.Layout) error {
		n = 0
		dead := map[uint32]bool{}
		for _, p := range l.Processes {
			if dead[p.ID] = expired(p); dead[p.ID] {
				n++
			}
		}
		if n == 0 || s.opts.Shared && (l.Process(s.process) == nil || dead[s.process]) {
			return errUnchanged // this process has to register itself before
		}
		if l.NextCoordinator >= layout.MaxCoordinators {
			return fmt.Errorf("%w: of coordinators and processes: %s", layout.ErrExhausted, layout.Anew)
		}
		// the numbers of what is freed from now on are larger than those of the processes before
		l.NextCoordinator++
		l.Unswept, l.OnlyDamage = true, false // a sweep of theirs may not have come to its end
		l.Rights = slices.DeleteFunc(l.Rights, func(m layout.Right) bool { return dead[m.Process] })
		l.Processes = slices.DeleteFunc(l.Processes, expired)
		s.takeSweep(l)
		return nil
	}, func() {
		s.raiseFrees()
		s.sweeps++
		s.halfDone.Store(true)
	})
	return n, err
}

// adoptee is a segment of a kind that can be adopted, the youngest, on a blade if that is not
// negative; rest: blocks of it have no memory yet, and no session has had them. 0: there is none. A
// segment can be adopted when its owner is gone and so are all sessions of that: the log of one
// that is not recovered may tell of a block to which nothing is written yet. And no verb of it
// takes effect any more. The caller holds the lock.
func (s *allocation) adoptee(k spread, blade int, rest bool) layout.SegmentID {
	if s.unrevoked.Load() {
		return 0
	}
	ids := s.ownerless[k]
	for i := len(ids) - 1; i >= 0; i-- {
		g := &s.layout.Segments[ids[i]]
		if blade >= 0 && g.Placement.Replicas[0].Blade != rdma.BladeID(blade) ||
			rest && s.layout.Backed(ids[i]) >= s.opts.SegmentSize {
			continue
		}
		if !slices.ContainsFunc(s.layout.Coordinators, func(c layout.CoordinatorEntry) bool {
			return c.Process == g.Owner || c.Process == 0
		}) {
			return ids[i]
		}
	}
	return 0
}

// adoptSegment makes a segment without owner this process's. No verb of its owners before is on its
// way, since the epoch has begun in which the last of them was ended, and their logs are decided.
// The caller holds the lock, in a change, and the process is registered.
func (s *allocation) adoptSegment(id layout.SegmentID) error {
	g := s.layout.Segments[id]
	g.Owner = s.process
	if err := s.commit(layout.EntryOfSegment(id, g)); err != nil {
		return err
	}
	s.layout.Segments[id].Owner = s.process
	s.takeIn(id)
	return nil
}

// takeIn has what is free in a segment found that has become this process's. Sessions of this
// process may be about to free blocks there under FreedByOther: those are found by their headers,
// too, when these sessions have done with them, and do not go back to their allocators. A sweep is
// due, since those of others have passed over what had no owner. The caller holds the lock.
func (s *allocation) takeIn(id layout.SegmentID) {
	s.freesFrom(s.layout.Segments[id].Freed)
	if !s.beginning() {
		s.publish() // from now on what is freed gets numbers of this process
	}
	s.disownOut(func(x layout.SegmentID) bool { return x == id })
	for a, r := range s.orphans {
		r.foreign = r.foreign || a.Segment() == id
	}
	if g := &s.layout.Segments[id]; g.Kind == layout.KindBlocks {
		s.lookThrough(id)
		s.openRest(id)
	} else {
		s.extents.unread = append(s.extents.unread, id)
	}
	s.owing = true
	s.sweeps++
}

// disownOut says of the blocks of segments that are on their way to or from a session that their
// allocators do not get them back. The caller holds the lock.
func (s *allocation) disownOut(of func(layout.SegmentID) bool) {
	for _, a := range s.allocators {
		a.mu.Lock()
		a.out.disown(of)
		a.mu.Unlock()
	}
}

// leftFree has a block found by its header that an allocator does not get back.
func (s *allocation) leftFree(a layout.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := a.Segment()
	if _, leaving := s.leaving[id]; !s.mine(id) || leaving || s.layout.Segments[id].Gone() {
		return
	}
	if !slices.ContainsFunc(s.pools[s.layout.Segments[id].Class].again, func(x *scan) bool {
		return x.seg == id && x.at <= a.Offset()/x.class.Size() && a.Offset()/x.class.Size() < x.end // it is due anyway
	}) {
		s.lookThrough(id)
	}
}

// adoptMore adopts one segment of a class that has no owner, if there is one.
func (s *allocation) adoptMore(class layout.Class) (adopted bool, err error) {
	err = s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if err := s.enroll(); err != nil {
			return err
		}
		id := s.adoptee(spread{layout.KindBlocks, class}, -1, false)
		if id == 0 {
			return nil
		}
		if err := s.adoptSegment(id); err != nil {
			return err
		}
		adopted = true
		return nil
	})
	return adopted, err
}

// disinherit forgets what this process has of segments that were its own in an earlier layout, and
// are another one's. The caller holds the lock.
func (s *allocation) disinherit(old *layout.Layout) {
	lost := map[layout.SegmentID]bool{}
	for id := range old.Segments {
		if g := &old.Segments[id]; g.Kind != layout.KindLog && old.Owns(s.process, g) && !s.mine(layout.SegmentID(id)) {
			lost[layout.SegmentID(id)] = true
		}
	}
	if len(lost) == 0 {
		return
	}
	kept := func(a layout.Addr) bool { return !lost[a.Segment()] }
	scans := func(x *scan) bool { return !lost[x.seg] }
	for class := range s.pools {
		p := &s.pools[class]
		p.free = keep(p.free, kept)
		p.open = keep(p.open, func(c carve) bool { return !lost[c.seg] })
		p.unseen, p.tails, p.holes = keep(p.unseen, scans), keep(p.tails, scans), keep(p.holes, scans)
		p.again = keep(p.again, scans)
	}
	for _, a := range s.allocators {
		a.scans = keep(a.scans, scans)
		a.mu.Lock()
		for class := range a.lists {
			l := &a.lists[class]
			l.gather()
			l.free = keep(l.free, kept)
		}
		a.out.disown(func(id layout.SegmentID) bool { return lost[id] })
		a.mu.Unlock()
	}
	maps.DeleteFunc(s.leaving, func(id layout.SegmentID, _ withdrawn) bool { return lost[id] })
	maps.DeleteFunc(s.parting, func(id layout.SegmentID, _ uint32) bool { return lost[id] })
	s.departures++
	s.extents.segs = keep(s.extents.segs, func(x *extentSegment) bool { return !lost[x.id] })
	for id := range lost {
		delete(s.extents.byID, id)
	}
	maps.DeleteFunc(s.extents.owners, func(a layout.Addr, _ origin) bool { return !kept(a) })
	s.extents.unread = keep(s.extents.unread, func(id layout.SegmentID) bool { return !lost[id] })
	s.extents.pending = keep(s.extents.pending, kept) // a word that is cleared late may be another extent's
	s.extents.late = keep(s.extents.late, func(x lateExtent) bool { return kept(x.addr) })
	s.strays = nil
}

// inherit takes in segments that this process has come to own without knowing: of the change it was
// told that it had failed. The caller holds the lock.
func (s *allocation) inherit(old *layout.Layout) {
	if !s.opts.Shared {
		return
	}
	for i := range s.layout.Segments {
		id, g := layout.SegmentID(i), &s.layout.Segments[i]
		if s.mine(id) && !g.Leaving && g.Kind != layout.KindLog && g.Kind != 0 &&
			!(i < len(old.Segments) && old.Owns(s.process, &old.Segments[i])) {
			s.takeIn(id)
		}
	}
}

// lookThrough has a segment of this process looked through for blocks that others have freed. The
// caller holds the lock.
func (s *allocation) lookThrough(id layout.SegmentID) {
	g := &s.layout.Segments[id]
	p := &s.pools[g.Class]
	p.again = append(p.again, &scan{
		seg: id, class: g.Class, end: s.layout.Backed(id) / g.Class.Size(), probed: true, again: true,
	})
}

// lookAgain has some segments of a class looked through, in turn: most at most. It reports whether
// there are any to be looked through. The caller holds the lock.
func (s *allocation) lookAgain(class layout.Class, most int) bool {
	p := &s.pools[class]
	if len(s.layout.Processes) == 0 {
		return false
	}
	n := len(s.layout.Segments)
	for i := 0; i < n && len(p.again) < most; i++ {
		p.looked = (p.looked + 1) % n
		id := layout.SegmentID(p.looked)
		queued := slices.ContainsFunc(p.again, func(x *scan) bool { return x.seg == id })
		_, leaving := s.leaving[id]
		if g := &s.layout.Segments[id]; g.Kind == layout.KindBlocks && g.Class == class && g.Placement.N > 0 &&
			!g.Leaving && s.mine(id) && !queued && !leaving {
			s.lookThrough(id)
		}
	}
	return len(p.again) > 0
}

const (
	// rescanSegments is how many segments of a class are looked through for each that is added.
	rescanSegments = 2
	// rescanBlocks is how many blocks are looked at in one step of that.
	rescanBlocks = 1 << 10
	// rescanTries is how often a step is tried in vain.
	rescanTries = 4
)

// rescan looks for free blocks in a segment of this process that no allocator has, though
// they were handed out once: other processes have freed them, or the segment was another
// one's. It is what a sweep does, for one segment: see ClaimStrays. When another sweep comes
// in between, nothing is found.
func (s *allocation) rescan(c *rdma.Coro, a *Allocator, v *layout.View, x *scan) (n int, err error) {
	var found []FreeBlock
	others := map[layout.Addr]blockline.Line{} // of those that get a number of this process
	read := func(idx []uint32, replica int, each func(i uint32, header []byte)) {
		for part := range slices.Chunk(idx, scanBlocks) {
			if err == nil {
				err = readHeaders(c, v, x, part, replica, each)
			}
		}
	}
	idx := make([]uint32, x.end-x.at)
	for i := range idx {
		idx[i] = x.at + uint32(i)
	}
	read(idx, 0, func(i uint32, header []byte) {
		if free, version := freeBlock(header); free {
			addr := layout.MakeAddr(x.seg, i*x.class.Size())
			if found = append(found, FreeBlock{addr, version}); freedByOther(header) {
				others[addr] = blockline.Line(header)
			}
		}
	})
	s.mu.Lock()
	mine := s.scanned(a, x)
	if err != nil && mine {
		s.pools[x.class].again = append(s.pools[x.class].again, x)
	}
	dangling := s.dangling // slots may lead to free blocks, and a sweep looks after those
	s.mu.Unlock()
	if err != nil || !mine {
		return 0, err
	}
	// no slot leads to one that another process has freed, since it was unlinked before, and is
	// no placeholder's yet
	if dangling {
		found = slices.DeleteFunc(found, func(f FreeBlock) bool { _, ok := others[f.Addr]; return !ok })
	}
	if len(found) == 0 {
		return 0, nil
	}
	again := func() (int, error) { // another claim came in between, or a coordinator is being recovered
		s.mu.Lock()
		defer s.mu.Unlock()
		_, leaving := s.leaving[x.seg]
		// not another one of the number, with less memory
		there := s.mine(x.seg) && !leaving && x.end*x.class.Size() <= s.layout.Backed(x.seg)
		if x.tries++; x.tries < rescanTries && there {
			s.pools[x.class].again = append(s.pools[x.class].again, x)
		}
		return 0, nil
	}
	strays := s.ClaimStrays(found)
	if strays == nil {
		return again()
	}
	if len(strays.Blocks) == 0 {
		return 0, nil
	}
	idx = idx[:len(strays.Blocks)]
	ok, at := make([]bool, len(idx)), map[uint32]int{}
	for k, b := range strays.Blocks { // in the order of found
		idx[k], ok[k] = b.Addr.Offset()/x.class.Size(), true
		at[idx[k]] = k
	}
	for replica := range v.Copies(layout.MakeAddr(x.seg, 0)) {
		read(idx, replica, func(i uint32, header []byte) {
			free, version := freeBlock(header)
			k := at[i]
			ok[k] = ok[k] && free && (version == strays.Blocks[k].Version || replica > 0)
		})
	}
	if err != nil {
		return 0, err
	}
	if err := s.renumberStrays(c, a, v, strays, ok, others); err != nil {
		return 0, err
	}
	n, void := strays.Return(ok)
	if void {
		return again()
	}
	return n, nil
}

// renumberStrays gives numbers of this process to those of the strays that others have freed; ok
// says which of them are free, and is false afterwards where that was not done.
func (s *allocation) renumberStrays(c *rdma.Coro, a *Allocator, v *layout.View, strays *Strays, ok []bool,
	others map[layout.Addr]blockline.Line) error {
	var blocks []freeLine
	var at []int
	for i, b := range strays.Blocks {
		if line, is := others[b.Addr]; is && ok[i] {
			blocks, at = append(blocks, freeLine{b.Addr, line}), append(at, i)
		}
	}
	done, err := s.renumber(c, v, a.owner, blocks)
	for k, i := range at {
		ok[i] = done[k]
	}
	return err
}
