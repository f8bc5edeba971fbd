package memory

import "time"

// What tests outside of the package see of its inside.
const (
	BlockVersionOff  = blockVersionOff
	BlockMetaOff     = blockMetaOff
	BlockGuardOff    = blockGuardOff
	BlockStateShift  = blockStateShift
	BlockStateMask   = blockStateMask
	BlockStateFree   = blockStateFree
	BlockStateLive   = blockStateLive
	BlockStateAbsent = blockStateAbsent
	CoordinatorShift = coordinatorShift
	GuardHeld        = guardHeld
	GuardStranded    = guardStranded
	HeaderStride     = headerStride
)

// SetNextCoordinator lets tests reach the end of the numbers.
func (s *Space) SetNextCoordinator(n uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layout.NextCoordinator = n
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
