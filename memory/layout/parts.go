package layout

import (
	"cmp"
	"slices"

	"txnode/rdma"
)

// PartUnit is the least part of a segment that gets memory, in bytes: a multiple of any page size
// in use.
const PartUnit = 64 << 10

// Backed is how many bytes of a segment of blocks or of an index, from its start, have memory.
// Nothing beyond was ever handed out, and all bytes there are zero.
func (l *Layout) Backed(id SegmentID) uint32 {
	if n := l.Segments[id].Backed; n != 0 {
		return n
	}
	return l.SegmentSize
}

// Part is what Segment.Backed is for n bytes: 0 if that is all of the segment.
func (l *Layout) Part(n uint32) uint32 {
	if n = (n + PartUnit - 1) &^ (PartUnit - 1); n < l.SegmentSize {
		return n
	}
	return 0
}

// Provisioned lists the parts of a blade's region that have memory if the blade is up, by offset
// and length, in order: the header and what segments and coordinators use. Neighbours are one.
func (l *Layout) Provisioned(b rdma.BladeID) [][2]uint64 {
	all := [][2]uint64{{0, HeaderArea}}
	for id := range l.Segments {
		g := &l.Segments[id]
		for _, r := range g.Placement.Replicas[:g.Placement.Written()] {
			if r.Blade == b {
				all = append(all, [2]uint64{r.Base, uint64(l.Backed(SegmentID(id)))})
				if g.Kind == KindLog && g.Backed != 0 {
					all = append(all, l.LogParts(g.Row, r.Base)...)
				}
			}
		}
	}
	slices.SortFunc(all, func(x, y [2]uint64) int { return cmp.Compare(x[0], y[0]) })
	out := all[:1]
	for _, p := range all[1:] {
		last := &out[len(out)-1]
		if end := last[0] + last[1]; p[0] > end {
			out = append(out, p)
		} else {
			last[1] = max(end, p[0]+p[1]) - last[0]
		}
	}
	return out
}

// LogParts lists what coordinators use of the log segment of a row that is at base.
func (l *Layout) LogParts(row uint32, base uint64) (out [][2]uint64) {
	for _, e := range l.Coordinators {
		if per := l.LogsPerSegment(); e.Slot/per == row {
			out = append(out, [2]uint64{base + uint64(e.Slot%per)*uint64(l.LogArea), uint64(l.LogUsed(e))})
		}
	}
	return out
}

// LogUsed is how many bytes of each of its log areas a coordinator uses.
func (l *Layout) LogUsed(e CoordinatorEntry) uint32 {
	if e.LogUsed == 0 {
		return l.LogArea
	}
	return min(e.LogUsed, l.LogArea)
}
