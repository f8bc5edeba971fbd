package memory

import (
	"sync/atomic"

	"txnode/memory/layout"
)

// allocation is what is free on the blades, and whose it is: blocks, extents, logs. A process
// allocates in segments of its own.
//
// Invariants, under mu:
//
//	earlier <= len(layout.Segments)
//	a block is in a pool, with an allocator, a stray, an orphan, or in a segment that is leaving:
//	in one of them at most
//	the pools and extents are of segments that this process owns
type allocation struct {
	replicas

	// frees numbers the blocks that are freed: see CountFree.
	frees atomic.Uint64
	// earlier is the first segment of this session.
	earlier layout.SegmentID
	pools   [layout.NumClasses]pool
	// allocators are those that have blocks, as far as they are not closed: see strays.go.
	allocators []*Allocator
	strays     *Strays // the last that were claimed
	orphans    map[layout.Addr]*Resolution
	extents    extentSpace
	logs       logSpace
	// leaving are segments of which no block is handed out any more, and of which the catalog does
	// not say yet that they leave; parting are those of which it does, with the last checkpoint
	// when this process began to wait for their end; and wholeSince, by class, are those that may
	// be next: since when all of their blocks are free. See giveback.go.
	leaving    map[layout.SegmentID]withdrawn
	parting    map[layout.SegmentID]uint32
	wholeSince [layout.NumClasses]map[layout.SegmentID]int64
	patience   int64 // of the last call of Withdraw
	// departures grows when segments, with all of their blocks, leave the pools, and when their
	// numbers become vacant.
	departures uint64
	// ownerless are segments that have no owner, and have a copy, by purpose.
	ownerless map[spread][]layout.SegmentID
}
