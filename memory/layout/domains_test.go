package layout

import (
	"math/rand/v2"
	"testing"

	"txnode/rdma"
)

// inDomains is a layout of blades in domains, with as many places each as room says, and one
// segment with copies on some.
func inDomains(backups int, domains []string, room []int, on ...rdma.BladeID) *Layout {
	l := &Layout{
		Geometry: Geometry{Backups: backups, SegmentSize: MinSegmentSize, LogArea: MinLogArea},
		Segments: make([]Segment, 2),
	}
	for b, d := range domains {
		l.Blades = append(l.Blades, Blade{Size: HeaderArea + uint64(room[b])*MinSegmentSize, Domain: d})
	}
	l.Segments[1].Kind = KindBlocks
	for _, b := range on {
		l.Segments[1].Placement.Build(Replica{Blade: b, Base: HeaderArea})
		l.Finish(1)
	}
	return l
}

// TestDomains: where the next copy of a segment goes, and whether one is to move.
func TestDomains(t *testing.T) {
	full, room := []int{0, 0, 0, 0}, []int{1, 1, 1, 1}
	racks := []string{"a", "a", "b", "b"}
	for _, x := range []struct {
		name     string
		l        *Layout
		missing  int
		best     int // -1: none
		together int
	}{
		{"no domains", inDomains(1, []string{"", "", "", ""}, room, 0), 1, 1, 0},
		{"one domain", inDomains(1, []string{"a", "a", "a", "a"}, room, 0), 1, 1, 0},
		{"one domain, all there", inDomains(1, []string{"a", "a", "a", "a"}, room, 0, 1), 0, 2, 0},
		{"another domain", inDomains(1, racks, room, 0), 1, 2, 0},
		{"another domain is full", inDomains(1, racks, []int{1, 1, 0, 0}, 0), 1, 1, 0},
		{"all are full", inDomains(1, racks, full, 0), 1, -1, 0},
		{"two in one, room elsewhere", inDomains(1, racks, room, 0, 1), 1, 2, 1},
		{"two in one, no room elsewhere", inDomains(1, racks, []int{1, 1, 0, 0}, 0, 1), 0, -1, 1},
		{"on its way", inDomains(1, racks, room, 0, 1, 2), 0, 3, 0},
		{"two of three in one", inDomains(2, racks, room, 0, 1, 2), 0, 3, 0},
		{"three of three in one", inDomains(2, []string{"a", "a", "a", "b"}, room, 0, 1, 2), 1, 3, 1},
		{"a blade without a domain", inDomains(1, []string{"a", "a", "", ""}, room, 0, 1), 1, 2, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			if n := x.l.Missing(1); n != x.missing {
				t.Errorf("%d copies are missing, want %d", n, x.missing)
			}
			best, found := x.l.Least(1, make([]int, 4))
			if x.missing > 0 && (found != (x.best >= 0) || found && int(best) != x.best) {
				t.Errorf("the next copy goes to blade %d, %v; want %d", best, found, x.best)
			}
			if n := x.l.Redundancy().Together; n != x.together {
				t.Errorf("%d segments have copies together, want %d", n, x.together)
			}
		})
	}
	l := inDomains(1, racks, room, 0, 2)
	l.Blades[0].Leaving = true
	if best, found := l.Least(1, []int{0, 5, 0, 0}); l.Missing(1) != 1 || !found || best != 1 {
		t.Errorf("beside a copy that leaves: %d missing, blade %d, %v", l.Missing(1), best, found)
	}
	if best, found := l.Least(1, []int{0, NoLoad, 0, 0}); !found || best != 3 {
		t.Errorf("a blade that takes nothing: blade %d, %v", best, found)
	}
}

// TestDomainsEnd: whatever domains, rooms and copies there are, copies that are missing, or are to
// move, come to rest; then no segment has two copies in one domain while a blade of a domain
// without its copies has room.
func TestDomainsEnd(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	for range 3000 {
		backups := r.IntN(3)
		n := backups + 1 + r.IntN(5)
		var domains []string
		var room []int
		for range n {
			domains, room = append(domains, []string{"", "a", "b", "c"}[r.IntN(4)]), append(room, r.IntN(4))
		}
		l := inDomains(backups, domains, room)
		var on []rdma.BladeID
		for _, b := range r.Perm(n)[:1+r.IntN(backups+1)] {
			on = append(on, rdma.BladeID(b))
		}
		l.Segments[1].Placement = inDomains(backups, domains, room, on...).Segments[1].Placement
		for b := range l.Blades {
			l.Blades[b].Leaving = r.IntN(6) == 0
		}
		p, before := &l.Segments[1].Placement, *l.Clone()
		for step := 0; ; step++ {
			if step > 4*n {
				t.Fatalf("copies do not come to rest: %+v", before)
			}
			instead, ok := l.Buildable(1)
			best, found := l.Least(1, make([]int, n))
			if !ok || !found {
				break
			}
			if instead >= 0 {
				p.Remove(instead)
			}
			base, _ := l.Vacancy(best)
			l.Take(Replica{Blade: best, Base: base})
			p.Build(Replica{Blade: best, Base: base})
			l.Finish(1)
			for int(p.N) > backups+1 { // as Settle does
				drop := 0
				for k := range int(p.N) {
					a, b := p.Replicas[k].Blade, p.Replicas[drop].Blade
					if !l.Blades[b].Leaving && (l.Blades[a].Leaving || l.Beside(p, a) > l.Beside(p, b)) {
						drop = k
					}
				}
				p.Remove(drop)
			}
		}
		stay, shared := 0, false
		for i, a := range p.Replicas[:p.N] {
			if l.Blades[a.Blade].Leaving {
				continue
			}
			stay++
			for _, b := range p.Replicas[:i] {
				shared = shared || !l.Blades[b.Blade].Leaving && domains[a.Blade] != "" &&
					domains[a.Blade] == domains[b.Blade]
			}
		}
		for b := range l.Blades {
			if b := rdma.BladeID(b); shared && stay > backups && l.CanHold(p, b) && l.Beside(p, b) == 0 {
				t.Fatalf("two copies are in one domain, and blade %d has room: %+v; before %+v", b, p, before)
			}
		}
	}
}
