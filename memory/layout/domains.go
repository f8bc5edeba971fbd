package layout

import "txnode/rdma"

// Blades fail together if they share a host, a rack or a power supply. Blade.Domain names what a
// blade shares. Copies of one segment are in different domains while there is room in enough of
// them; else two are in one, and one of these moves as soon as there is room. A blade without a
// domain is one of its own, so a layout without domains places copies as if there were none.

// together reports whether two blades can fail together.
func (l *Layout) together(a, b rdma.BladeID) bool {
	d := l.Blades[a].Domain
	return a == b || d != "" && d == l.Blades[b].Domain
}

// Beside is how many copies of a segment, of those that stay, are on other blades of the
// domain of blade b.
func (l *Layout) Beside(p *Placement, b rdma.BladeID) (n int) {
	if l.Blades[b].Domain == "" {
		return 0
	}
	for _, r := range p.Replicas[:p.Written()] {
		if r.Blade != b && !l.Blades[r.Blade].Leaving && l.together(r.Blade, b) {
			n++
		}
	}
	return n
}

// BesideBut is Beside for a segment whose copy on one blade is to go.
func (l *Layout) BesideBut(p *Placement, b, but rdma.BladeID) int {
	n := l.Beside(p, b)
	if b != but && p.On(but) && !l.Blades[but].Leaving && l.together(b, but) {
		n--
	}
	return n
}

// apart is how many copies of a segment stay, and in how many domains these are.
func (l *Layout) apart(p *Placement) (copies, domains int) {
	all := p.Replicas[:p.Written()]
	for i, r := range all {
		if l.Blades[r.Blade].Leaving {
			continue
		}
		copies, domains = copies+1, domains+1
		for _, x := range all[:i] {
			if !l.Blades[x.Blade].Leaving && l.together(x.Blade, r.Blade) {
				domains--
				break
			}
		}
	}
	return copies, domains
}

// CanHold reports whether a copy of a segment can be on a blade.
func (l *Layout) CanHold(p *Placement, b rdma.BladeID) bool {
	return l.Stays(int(b)) && l.Vacancies(b) > 0 && !p.On(b)
}

// Apart reports whether the next copy of a segment has to be in a domain of its own: enough copies
// stay, and two of them share a domain.
func (l *Layout) Apart(id SegmentID) bool {
	copies, domains := l.apart(&l.Segments[id].Placement)
	return copies > l.Backups && domains <= l.Backups
}

// Least is the blade for the next copy of a segment: in a domain of its own before any other, and
// of these one with the least load, by blade. Loads of NoLoad and more are of blades that take
// nothing. false: there is none.
func (l *Layout) Least(id SegmentID, load []int) (best rdma.BladeID, found bool) {
	p, apart, beside := &l.Segments[id].Placement, l.Apart(id), 0
	for i := range l.Blades {
		b := rdma.BladeID(i) // there are MaxBlades
		if load[b] >= NoLoad || !l.CanHold(p, b) {
			continue
		}
		if n := l.Beside(p, b); (!apart || n == 0) && (!found || n < beside || n == beside && load[b] < load[best]) {
			best, beside, found = b, n, true
		}
	}
	return best, found
}

// NoLoad is the load of a blade that takes nothing: see Least.
const NoLoad = 1 << 30

// CanBuild reports whether a copy of a segment that is Missing can be begun.
func (l *Layout) CanBuild(id SegmentID) bool {
	var none [MaxBlades]int
	_, found := l.Least(id, none[:])
	return found
}

// domains is how many there are of blades that stay.
func (l *Layout) domains() (n int) {
	for b := range l.Blades {
		if !l.Stays(b) {
			continue
		}
		first := true
		for a := range b {
			first = first && !(l.Stays(a) && l.together(rdma.BladeID(a), rdma.BladeID(b)))
		}
		if first {
			n++
		}
	}
	return n
}
