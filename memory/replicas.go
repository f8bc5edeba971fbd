package memory

import "txnode/rdma"

// replicas is where the copies of segments are, and where there is room for others.
//
// Invariants, under mu:
//
//	sum of primaries[k] = segments of kind and class k that have a copy
//	a place in clean is below Blade.Used         it may have been taken since: newBuilder looks
type replicas struct {
	membership

	primaries map[spread][]uint32 // primaries by blade, of one purpose
	// clean are places of blades that are up that a segment has had and lost, and
	// that have been cleared since: see rebuild.go.
	clean map[rdma.BladeID][]uint64
}

// spread is what primaries are spread evenly over the blades for.
type spread struct {
	kind  SegmentKind
	class Class
}
