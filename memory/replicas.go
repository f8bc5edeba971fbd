package memory

import (
	"txnode/memory/layout"
	"txnode/rdma"
)

// replicas is where the copies of segments are, and where there is room for others.
//
// Invariants, under mu:
//
//	sum of primaries[k] = segments of kind and class k that have a copy
//	a place in scrubbed is below Blade.Used      and its blade is down
type replicas struct {
	membership

	primaries map[spread][]uint32 // primaries by blade, of one purpose
	// scrubbed are, of blades that are down, the places that this process has cleared: how far
	// Admit is.
	scrubbed map[rdma.BladeID]scrubbed
	// unsure is the epoch in which clearing a place has failed: what was posted for that may be on
	// its way. See Reclaim.
	unsure layout.Epoch
}

// spread is what primaries are spread evenly over the blades for.
type spread struct {
	kind  layout.SegmentKind
	class layout.Class
}

// scrubbed is what of a blade that is down has been cleared.
type scrubbed struct {
	incarnation uint64 // of the blade
	places      layout.Places
}
