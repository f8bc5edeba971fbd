package layout

import (
	"slices"

	"txnode/rdma"
)

// mostCopies is how many copies of a segment are written at most: one more than there are to
// be, while it moves.
func (l *Layout) mostCopies() int { return min(l.Backups+2, MaxReplicas) }

// Buildable reports whether a copy of a segment is missing, and can be listed; instead is the one
// that it takes the place of, -1: of none.
func (l *Layout) Buildable(id SegmentID) (instead int, ok bool) {
	p := &l.Segments[id].Placement
	if l.Missing(id) == 0 {
		return 0, false
	}
	if p.Written() < l.mostCopies() {
		return -1, true
	}
	if l.Backups+1 < MaxReplicas {
		return 0, false // one after the other
	}
	for k := p.Written() - 1; k > 0; k-- {
		if b := p.Replicas[k].Blade; l.Blades[b].Leaving || l.Apart(id) && l.Beside(p, b) > 0 {
			return k, true
		}
	}
	return 0, false
}

// Moving is how many copies of a segment are to go: those on blades that leave, those that there
// are too many, and those that can be in a domain of their own, and are not.
func (l *Layout) Moving(id SegmentID) int {
	n, p := 0, &l.Segments[id].Placement
	for _, r := range p.Replicas[:p.N] {
		if l.Blades[r.Blade].Leaving {
			n++
		}
	}
	if n == 0 && l.Apart(id) && l.CanBuild(id) {
		n = 1
	}
	return max(n, int(p.N)-l.Backups-1)
}

// Vacant reports whether a place has no blade: it was drained, or never had one.
func (l *Layout) Vacant(b rdma.BladeID) bool {
	return l.Blades[b].Leaving && l.Blades[b].State == BladeDown
}

// Held is how many copies of segments other than logs a blade has, those being built included.
func (l *Layout) Held(b rdma.BladeID) int {
	n := 0
	for id := range l.Segments {
		if s := &l.Segments[id]; s.Kind != KindLog && s.Placement.On(b) {
			n++
		}
	}
	return n
}

// Fuller reports whether blade a has so much more of its places taken than b that one of n on it
// had better be on b.
func (l *Layout) Fuller(n []int, a, b rdma.BladeID) bool {
	return uint64(n[a])*uint64(l.Slots(b)) > uint64(n[b]+1)*uint64(l.Slots(a))
}

// HeldBy counts copies, and primaries, of segments other than logs, by blade.
func (l *Layout) HeldBy() (copies, primaries []int) {
	copies, primaries = make([]int, len(l.Blades)), make([]int, len(l.Blades))
	for id := range l.Segments {
		p := &l.Segments[id].Placement
		if l.Segments[id].Kind == KindLog || p.N == 0 {
			continue
		}
		primaries[p.Replicas[0].Blade]++
		for _, r := range p.Replicas[:p.Written()] {
			copies[r.Blade]++
		}
	}
	return copies, primaries
}

// On reports whether a written copy is on a blade.
func (p *Placement) On(b rdma.BladeID) bool {
	return slices.ContainsFunc(p.Replicas[:p.Written()], func(r Replica) bool { return r.Blade == b })
}

// Build adds a copy that is being built.
func (p *Placement) Build(r Replica) {
	w := p.Written()
	copy(p.Replicas[w+1:], p.Replicas[w:]) // lost ones, of which the oldest may fall out
	p.Replicas[w] = r
	p.Building++
	p.Lost = min(p.Lost, uint8(MaxReplicas-p.Written()))
	clear(p.Replicas[p.Written()+int(p.Lost):])
}

// Redundancy is how well the segments are copied.
type Redundancy struct {
	Segments int // that hold data: all but those of logs
	Missing  int // copies that there are too few, those being built included
	Building int // copies that are being built
	Lost     int // segments without a copy
	// Unavailable is how many segments have their copies on blades alone that no member hears, and
	// that are not given up.
	Unavailable int
	Down        []rdma.BladeID // declared dead, and expected to come back
	// Together is how many segments have two copies in one domain, though there are more domains
	// than their copies are in.
	Together int
	// Leaving are blades that are up and leave, Moving the copies on blades that leave, those that
	// there are too many, and those that are to be in a domain of their own: see move.go.
	Leaving []rdma.BladeID
	Moving  int
	// Dirty is how many places are still to be cleared: on blades that are down, before
	// those are taken in again, and on the others, before a copy can be there. Only a space
	// knows, not a layout.
	Dirty int
}

// Redundancy counts copies.
func (l *Layout) Redundancy() (r Redundancy) {
	for b := range l.Blades {
		switch x := &l.Blades[b]; {
		case x.Leaving && x.State == BladeUp:
			r.Leaving = append(r.Leaving, rdma.BladeID(b))
		case !x.Leaving && x.State == BladeDown:
			r.Down = append(r.Down, rdma.BladeID(b))
		}
	}
	domains := l.domains()
	for id := 1; id < len(l.Segments); id++ {
		s := &l.Segments[id]
		if s.Kind == KindLog || s.Gone() {
			continue
		}
		r.Segments++
		if s.Placement.N == 0 {
			r.Lost++
			continue
		}
		r.Building += int(s.Placement.Building)
		r.Missing += max(l.Backups+1-int(s.Placement.N), 0)
		r.Moving += l.Moving(SegmentID(id)) // of segments there are MaxSegments at most
		if copies, apart := l.apart(&s.Placement); apart < min(copies, domains) {
			r.Together++
		}
	}
	if slices.ContainsFunc(l.Sights, func(s Sight) bool { return s.Says == Silent }) {
		var away [MaxBlades]bool
		for b := range l.Blades {
			away[b] = l.Unheard(rdma.BladeID(b))
		}
		r.Unavailable = l.Unavailable(func(b rdma.BladeID) bool { return away[b] })
	}
	return r
}

// Unavailable is how many segments that hold data have full copies, all of them on
// blades that are away.
func (l *Layout) Unavailable(away func(rdma.BladeID) bool) (n int) {
	for id := 1; id < len(l.Segments); id++ {
		s := &l.Segments[id]
		if s.Kind == KindLog || s.Gone() || s.Placement.N == 0 {
			continue
		}
		if !slices.ContainsFunc(s.Placement.Replicas[:s.Placement.N], func(r Replica) bool { return !away(r.Blade) }) {
			n++
		}
	}
	return n
}

// Occupied reports whether a segment has a copy on a blade.
func (l *Layout) Occupied(b rdma.BladeID) bool {
	return slices.ContainsFunc(l.Segments, func(g Segment) bool { return g.Placement.On(b) })
}
