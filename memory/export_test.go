package memory

import (
	"fmt"
	"time"

	"txnode/memory/layout"
	"txnode/rdma"
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

// AllocExtent is NewExtent for tests that need the address alone.
func (s *Space) AllocExtent(c *rdma.Coro, size uint32) (layout.Addr, error) {
	x, err := s.NewExtent(c, size)
	return x.Addr, err
}

// FreeAt frees the extent of a size at an address, and fails if there is none in the
// segments of this process.
func (s *Space) FreeAt(a layout.Addr, size uint32) error {
	x, unit := s.ExtentAt(a), layout.Granule(s.opts.SegmentSize)
	if x.Size != granulesFor(size, unit)*unit {
		return fmt.Errorf("memory: no extent of %d bytes starts at %v", size, a)
	}
	_, err := s.FreeExtent(x)
	return err
}

// Granule is the unit of extents in segments of a size.
func Granule(segmentSize uint32) uint32 { return layout.Granule(segmentSize) }

// TableGranules is how many granules of a segment the table of extents takes.
func TableGranules(segmentSize uint32) uint32 { return layout.TableGranules(segmentSize) }

// ChunkBlocks is how many blocks an allocator takes at a time.
func ChunkBlocks(class layout.Class) int { return chunkBlocks(class) }

// ExtentWord is the word for an extent of n granules at a.
func ExtentWord(a layout.Addr, n uint32) uint64 { return extentWord(a, n) }

// BeginScan lets an allocator take a part of an old segment to look through, and no more.
func BeginScan(s *Space, a *Allocator, class layout.Class) { s.nextScan(a, class, 1, true) }

// ClaimMoment is how long ClaimStrays keeps the lock of the space.
func (s *Space) ClaimMoment() time.Duration {
	owned := s.room()
	departures, from := s.departed(), time.Now()
	s.claimStrays(owned, departures)
	return time.Since(from)
}

// Low reports whether so few blocks of the class are left that Maintain would
// fetch more.
func (a *Allocator) Low(class layout.Class) bool { return a.has(class) <= a.lists[class].low }

// Refill fetches a chunk of blocks of the class now, as Alloc and Maintain do when they
// need some. ErrNoSpace means that nothing was fetched.
func (a *Allocator) Refill(c *rdma.Coro, class layout.Class) error {
	if class >= layout.NumClasses || class.Size() > a.space.opts.SegmentSize {
		return fmt.Errorf("%w: blocks of class %d in segments of %d bytes",
			ErrTooLarge, class, a.space.opts.SegmentSize)
	}
	a.moved()
	return a.refill(c, class, refillThorough)
}

// FreeBlocks is how many blocks of a class no allocator holds, as far as the
// Space knows without looking at segments of earlier sessions, and how many of
// those it has yet to look at.
func (s *Space) FreeBlocks(class layout.Class) (free, unscanned uint64) {
	if class >= layout.NumClasses {
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

// Leaves reports whether the segment of an address is withdrawn, or has gone back.
func (s *Space) Leaves(a layout.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, leaving := s.leaving[a.Segment()]
	return leaving || s.layout.Segments[a.Segment()].Vacant
}

// WithdrawBeside withdraws the segments of a class that are whole, and calls a function when they
// are known, and reports how many there were, and how many are withdrawn.
func (s *Space) WithdrawBeside(class layout.Class, fn func()) (whole, withdrawn int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids, _ := s.whole(class)
	fn()
	for _, id := range ids {
		if s.withdraw(id) {
			withdrawn++
		}
	}
	return len(ids), withdrawn
}
