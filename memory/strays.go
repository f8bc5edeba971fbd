package memory

import (
	"math"
	"slices"

	"txnode/memory/internal/blockline"
	"txnode/memory/layout"
)

// A stray is a block that is free and that nobody has: no slot leads to it, it is in
// no pool, on no list of an allocator, on its way nowhere. Dead coordinators leave
// them: what they had fetched, what they had taken and not come to use, what
// recovery has freed in their names. Once a block is a stray it stays one: whoever
// could use it would have to have it first. So strays are found while others run,
// without a verb of theirs, like this:
//
//  1. A sweep walks over the headers of all blocks and notes those that are free and
//     unlocked, with their versions.
//  2. ClaimStrays takes away, at one moment, those that somebody has. What is left is
//     either a stray, or it was taken after its header was read, and is in use.
//  3. The sweep reads what is left once more, on all copies. What is free still, at the
//     same version, was not in use at the moment of step 2, since no version comes
//     back: it is a stray.
//  4. Return gives those to the pool.
//
// Nobody decides the transactions of a dead coordinator in step 2, so that no log tells of
// a block that looks like a stray because its only trace was on a blade that was lost. For
// the same reason a slot may lead to a block that is free then: where that is possible, the
// sweep empties such slots between steps 2 and 3.
//
// The memory of a dead coordinator is not asked. One that is only late, and wakes up
// when its blocks are others', finds its allocator's lists empty.

// FreeBlock is a block that was found free and unlocked.
type FreeBlock struct {
	Addr    layout.Addr
	Version uint64 // the version word; 0: it was never used
}

// Strays are blocks that no allocator had when ClaimStrays returned, or that are in use.
type Strays struct {
	Blocks []FreeBlock
	// Resolving: some of the free blocks are left out, because a session is resolving, or was, the
	// lock of one of their copies. They may be strays that another sweep has to find.
	Resolving bool

	space     *allocation
	losses    uint64 // of blades, whose transactions were decided before
	resolving int    // how many locks were
}

// ClaimStrays returns those of the blocks, which a walk has found, that no allocator has. It takes
// the blocks of allocators whose coordinators are gone. It returns nil while the transactions of a
// dead coordinator are being decided: the answer is not known then, and another sweep is due
// afterwards. A later claim makes this one void.
//
// It keeps the lock of the space for as long as it takes to copy the lists: 0.2 ms for ten thousand
// free blocks, 5 ms for a million (BenchmarkClaimStrays).
func (s *allocation) ClaimStrays(found []FreeBlock) *Strays {
	// What was handed out stays so, and what has been looked for does not come to be due.
	var sifted []FreeBlock
	var x *Strays
	var owned []layout.Addr
	for ok := false; !ok; {
		sifted = sifted[:0]
		departures := s.departed()
		for part := range slices.Chunk(found, siftPart) {
			sifted = append(sifted, s.Sift(part)...)
		}
		owned = s.room()
		x, owned, ok = s.claimStrays(owned, departures)
	}
	if x != nil {
		n := len(owned) - x.resolving
		nobodys := without(sifted, owned[:n])
		x.Blocks = without(nobodys, owned[n:])
		x.Resolving = len(x.Blocks) < len(nobodys)
	}
	return x
}

// siftPart is how many blocks are sifted at a time.
const siftPart = 4096

// room makes room for all that somebody has, and a little more.
func (s *allocation) room() []layout.Addr {
	s.mu.Lock()
	n := 1024
	for class := range s.pools {
		n += len(s.pools[class].free)
	}
	n += 256 * len(s.allocators)
	s.mu.Unlock()
	owned := make([]layout.Addr, n+n/8)
	clear(owned) // so that its pages are there
	return owned[:0]
}

// departed is how often segments have left the pools: no stray is in one that has.
func (s *allocation) departed() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.departures
}

// claimStrays is the moment of ClaimStrays: it notes what allocators and resolutions have. ok: no
// segment has left the pools since departures was noted.
func (s *allocation) claimStrays(owned []layout.Addr, departures uint64) (x *Strays, all []layout.Addr, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.departures != departures {
		return nil, nil, false
	}
	if s.writable() != nil {
		return nil, nil, true
	}
	for i := range s.layout.Coordinators {
		if s.layout.Coordinators[i].Recovering {
			return nil, nil, true
		}
	}
	s.bereave()
	s.strays = &Strays{space: s, losses: s.losses}
	owned = s.owned(owned)
	s.strays.resolving = len(s.orphans) // which are the last ones
	return s.strays, owned, true
}

// Return ends the claim, and gives those of its blocks to the pool that are strays: ok, by their
// number. void: there was a later claim, or a blade was lost, so that slots may lead to some of the
// blocks. Then nothing was given.
func (x *Strays) Return(ok []bool) (n int, void bool) {
	s := x.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.strays != x || s.losses != x.losses || s.FailoverPending() || s.writable() != nil {
		return 0, true
	}
	s.strays = nil
	v := s.View()
	for i := len(x.Blocks) - 1; i >= 0; i-- { // the lowest is handed out first
		if a := x.Blocks[i].Addr; ok[i] && v.Copies(a) > 0 {
			p := &s.pools[s.layout.Segments[a.Segment()].Class]
			p.free = append(p.free, a)
			n++
		}
	}
	return n, false
}

// Resolve returns the right to free a block that is a stray on the copies on which it is not free,
// for coordinator by, or 0; nil: there was a later claim.
func (x *Strays) Resolve(a layout.Addr, by uint32) *Resolution {
	s := x.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.strays != x {
		return nil
	}
	return s.resolve(a, by)
}

// bereave takes everything from allocators whose coordinators are gone. What they were
// looking through is looked through by others. The caller holds the lock.
func (s *allocation) bereave() {
	kept := s.allocators[:0]
	for _, a := range s.allocators {
		if s.outlives(a.owner) {
			kept = append(kept, a)
			continue
		}
		a.mu.Lock()
		for class := range a.lists {
			a.lists[class].gather()
			a.lists[class].free = a.lists[class].free[:0]
		}
		a.out.clear()
		a.mu.Unlock()
		for _, x := range a.scans {
			p := &s.pools[x.class]
			if x.again {
				p.again = append(p.again, x)
			} else if x.probed {
				p.holes = append(p.holes, x)
			} else {
				p.unseen = append(p.unseen, x)
			}
		}
		a.scans = nil
	}
	clear(s.allocators[len(kept):])
	s.allocators = kept
}

// outlives reports whether a coordinator, or a process, is registered, or is none. The caller holds
// the lock.
func (s *store) outlives(owner uint32) bool {
	if owner == 0 {
		return true
	}
	_, err := s.findCoordinator(owner)
	return err == nil || s.layout.Process(owner) != nil
}

// Sift returns those of the free blocks, which a walk has found, that are in segments of this
// process, and were handed out or found by a search for free blocks of earlier sessions. The others
// can be very many, and need not be asked for.
func (s *allocation) Sift(found []FreeBlock) []FreeBlock {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sift(found)
}

// sift is Sift; the caller holds the lock.
func (s *allocation) sift(found []FreeBlock) []FreeBlock {
	out := found[:0:0]
	var x part
	for _, f := range found {
		seg := f.Addr.Segment()
		if int(seg) >= len(s.layout.Segments) || s.layout.Segments[seg].Kind != layout.KindBlocks ||
			s.layout.Segments[seg].Gone() || !s.mine(seg) {
			continue // another process finds it, or it is none any more
		}
		if _, leaving := s.leaving[seg]; leaving {
			continue // all of its blocks are free
		}
		if seg != x.seg {
			x = s.part(seg)
		}
		block := f.Addr.Offset() / x.class.Size()
		if block >= x.next {
			continue
		}
		due := false // a scan will find it
		for _, r := range x.unscanned {
			due = due || block >= r.at && block < r.end
		}
		if !due || f.Version>>blockline.CoordinatorShift >= uint64(s.since) {
			out = append(out, f)
		}
	}
	return out
}

// part is what of a segment nobody has looked at.
type part struct {
	seg       layout.SegmentID
	class     layout.Class
	next      uint32 // the first block that was never handed out
	unscanned []*scan
}

func (s *allocation) part(seg layout.SegmentID) part {
	x := part{seg: seg, class: s.layout.Segments[seg].Class, next: math.MaxUint32}
	p := &s.pools[x.class]
	for i := range p.open {
		if p.open[i].seg == seg {
			x.next = p.open[i].next
		}
	}
	note := func(list []*scan) {
		for _, r := range list {
			if r.seg == seg {
				x.unscanned = append(x.unscanned, r)
			}
		}
	}
	note(p.unseen)
	note(p.tails)
	note(p.holes)
	for _, a := range s.allocators {
		note(a.scans)
	}
	return x
}

// unowned returns those of the blocks that neither a pool has nor an allocator, nor
// who resolves a lock. The caller holds the lock.
func (s *allocation) unowned(found []FreeBlock) []FreeBlock {
	return without(s.sift(found), s.owned(nil))
}

// owned appends what a pool has, or an allocator, or, as the last ones, who resolves a lock. The
// caller holds the lock.
func (s *allocation) owned(out []layout.Addr) []layout.Addr {
	for class := range s.pools {
		out = append(out, s.pools[class].free...)
	}
	for _, a := range s.allocators {
		a.mu.Lock()
		for class := range a.lists {
			a.lists[class].gather()
			out = append(out, a.lists[class].free...)
		}
		out = a.out.appendTo(out)
		a.mu.Unlock()
	}
	for a, r := range s.orphans {
		if s.outlives(r.by) {
			out = append(out, a)
		} else {
			delete(s.orphans, a) // what it still says of the block is ignored
		}
	}
	return out
}

// without returns those of the blocks that are not among the others.
func without(found []FreeBlock, others []layout.Addr) []FreeBlock {
	at := map[layout.SegmentID][]uint64{} // a bit for each place where a block can begin
	bit := func(bits []uint64, a layout.Addr) (word, mask uint64) {
		i := uint64(a.Offset() / layout.BlockAlign)
		if i/64 >= uint64(len(bits)) {
			return 0, 0
		}
		return i / 64, 1 << (i % 64)
	}
	var bits []uint64
	last := layout.SegmentID(0)
	of := func(a layout.Addr) []uint64 {
		if seg := a.Segment(); seg != last {
			last, bits = seg, at[seg]
		}
		return bits
	}
	for _, f := range found {
		b := of(f.Addr)
		if need := int(f.Addr.Offset()/layout.BlockAlign/64) + 1; need > len(b) {
			b = append(b, make([]uint64, need-len(b))...)
			at[last], bits = b, b
		}
		w, m := bit(b, f.Addr)
		b[w] |= m
	}
	for _, a := range others {
		if b := of(a); len(b) > 0 {
			w, m := bit(b, a)
			b[w] &^= m
		}
	}
	out := found[:0:0]
	for _, f := range found {
		b := of(f.Addr)
		if w, m := bit(b, f.Addr); b[w]&m != 0 {
			out = append(out, f)
		}
	}
	return out
}

// Unowned lists blocks that are not where they should be, for checks when no session is at work.
// The blocks are all free and unlocked. Listed are those that no live coordinator and no pool has,
// and those that are in pools or with coordinators more than once.
func (s *allocation) Unowned(found []FreeBlock) (nobodys []FreeBlock, twice []layout.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[layout.Addr]bool{}
	count := func(list []layout.Addr) {
		for _, a := range list {
			if a != 0 && seen[a] {
				twice = append(twice, a)
			}
			seen[a] = true
		}
	}
	var all []*Allocator
	for _, a := range s.allocators {
		if !s.outlives(a.owner) {
			continue
		}
		all = append(all, a)
		a.mu.Lock()
		for class := range a.lists {
			a.lists[class].gather()
			count(a.lists[class].free)
		}
		count(a.out.appendTo(nil))
		a.mu.Unlock()
	}
	for class := range s.pools {
		count(s.pools[class].free)
		for _, c := range s.pools[class].open {
			for k := c.next; k < c.n; k++ {
				count([]layout.Addr{layout.MakeAddr(c.seg, k*layout.Class(class).Size())})
			}
		}
	}
	was := s.allocators
	s.allocators = all
	defer func() { s.allocators = was }()
	return s.unowned(found), twice
}
