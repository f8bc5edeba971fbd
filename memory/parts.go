package memory

import (
	"errors"

	"txnode/memory/layout"
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

// provide gives [from, to) of all copies of a segment memory. The caller holds the lock, in a
// change.
func (s *replicas) provide(what string, p layout.Placement, from, to uint32) error {
	for _, r := range p.Replicas[:p.Written()] {
		err := s.provision(r.Blade, r.Base+uint64(from), uint64(to-from))
		switch {
		case errors.Is(err, rdma.ErrNoMemory):
			e := s.noSpace(what, p.Written(), err)
			e.Need, e.Blade = uint64(to-from), r.Blade
			return e
		case err != nil:
			return &layout.BladeError{
				Blade: r.Blade, Name: s.opts.bladeName(r.Blade), Err: err, What: "providing memory for " + what,
			}
		}
	}
	return nil
}

// extend gives the first n bytes of a segment memory at least, on all copies: twice as much
// as there was, or, where that is too much, as little as is needed. The caller holds the
// lock, in a change.
func (s *replicas) extend(what string, id layout.SegmentID, n uint32) error {
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
	seg.Backed = l.Part(to)
	if err := s.commit(layout.EntryOfSegment(id, seg)); err != nil {
		return err
	}
	l.Segments[id] = seg
	return nil
}

// wholes is n in whole parts, and no more than a segment.
func (s *store) wholes(n uint32) uint32 {
	return min((n+layout.PartUnit-1)&^(layout.PartUnit-1), s.layout.SegmentSize)
}

// addInParts adds a segment with memory for need bytes at least, from its start: for as much as the
// segments of its purpose have together, so that a database of many records grows in few steps; or,
// where that is too much, for as little as is needed. It gets a number that is vacant, if there is
// one of its purpose, and then as much memory as the segment before had: stale addresses lead
// there. The caller holds the lock.
func (s *allocation) addInParts(what string, seg layout.Segment, need uint32) (layout.SegmentID, error) {
	l := s.layout
	vacant := layout.SegmentID(0)
	if !s.unrevoked.Load() { // else a late session may follow an address to where the segment of before was
		vacant = l.VacantSegment(seg.Kind, seg.Class)
	}
	if !s.opts.Parts {
		return s.addSegments(what, vacant, seg)
	}
	least := need
	if vacant != 0 {
		least = max(need, l.Backed(vacant))
	}
	all := least
	for id := 1; id < len(l.Segments) && all < l.SegmentSize; id++ {
		if g := &l.Segments[id]; g.Kind == seg.Kind && g.Class == seg.Class && !g.Gone() {
			all = max(all, min(all+l.Backed(layout.SegmentID(id)), l.SegmentSize))
		}
	}
	enough := l.Part(least)
	seg.Backed = l.Part(all)
	id, err := s.addSegments(what, vacant, seg)
	if errors.Is(err, ErrNoSpace) && seg.Backed != enough {
		seg.Backed = enough
		id, err = s.addSegments(what, vacant, seg)
	}
	if errors.Is(err, ErrNoSpace) && least != need {
		seg.Backed = l.Part(need)
		id, err = s.addSegments(what, 0, seg)
	}
	return id, err
}

// provideLogs gives what a coordinator uses of its log areas memory. The caller holds the lock.
func (s *allocation) provideLogs(e layout.CoordinatorEntry) error {
	l := s.layout
	if !s.opts.Parts {
		return nil
	}
	per := l.LogsPerSegment()
	at := e.Slot % per * l.LogArea
	for b, id := range s.logs.rows[e.Slot/per] {
		if id == 0 || l.Blades[b].State != layout.BladeUp {
			continue
		}
		if err := s.provide(logsOf, l.Segments[id].Placement, at, at+l.LogUsed(e)); err != nil {
			return err
		}
	}
	return nil
}

// logsOf is what log segments are for.
const logsOf = "the logs of coordinators"
