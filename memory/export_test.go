package memory

import (
	"fmt"
	"slices"
	"time"

	"txnode/rdma"
)

// What tests outside of the package see of its inside.
const (
	HeaderStride = headerStride
)

// SetNextCoordinator lets tests reach the end of the numbers.
func (s *Space) SetNextCoordinator(n uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layout.NextCoordinator = n
}

// Locked reports whether a caller has the lock.
func (s *Space) Locked() bool {
	if s.mu.TryLock() {
		s.mu.Unlock()
		return false
	}
	return true
}

// Granule is the unit of extents in segments of a size.
func Granule(segmentSize uint32) uint32 { return granule(segmentSize) }

// TableGranules is how many granules of a segment the table of extents takes.
func TableGranules(segmentSize uint32) uint32 { return tableGranules(segmentSize) }

// ChunkBlocks is how many blocks an allocator takes at a time.
func ChunkBlocks(class Class) int { return chunkBlocks(class) }

// ExtentWord is the word for an extent of n granules at a.
func ExtentWord(a Addr, n uint32) uint64 { return extentWord(a, n) }

// BeginScan lets an allocator take a part of an old segment to look through, and no more.
func BeginScan(s *Space, a *Allocator, class Class) { s.nextScan(a, class, 1, true) }

// ClaimMoment is how long ClaimStrays keeps the lock of the space.
func (s *Space) ClaimMoment() time.Duration {
	owned := s.room()
	from := time.Now()
	s.claimStrays(owned)
	return time.Since(from)
}

// Low reports whether so few blocks of the class are left that Maintain would
// fetch more.
func (a *Allocator) Low(class Class) bool { return a.has(class) <= a.lists[class].low }

// Refill fetches a chunk of blocks of the class now, as Alloc and Maintain do when they
// need some. ErrNoSpace means that nothing was fetched.
func (a *Allocator) Refill(c *rdma.Coro, class Class) error {
	if class >= NumClasses || class.Size() > a.space.opts.SegmentSize {
		return fmt.Errorf("%w: blocks of class %d in segments of %d bytes", ErrTooLarge, class, a.space.opts.SegmentSize)
	}
	a.moved()
	return a.refill(c, class, refillThorough)
}

// FreeBlocks is how many blocks of a class no allocator holds, as far as the
// Space knows without looking at segments of earlier sessions, and how many of
// those it has yet to look at.
func (s *Space) FreeBlocks(class Class) (free, unscanned uint64) {
	if class >= NumClasses {
		return 0, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.pools[class]
	free = uint64(len(p.free))
	for _, c := range p.open {
		free += uint64(s.blocks(class) - c.next) // those included that get memory when they are needed
	}
	for _, list := range [][]*scan{p.unseen, p.tails, p.holes} {
		for _, x := range list {
			unscanned += uint64(x.end - x.at)
		}
	}
	return free, unscanned
}

// Lost reports whether an address lies in a segment of which no copy is left.
func (v *View) Lost(a Addr) bool {
	s := a >> OffsetBits
	return s > 0 && s < Addr(len(v.segs)) && v.segs[s].n == 0
}

// WithoutKeys are the entries as a program of before blades chose their keys has written them.
func WithoutKeys(entries []Entry) []Entry {
	out := slices.Clone(entries)
	for i, e := range out {
		if prefix, _, _ := splitKey(e.Key); prefix == prefixBlade {
			p, err := unseal(e, entryBlade)
			if err != nil {
				panic(err)
			}
			out[i] = seal(e.Key, entryBlade, p[:13])
		}
	}
	return out
}

// Entries are what a catalog says of the layout.
func (l *Layout) Entries() []Entry { return l.entries() }
