package memory

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// place chooses blades for the copies of a segment: the primary where its purpose has the fewest
// primaries, backups in domains of their own if there is room, and where the fewest segments are;
// ties go to the emptier blade, then around the ring of blades after the primary. blade fixes the
// primary if it is not -1. Blades in full are passed over, and those that this process is cut off.
// The caller holds the lock.
func (s *replicas) place(kind layout.SegmentKind, class layout.Class, copies, blade int, what string,
	full []rdma.BladeID) (layout.Placement, error) {
	l := s.layout
	cut := s.without(l)
	full = slices.Concat(full, cut)
	room := func(b int) bool {
		return (l.Stays(b) || kind == layout.KindLog && l.Blades[b].State == layout.BladeUp) &&
			l.Vacancies(rdma.BladeID(b)) > 0 && !slices.Contains(full, rdma.BladeID(b))
	}
	vacancy := func(b int) layout.Replica {
		base, _ := l.Vacancy(rdma.BladeID(b))
		return layout.Replica{Blade: rdma.BladeID(b), Base: base}
	}
	copies = min(copies, max(l.StayingBlades(), 1)) // the others follow when there are blades for them: see rebuild.go
	var free []int
	for b := range l.Blades {
		if room(b) {
			free = append(free, b)
		}
	}
	if len(free) < copies && len(free)+len(cut) >= copies {
		return layout.Placement{}, s.cutOff(l)
	}
	if len(free) < copies || blade >= 0 && !room(blade) {
		return layout.Placement{}, s.noSpace(what, copies, nil)
	}
	primaries := s.primaries[spread{kind, class}]
	if blade < 0 {
		blade = slices.MinFunc(free, func(a, b int) int {
			if primaries != nil && primaries[a] != primaries[b] {
				return cmp.Compare(primaries[a], primaries[b])
			}
			return cmp.Compare(l.Blades[a].Used, l.Blades[b].Used)
		})
	}
	p := layout.Placement{N: uint8(copies)}
	p.Replicas[0] = vacancy(blade)
	ring := func(b int) int { return (b - blade + len(l.Blades)) % len(l.Blades) }
	slices.SortFunc(free, func(a, b int) int {
		return cmp.Or(cmp.Compare(l.Blades[a].Used, l.Blades[b].Used), cmp.Compare(ring(a), ring(b)))
	})
	for i := 1; i < copies; i++ {
		q := p
		q.N = uint8(i) // there are MaxReplicas
		free = slices.DeleteFunc(free, func(b int) bool { return q.On(rdma.BladeID(b)) })
		p.Replicas[i] = vacancy(slices.MinFunc(free, func(a, b int) int { // the first of those that are best
			return cmp.Compare(l.Beside(&q, rdma.BladeID(a)), l.Beside(&q, rdma.BladeID(b)))
		}))
	}
	return p, nil
}

func (s *replicas) noSpace(what string, copies int, backing error) *NoSpaceError {
	l := s.layout
	e := &NoSpaceError{What: what, Need: uint64(l.SegmentSize), Copies: copies, Backing: backing}
	for b := range l.Blades {
		var free, size uint64
		if l.Stays(b) {
			free, size = s.free(rdma.BladeID(b)), l.Blades[b].Size
		}
		e.Free, e.Sizes = append(e.Free, free), append(e.Sizes, size)
	}
	return e
}

// free is how many bytes a blade has in places for segments that none has. The caller holds the
// lock.
func (s *replicas) free(b rdma.BladeID) uint64 {
	l := s.layout
	return uint64(l.Vacancies(b)) * uint64(l.SegmentSize) // it is a number of places
}

// Room is how much memory a blade has, in bytes.
type Room struct {
	Blade rdma.BladeID
	Size  uint64 // of the region
	// in places for segments that none has, and that can be handed out; 0 while the blade
	// is down, or leaving
	Free uint64
	Down bool // the blade was declared dead, or its place is vacant
}

// Room returns how much memory the blades have.
func (s *replicas) Room() []Room {
	s.mu.Lock()
	defer s.mu.Unlock()
	rooms := make([]Room, len(s.layout.Blades))
	for b := range rooms {
		x := &s.layout.Blades[b]
		rooms[b] = Room{Blade: rdma.BladeID(b), Size: x.Size, Down: x.State == layout.BladeDown}
		if l := s.layout; l.Stays(b) {
			rooms[b].Free = s.free(rdma.BladeID(b))
		}
	}
	return rooms
}

// addSegments gives new segments memory, records them in the catalog in one change, and publishes a
// view that has them. The memory comes first: a crash in between leaves places that are
// provisioned, blank and still free. The caller holds the lock; it gets the number of the first.
// One alone can have a number that is vacant; first 0: a new one.
func (s *allocation) addSegments(what string, first layout.SegmentID, segs ...layout.Segment) (
	layout.SegmentID, error) {
	l := s.layout
	n, again := len(l.Segments), first != 0
	if !again {
		first, n = layout.SegmentID(len(l.Segments)), n+len(segs) // compared next
	}
	if n > layout.MaxSegments {
		return 0, fmt.Errorf("%w: of segments, of which a database has %d at most",
			layout.ErrExhausted, layout.MaxSegments)
	}
	next := *l
	next.Blades = slices.Clone(l.Blades)
	var changes []layout.Entry
	for i := range segs {
		if segs[i].Kind != layout.KindLog {
			segs[i].Owner = s.process
		}
		if again {
			segs[i].Freed = l.Segments[first].Freed
		}
		seg, n := segs[i], l.SegmentSize
		if seg.Backed != 0 {
			n = seg.Backed
		}
		if err := s.provide(what, seg.Placement, 0, n); err != nil {
			return 0, err
		}
		for _, r := range seg.Placement.Replicas[:seg.Placement.N] {
			next.Take(r)
		}
		changes = append(changes, layout.EntryOfSegment(first+layout.SegmentID(i), seg))
	}
	for b := range next.Blades {
		if next.Blades[b] != l.Blades[b] {
			changes = append(changes, layout.EntryOfBlade(rdma.BladeID(b), next.Blades[b]))
		}
	}
	changes = append(changes, l.EntryOfState(n-1, len(l.Tables), len(l.Coordinators)))
	if err := s.commit(changes...); err != nil {
		return 0, err
	}
	l.Blades = next.Blades
	if again {
		s.leave(first)
		l.Segments[first] = segs[0]
		s.freesFrom(segs[0].Freed)
	} else {
		l.Segments = append(l.Segments, segs...)
	}
	for i := range segs {
		s.count(&segs[i])
	}
	s.publish()
	return first, nil
}

// addSegment places and adds one segment, with memory for need bytes at least; blade fixes the
// primary if it is not -1. A blade that has a place and no memory for it, since its disk is full,
// is passed over; if no place is left, the error tells of the first such. The caller holds the
// lock, in a change.
func (s *allocation) addSegment(kind layout.SegmentKind, class layout.Class, blade int, what string,
	need uint32) (layout.SegmentID, error) {
	var full []rdma.BladeID
	var first error
	for {
		p, err := s.place(kind, class, s.layout.Backups+1, blade, what, full)
		if err != nil {
			if first != nil {
				err = first
			}
			return 0, err
		}
		id, err := s.addInParts(what, layout.Segment{Kind: kind, Class: class, Placement: p}, need)
		var none *NoSpaceError
		if !errors.As(err, &none) || none.Backing == nil {
			return id, err
		}
		if full = append(full, none.Blade); first == nil {
			first = err
		}
	}
}

// addLogRow adds a log segment on each of some blades.
func (s *allocation) addLogRow(on []rdma.BladeID) error {
	l := s.layout
	var segs []layout.Segment
	backed := uint32(0)
	if s.opts.Parts {
		backed = l.Part(layout.PartUnit)
	}
	for _, b := range on {
		p, err := s.place(layout.KindLog, 0, 1, int(b), logsOf, nil)
		if err != nil {
			return err
		}
		segs = append(segs, layout.Segment{
			Kind: layout.KindLog, Row: uint32(len(s.logs.rows)), Backed: backed, Placement: p,
		})
	}
	first, err := s.addSegments(logsOf, 0, segs...)
	if err != nil {
		return err
	}
	a, advises := s.fabric.(rdma.PageAdvisor)
	for i := range segs {
		s.logs.add(l, first+layout.SegmentID(i))
		if r := segs[i].Placement.Replicas[0]; advises { // a coordinator uses LogStep bytes of each LogArea at first
			a.AdviseSmall(r.Blade, r.Base, uint64(l.SegmentSize))
		}
	}
	return nil
}
