package memory

import (
	"cmp"
	"errors"
	"slices"

	"txnode/rdma"
)

// With Options.Parts a segment has memory behind a part of it: its first bytes, as many as
// Segment.Backed says. The part grows as blocks and extents are handed out. Each step is
//
//  1. Provision of the new bytes, on all copies, those that are being built included;
//  2. the new size in the catalog;
//  3. blocks or extents there are handed out.
//
// So nothing is ever written to bytes without memory, whenever the process stops. After a crash
// between 1 and 2 the bytes are provisioned again, which is cheap. What needs more memory than
// there is fails with ErrNoSpace, and nothing has changed.
//
// A segment of logs begins with partUnit bytes and its part does not grow. There the areas of
// coordinators have memory as far as CoordinatorEntry.LogUsed says, and grow with it.

// partUnit is the least part of a segment that gets memory, in bytes: a multiple of any page size
// in use.
const partUnit = 64 << 10

// Backed is how many bytes of a segment of blocks or of an index, from its start, have memory.
// Nothing beyond was ever handed out, and all bytes there are zero.
func (l *Layout) Backed(id SegmentID) uint32 {
	if n := l.Segments[id].Backed; n != 0 {
		return n
	}
	return l.SegmentSize
}

// part is what Segment.Backed is for n bytes: 0 if that is all of the segment.
func (l *Layout) part(n uint32) uint32 {
	if n = (n + partUnit - 1) &^ (partUnit - 1); n < l.SegmentSize {
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
					all = append(all, l.logParts(g.Row, r.Base)...)
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

// logParts lists what coordinators use of the log segment of a row that is at base.
func (l *Layout) logParts(row uint32, base uint64) (out [][2]uint64) {
	for _, e := range l.Coordinators {
		if per := l.logsPerSegment(); e.Slot/per == row {
			out = append(out, [2]uint64{base + uint64(e.Slot%per)*uint64(l.LogArea), uint64(l.logUsed(e))})
		}
	}
	return out
}

// logUsed is how many bytes of each of its log areas a coordinator uses.
func (l *Layout) logUsed(e CoordinatorEntry) uint32 {
	if e.LogUsed == 0 {
		return l.LogArea
	}
	return min(e.LogUsed, l.LogArea)
}

// provide gives [from, to) of all copies of a segment memory. The caller holds the lock, in a change.
func (s *Space) provide(what string, p Placement, from, to uint32) error {
	for _, r := range p.Replicas[:p.Written()] {
		err := s.provision(r.Blade, r.Base+uint64(from), uint64(to-from))
		switch {
		case errors.Is(err, rdma.ErrNoMemory):
			e := s.noSpace(what, p.Written(), err)
			e.Need = uint64(to - from)
			return e
		case err != nil:
			return &BladeError{Blade: r.Blade, Name: s.opts.bladeName(r.Blade), Err: err, What: "providing memory for " + what}
		}
	}
	return nil
}

// extend gives the first n bytes of a segment memory at least, on all copies: twice as much as
// there was, or, where that is too much, as little as is needed. The caller holds the lock, in a change.
func (s *Space) extend(what string, id SegmentID, n uint32) error {
	l := s.layout
	had := l.Backed(id)
	if n <= had {
		return nil
	}
	seg := l.Segments[id]
	enough, to := s.wholes(n), s.wholes(max(2*had, n))
	err := s.provide(what, seg.Placement, had, to)
	if errors.Is(err, ErrNoSpace) && enough < to {
		to = enough
		err = s.provide(what, seg.Placement, had, to)
	}
	if err != nil {
		return err
	}
	seg.Backed = l.part(to)
	if err := s.commit(segmentEntry(id, seg)); err != nil {
		return err
	}
	l.Segments[id] = seg
	return nil
}

// wholes is n in whole parts, and no more than a segment.
func (s *Space) wholes(n uint32) uint32 {
	return min((n+partUnit-1)&^(partUnit-1), s.layout.SegmentSize)
}

// addInParts adds a segment with memory for need bytes at least, from its start: for as much as
// the segments of its purpose have together, so that a database of many records grows in few
// steps; or, where that is too much, for as little as is needed. The caller holds the lock.
func (s *Space) addInParts(what string, seg Segment, need uint32) (SegmentID, error) {
	l := s.layout
	if !s.opts.Parts {
		return s.addSegments(what, seg)
	}
	all := need
	for id := 1; id < len(l.Segments) && all < l.SegmentSize; id++ {
		if g := &l.Segments[id]; g.Kind == seg.Kind && g.Class == seg.Class {
			all = max(all, min(all+l.Backed(SegmentID(id)), l.SegmentSize))
		}
	}
	enough := l.part(need)
	seg.Backed = l.part(all)
	id, err := s.addSegments(what, seg)
	if errors.Is(err, ErrNoSpace) && seg.Backed != enough {
		seg.Backed = enough
		id, err = s.addSegments(what, seg)
	}
	return id, err
}

// provideLogs gives what a coordinator uses of its log areas memory. The caller holds the lock.
func (s *Space) provideLogs(e CoordinatorEntry) error {
	l := s.layout
	if !s.opts.Parts {
		return nil
	}
	per := l.logsPerSegment()
	at := e.Slot % per * l.LogArea
	for b, id := range s.logs.rows[e.Slot/per] {
		if id == 0 || l.Blades[b].State != BladeUp {
			continue
		}
		if err := s.provide(logsOf, l.Segments[id].Placement, at, at+l.logUsed(e)); err != nil {
			return err
		}
	}
	return nil
}

// logsOf is what log segments are for.
const logsOf = "the logs of coordinators"
