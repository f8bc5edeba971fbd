package memory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"txnode/memory/internal/mum"
	"txnode/memory/layout"
	"txnode/rdma"
)

// An index segment starts with a table of one word for each granule, which says
// how long the extent is that starts there, in granules; 0: none does.
//
//	63     32 31     24 23       0
//	+--------+---------+----------+
//	| check  |    0    |  length  |
//	+--------+---------+----------+
//
// An extent is allocated and freed by one 8-byte WRITE on each replica, which
// verifies itself, and no two extents share a word. The word of an extent is
// written before the extent is handed out, and cleared before its place is used
// again: whenever the process stops, the table names every extent that an index
// may use, and none that overlap.
const lengthBits = 24

// granulesFor is how many granules hold size bytes, at least one.
func granulesFor(size, unit uint32) uint32 { return (max(size, 1)-1)/unit + 1 }

// extentWord is the word for an extent of n granules at a.
func extentWord(a Addr, n uint32) uint64 {
	return uint64(uint32(mum.Mix(uint64(a)^0xa0761d6478bd642f, uint64(n)^0xe7037ed1a0b428db)))<<32 | uint64(n)
}

// extentSegment is an index segment in memory.
type extentSegment struct {
	id      SegmentID
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
	byID    map[SegmentID]*extentSegment
	pending []Addr          // freed, with the word still on the blades
	late    []lateExtent    // freed, and verbs to them may be on their way
	owners  map[Addr]origin // of an extent that was allocated since the database was opened, or inherited
	serial  uint64          // of the last one
	offered []Extent        // their reservations are in doubt: see ReserveExtent
	rotate  int             // blade whose turn it is
	unread  []SegmentID     // adopted, and their tables are not read yet
}

// lateExtent is an extent that is free once no verb of an epoch takes effect any more.
type lateExtent struct {
	addr  Addr
	epoch Epoch
	since int64 // by the fabric's clock
}

// origin tells one allocation of a place from the next one.
type origin struct {
	owner  uint64 // the coordinator that has allocated the extent: see inherited
	serial uint64 // 0: it was allocated before the database was opened
}

// inherited is the owner of what was allocated in a segment before this process adopted it. The process that has allocated it is gone: if
// no index and no reservation leads to it, none will.
const inherited = 1 << 63

// latePatienceNs is how long a late extent waits for an epoch before it is given one.
const latePatienceNs = 1e9

func (s *store) newExtentSegment(id SegmentID) *extentSegment {
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
		s.extents.byID, s.extents.owners = map[SegmentID]*extentSegment{}, map[Addr]origin{}
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

// NewExtent returns a contiguous area of at least size bytes, 256-byte
// aligned, all zero, on every replica of an index segment. Successive extents
// have their primaries on different blades. It costs a round trip, and a change
// of the catalog when a new segment is needed. An extent of which a verb has failed that may
// still arrive is not used again before the thread's coordinator is gone, or, without one, before the next epoch. One that is not
// reachable from a table's root, nor reserved, when the process dies is given back by the process that adopts its segment: DeadExtents.
//
// When the epoch moves meanwhile it fails with rdma.ErrStaleKey, and may be called
// again after [rdma.Thread.Reconnect]; nothing is lost.
func (s *allocation) NewExtent(c *rdma.Coro, size uint32) (Extent, error) {
	if size > s.MaxExtent() {
		return Extent{}, fmt.Errorf("%w: an extent of %d bytes; at most %d are possible with segments of %d", ErrTooLarge, size, s.MaxExtent(), s.opts.SegmentSize)
	}
	unit := layout.Granule(s.opts.SegmentSize)
	n := granulesFor(size, unit)
	var x Extent
	dirty := false
	for adopted := true; adopted; {
		err := s.readAdopted(c)
		if !s.unrevoked.Load() {
			_ = errors.Join(s.settleOffered(), s.reclaim()) // else later: there may be room without
		}
		if err == nil {
			err = s.settleFrees(c)
		}
		if err == nil {
			x, dirty, adopted, err = s.reserveExtent(n, c.Thread().Owner())
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
		err = s.writeWords(c, v, []Addr{a}, []uint64{extentWord(a, n)})
	}
	if err != nil {
		s.unsettled(c, v, a) // the word may be there
		return Extent{}, fmt.Errorf("memory: allocating an extent of %d bytes at %v: %w", size, a, err)
	}
	return x, nil
}

// unsettled notes that verbs to extents which are to be free have failed: that will be tried
// again. As long as a verb may still arrive, the extents are nobody else's, but the
// thread's, until its coordinator is gone (DeadExtents). Those of a thread without one are late, until the keys of the view have
// ended with which the verbs were posted.
func (s *allocation) unsettled(c *rdma.Coro, v *View, addrs ...Addr) {
	if c.Thread().Uncertain() {
		s.disown(c, v, addrs)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unit := layout.Granule(s.opts.SegmentSize)
	for _, a := range addrs {
		if x := s.extents.byID[a.Segment()]; x != nil { // else it stays allocated: the word may be one of another extent by then
			x.starts[a.Offset()/unit] |= freed
			s.extents.pending = append(s.extents.pending, a)
		}
	}
}

// disown leaves extents that are to be free to the recovery of the thread's coordinator, or, without one, to a later epoch.
func (s *allocation) disown(c *rdma.Coro, v *View, addrs []Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unit := layout.Granule(s.opts.SegmentSize)
	for _, a := range addrs {
		x := s.extents.byID[a.Segment()]
		if x == nil {
			continue // its segment has another owner, or will have: see inherited
		}
		if owner := c.Thread().Owner(); owner != 0 && owner < MaxCoordinators {
			x.starts[a.Offset()/unit] &^= freed
			s.extents.owners[a] = s.origin(owner)
			continue
		}
		x.starts[a.Offset()/unit] |= freed
		s.extents.late = append(s.extents.late, lateExtent{a, v.Epoch, c.Thread().Now()})
	}
}

// ended reports whether no verb with a key of an epoch takes effect any more. The caller holds the lock.
func (s *membership) ended(e Epoch) bool {
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

// ExtentsDue reports whether SettleExtents would clear words on the blades at a time of the fabric's clock, or begin an epoch for them, or
// read the tables of segments that were adopted, or ask the catalog about a reservation.
func (s *allocation) ExtentsDue(now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.extents.pending)+len(s.extents.unread)+len(s.extents.offered) > 0 || slices.ContainsFunc(s.extents.late, func(x lateExtent) bool { return s.ended(x.epoch) || now-x.since > latePatienceNs })
}

// reserveExtent finds n granules for an owner and marks them. dirty: they may have
// been used before. adopted: a segment was, instead: its table is to be read, and the caller tries again.
func (s *allocation) reserveExtent(n uint32, owner uint64) (e Extent, dirty, adopted bool, err error) {
	err = s.update(func() error {
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
		e = Extent{MakeAddr(x.id, at*unit), n * unit, s.origin(owner)}
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

// extentRoom finds room on the blade whose turn it is, or next around the ring;
// on a blade that has none, a segment is adopted that has no owner, or, if it has place for one, added. The caller holds the lock, in a
// change.
func (s *allocation) extentRoom(n uint32) (found *extentSegment, at uint32, adopted bool, err error) {
	const what = "an index"
	l := s.layout
	blades := len(l.Blades)
	var full error
	first := (layout.TableGranules(l.SegmentSize) + n) * layout.Granule(l.SegmentSize) // of a new segment
	for i := range blades {
		b := rdma.BladeID((s.extents.rotate + i) % blades)
		for _, x := range s.extents.segs {
			if x.primary != b || l.Segments[x.id].Placement.N == 0 {
				continue
			}
			at, ok := x.find(n)
			if !ok {
				continue
			}
			if err := s.extend(what, x.id, (at+n)*layout.Granule(l.SegmentSize)); err == nil || errors.Is(err, errAgain) {
				return x, at, false, err
			}
		}
		if id := s.adoptee(spread{kind: KindIndex}, int(b), false); id != 0 {
			return nil, 0, true, s.adoptSegment(id)
		}
		id, err := s.addSegment(KindIndex, 0, int(b), what, first)
		if err == nil {
			x := s.newExtentSegment(id)
			s.addExtentSegment(x)
			at, _ := x.find(n)
			return x, at, false, nil
		}
		if errors.Is(err, errAgain) {
			return nil, 0, false, err
		}
		if full == nil || errors.Is(full, ErrNoSpace) { // that a blade does not answer says more: with another one there may be room
			full = err
		}
	}
	return nil, 0, false, full
}

// FreeExtent gives an extent back when no reader can hold the address any more. The place is used again after a later NewExtent,
// SettleExtents or Close has cleared the extent's word on the blades.
//
// Nothing happens (done is false) if this process does not have that extent any more: it was given back before, or the segment has been
// another process's since, even if it is this one's again. Then the process that adopted the segment gives back what nothing leads to
// (DeadExtents), and the place may be another extent's.
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

// holds reports whether an extent is allocated, and in a segment of this process ever since. The caller holds the lock.
func (s *allocation) holds(x Extent) bool {
	now := s.extentAt(x.Addr)
	return now.Size > 0 && now == x
}

// ExtentAt is the extent that starts at an address, or, with a size of 0, there is none in the segments of this process.
func (s *allocation) ExtentAt(a Addr) Extent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.extentAt(a)
}

// extentAt is ExtentAt; the caller holds the lock.
func (s *allocation) extentAt(a Addr) (x Extent) {
	unit := layout.Granule(s.opts.SegmentSize)
	g, at := s.extents.byID[a.Segment()], s.granule(a)
	if a>>AddrBits != 0 || g == nil || a.Offset()%unit != 0 || int(at) >= len(g.starts) || g.starts[at]&freed != 0 || g.starts[at] == 0 {
		return x
	}
	return Extent{a, g.starts[at] * unit, s.extents.owners[a]}
}

// granule is the number of the granule of an address in its segment.
func (s *store) granule(a Addr) uint32 { return a.Offset() / layout.Granule(s.opts.SegmentSize) }

// freed marks the start of an extent whose word is to be cleared.
const freed = 1 << 31

// settleFrees clears the words of freed extents on the blades, and then lets
// their places be used again.
func (s *allocation) settleFrees(c *rdma.Coro) error {
	s.mu.Lock()
	s.ripen()
	pending := s.extents.pending
	s.extents.pending = nil
	v := s.ViewOn(c.Thread())
	s.mu.Unlock()
	if len(pending) == 0 {
		return nil
	}
	ended := false
	defer func() {
		if !ended { // a panic unwinds the thread
			s.disown(c, v, pending)
		}
	}()
	err := s.writeWords(c, v, pending, make([]uint64, len(pending)))
	ended = true
	if err != nil {
		s.unsettled(c, v, pending...)
		return fmt.Errorf("memory: freeing extents: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unit := layout.Granule(s.opts.SegmentSize)
	for _, a := range pending {
		x, at := s.extents.byID[a.Segment()], a.Offset()/unit
		if x == nil || x.starts[at]&freed == 0 { // its table was read meanwhile
			continue
		}
		x.mark(at, x.starts[at]&^freed, false)
		x.starts[at] = 0
		delete(s.extents.owners, a)
	}
	return nil
}

// writeWords writes the words of the extents at addrs on all replicas. When it
// returns, they and all that the thread wrote before are placed.
func (s *store) writeWords(c *rdma.Coro, v *View, addrs []Addr, words []uint64) error {
	t := c.Thread()
	unit := layout.Granule(s.opts.SegmentSize)
	buf, err := t.Alloc(8 * zeroBatch)
	if err != nil {
		return err
	}
	defer t.Free(buf, 8*zeroBatch)
	durable := s.durable()
	var batch rdma.Batch
	for len(addrs) > 0 {
		k := min(len(addrs), zeroBatch)
		batch.Reset()
		for i, a := range addrs[:k] {
			local := buf + uint32(8*i)
			t.PutWord(local, words[i])
			table := MakeAddr(a.Segment(), a.Offset()/unit*8)
			for r := range v.Copies(a) {
				batch.Write(v.At(table, r), local, 8)
				if durable {
					batch.Flush(v.At(table, r), 8)
				}
			}
		}
		if err := c.Do(&batch); err != nil {
			return err
		}
		for _, a := range addrs[:k] {
			table := MakeAddr(a.Segment(), a.Offset()/unit*8)
			if v.Written(table) == v.Copies(table) {
				continue
			}
			if err := c.Fence(rdma.FenceThread, 0, &batch); err != nil { // the primary's word is there
				return err
			}
			if err := SyncWords(c, v, table, 8); err != nil {
				return err
			}
			if !durable {
				continue
			}
			batch.Reset()
			for r := v.Copies(table); r < v.Written(table); r++ {
				batch.Flush(v.At(table, r), 8)
			}
			if err := c.Do(&batch); err != nil {
				return err
			}
		}
		addrs, words = addrs[k:], words[k:]
	}
	// Others, with queue pairs of their own, may write to the same places from
	// now on: nothing of ours may be placed later.
	return c.Fence(rdma.FenceThread, 0, &batch)
}

// loadExtents reads the tables of those of the segments that are of indexes. adopted: they are, so it makes their copies equal, too, and
// what is allocated there is inherited.
func (s *allocation) loadExtents(c *rdma.Coro, ids []SegmentID, adopted bool) error {
	v := s.ViewOn(c.Thread())
	for _, id := range ids {
		s.mu.Lock()
		wanted := s.layout.Segments[id].Kind == KindIndex && s.mine(id)
		var x *extentSegment
		if wanted {
			x = s.newExtentSegment(id)
		}
		s.mu.Unlock()
		if x == nil {
			continue
		}
		x.fresh = uint32(len(x.starts))
		if v.Copies(MakeAddr(x.id, 0)) == 0 && s.View().Copies(MakeAddr(x.id, 0)) > 0 { // the thread is behind
			return fmt.Errorf("memory: reading the extents of segment %d: %w", x.id, rdma.ErrStaleKey)
		}
		err := s.loadAnyTable(c, v, x)
		if err == nil && adopted {
			err = s.levelTable(c, v, x)
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		if s.mine(id) && s.extents.byID[id] == nil {
			s.addExtentSegment(x)
			if adopted {
				s.inheritExtents(x)
			}
		}
		s.mu.Unlock()
	}
	return nil
}

// inheritExtents leaves the extents of a segment that was adopted to DeadExtents. The caller holds the lock.
func (s *allocation) inheritExtents(x *extentSegment) {
	s.loose++
	for g, n := range x.starts {
		if n > 0 {
			s.extents.owners[MakeAddr(x.id, uint32(g)*layout.Granule(s.opts.SegmentSize))] = s.origin(inherited)
		}
	}
}

// loadAnyTable reads the table of an index segment from the first copy that is sound. ErrDamaged: none is, and the error is of all. That
// one copy is damaged says nothing while another one cannot be read.
func (s *store) loadAnyTable(c *rdma.Coro, v *View, x *extentSegment) error {
	var damaged, unread []error
	for r := range v.Copies(MakeAddr(x.id, 0)) {
		err := s.loadTable(c, v, x, r)
		switch {
		case err == nil:
			x.source = v.At(MakeAddr(x.id, 0), r).Blade
			return nil
		case errors.Is(err, ErrDamaged):
			damaged = append(damaged, err)
		default:
			unread = append(unread, err)
		}
	}
	if len(unread) > 0 {
		return errors.Join(unread...)
	}
	return errors.Join(damaged...)
}

// readAdopted reads the tables of segments that were adopted, and makes their copies equal: the owner may have died between two WRITEs
// of a word, and a copy that says otherwise would count after the loss of the primary. One of which all copies are damaged is told of
// (Options.Damaged), and nothing is allocated there: the extents that are in use stay so.
func (s *allocation) readAdopted(c *rdma.Coro) error {
	s.mu.Lock()
	ids := s.extents.unread
	s.extents.unread = nil
	s.mu.Unlock()
	for i, id := range ids {
		err := s.loadExtents(c, []SegmentID{id}, true)
		if errors.Is(err, ErrDamaged) {
			if s.opts.Damaged != nil {
				s.opts.Damaged(fmt.Errorf("memory: segment %d had another owner, and nothing is allocated there any more: %w", id, err))
			}
			continue
		}
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.extents.unread = append(s.extents.unread, ids[i:]...)
			return err
		}
	}
	return nil
}

// loadTable reads the table of an index segment from one replica.
func (s *store) loadTable(c *rdma.Coro, v *View, x *extentSegment, replica int) error {
	t := c.Thread()
	unit := layout.Granule(s.opts.SegmentSize)
	size := uint32(len(x.starts)) * 8
	chunk := min(size, zeroChunk)
	buf, err := t.Alloc(int(chunk))
	if err != nil {
		return fmt.Errorf("memory: reading the extents of segment %d: %w", x.id, err)
	}
	defer t.Free(buf, int(chunk))
	starts := make([]uint32, len(x.starts))
	end := layout.TableGranules(s.opts.SegmentSize) // of the extent before
	var batch rdma.Batch
	for off := uint32(0); off < size; off += chunk {
		batch.Reset()
		at := v.At(MakeAddr(x.id, off), replica)
		batch.Read(at, buf, min(chunk, size-off))
		if err := c.Do(&batch); err != nil {
			return &BladeError{Blade: at.Blade, Name: s.opts.bladeName(at.Blade), Err: err, What: fmt.Sprintf("reading the extents of segment %d", x.id)}
		}
		p := t.Bytes(buf, min(chunk, size-off))
		for i := range uint32(len(p) / 8) {
			w := binary.LittleEndian.Uint64(p[8*i:])
			if w == 0 {
				continue
			}
			g := off/8 + i
			a, n := MakeAddr(x.id, g*unit), uint32(w&(1<<lengthBits-1))
			if w != extentWord(a, n) || g < end || n == 0 || n > uint32(len(starts))-g {
				return &BladeError{Blade: at.Blade, Name: s.opts.bladeName(at.Blade), Err: ErrDamaged,
					What: fmt.Sprintf("the word %#x of the extent at %v, at offset %#x of the region", w, a, at.Off+uint64(8*i))}
			}
			starts[g], end = n, g+n
		}
	}
	for g, n := range starts {
		if n > 0 {
			x.starts[g] = n
			x.mark(uint32(g), n, true)
		}
	}
	return nil
}

// Extent is an allocated extent.
type Extent struct {
	Addr Addr
	Size uint32 // bytes, rounded up to granules

	origin origin
}

// Extents lists the extents that are allocated, for checks.
func (s *allocation) Extents() []Extent {
	return s.extentsOf(func(uint64) bool { return true })
}

// DeadExtents lists the extents in segments of this process that were allocated since the opening by coordinators that are not
// registered any more (rdma.Thread.Owner), or by a process that had the segment before. When the index changes of these coordinators are
// finished or taken back, such extents that no index leads to, and no reservation, are lost.
func (s *allocation) DeadExtents() []Extent {
	s.mu.Lock()
	s.listed = s.loose
	s.mu.Unlock()
	return s.extentsOf(func(owner uint64) bool {
		_, ok := slices.BinarySearch(s.regs.Load().ids, uint32(owner))
		return owner == inherited || owner != 0 && owner < MaxCoordinators && !ok
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
			if e := s.extentAt(MakeAddr(x.id, uint32(g)*unit)); e.Size > 0 && want(e.origin.owner) {
				out = append(out, e)
			}
		}
	}
	return out
}

// SettleExtents clears on the blades the words of extents that were freed, or discarded with
// their reservation, so that their places can be used again. NewExtent does it, too. Both read the tables of segments that were
// adopted, before, and find out what became of reservations in doubt (ReserveExtent). For extents that verbs may still arrive at, and have
// been waited for, it begins an epoch.
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

// LevelExtents makes the copies of the tables of extents equal to their primaries, after a client
// that was changing them has died. If the table of a primary was damaged when the space was opened,
// all are made equal to the copy that was read instead. The caller is the only user of the
// database.
func (s *allocation) LevelExtents(c *rdma.Coro) error {
	v := s.View()
	s.mu.Lock()
	segs := slices.Clone(s.extents.segs)
	s.mu.Unlock()
	for _, x := range segs {
		if err := s.levelTable(c, v, x); err != nil {
			return err
		}
	}
	return nil
}

// levelTable makes the copies of the table of a segment equal to the one that was read.
func (s *store) levelTable(c *rdma.Coro, v *View, x *extentSegment) error {
	t := c.Thread()
	buf, err := t.Alloc(2 * syncChunk)
	if err != nil {
		return fmt.Errorf("memory: comparing the tables of extents: %w", err)
	}
	defer t.Free(buf, 2*syncChunk)
	size := layout.TableGranules(s.opts.SegmentSize) * layout.Granule(s.opts.SegmentSize)
	var batch rdma.Batch
	a := MakeAddr(x.id, 0)
	from := 0
	for k := range v.Copies(a) {
		if v.At(a, k).Blade == x.source {
			from = k
		}
	}
	for k := range v.Copies(a) {
		for o := uint32(0); o < size && k != from; o += syncChunk {
			if _, err := syncRange(c, v, a+Addr(o), min(syncChunk, size-o), from, k, forever, buf, &batch); err != nil {
				return fmt.Errorf("memory: comparing the tables of extents: %w", err)
			}
		}
	}
	return nil
}
