package memory_test

import (
	"fmt"
	"slices"
	"testing"

	"txnode/internal/raced"
	"txnode/memory/layout"
	"txnode/rdma"
)

// together is how many segments have two copies in one domain.
func together(l *layout.Layout) (n int) {
	for id := range l.Segments {
		var seen []string
		p := &l.Segments[id].Placement
		for _, r := range p.Replicas[:p.Written()] {
			if d := l.Blades[r.Blade].Domain; l.Segments[id].Kind != layout.KindLog {
				seen = append(seen, d)
			}
		}
		slices.Sort(seen)
		if len(slices.Compact(seen)) < p.Written() && l.Segments[id].Kind != layout.KindLog {
			n++
		}
	}
	return n
}

// TestDomainIsLost: new segments have their copies in different domains, so a domain that is lost
// takes no data with it. Copies that are built meanwhile, and that move when it is back, or when
// copies are spread, are in different domains, too.
func TestDomainIsLost(t *testing.T) {
	raced.Skip(t)
	for _, f := range []int{1, 2} {
		t.Run(fmt.Sprintf("f=%d", f), func(t *testing.T) {
			b := newBed(t, 8, 60, f)
			b.opts.Domains = []string{"a", "a", "b", "b", "c", "c", "d", "d"}
			s, c := b.open()
			a := b.allocator(s, c)
			all := storeSome(t, c, s, a, 8)
			apart := func(when string) {
				t.Helper()
				if n, r := together(s.Layout()), s.Redundancy(); n > 0 || r.Together > 0 {
					t.Fatalf("%s: %d of %d segments have copies in one domain; the catalog says %d",
						when, n, r.Segments, r.Together)
				}
			}
			apart("new segments")
			for _, blade := range []rdma.BladeID{2, 3} {
				lose(t, b, s, blade)
			}
			if r := s.Redundancy(); r.Lost > 0 {
				t.Fatalf("a domain has taken the last copies of %d segments with it", r.Lost)
			}
			must(s.Build())(t)
			if r := s.Redundancy(); r.Building == 0 {
				t.Fatalf("no copies are built: %+v", r)
			}
			apart("copies that are begun")
			must(movers(c, s))(t)
			apart("without a domain")
			all = append(all, storeSome(t, c, s, a, 2)...)
			for _, blade := range []rdma.BladeID{2, 3} {
				check(t, b.inner.RestartBlade(blade, false))
				check(t, c.Thread().Reconnect(blade))
				check(t, s.Admit(c, blade, nil))
			}
			for n := 1; n > 0; {
				must(movers(c, s))(t)
				n = must(s.Spread())(t)
			}
			must(movers(c, s))(t)
			apart("spread")
			if l := s.Layout(); l.Held(2) == 0 || l.Held(3) == 0 {
				t.Error("nothing was spread to the domain that is back")
			}
			check(t, s.Drain(0))
			must(movers(c, s))(t)
			apart("drained")
			kept(t, c, s, all)
		})
	}
}

// TestDomainIsFull: copies share a domain while no other one has room, which is told, and move to
// another one when a blade comes there.
func TestDomainIsFull(t *testing.T) {
	raced.Skip(t)
	for _, f := range []int{1, 2} {
		t.Run(fmt.Sprintf("f=%d", f), func(t *testing.T) {
			b := newBed(t, f+2, 40, f)
			b.opts.Domains = make([]string, f+2)
			for i := range f + 1 {
				b.opts.Domains[i] = "a"
			}
			b.opts.Domains[f+1] = "b"
			s, c := b.open()
			lose(t, b, s, rdma.BladeID(f+1)) // 2 or 3
			a := b.allocator(s, c)
			all := storeSome(t, c, s, a, 4)
			if r := s.Redundancy(); r.Missing+r.Moving+r.Together > 0 || together(s.Layout()) != r.Segments {
				t.Fatalf("with one domain: %+v", r)
			}
			check(t, b.inner.RestartBlade(rdma.BladeID(f+1), false)) // 2 or 3
			check(t, c.Thread().Reconnect(rdma.BladeID(f+1)))        // as above
			check(t, s.Admit(c, rdma.BladeID(f+1), nil))             // as above
			if r := s.Redundancy(); r.Building != r.Segments {
				t.Fatalf("another domain has room, and copies move there: %+v", r)
			}
			must(movers(c, s))(t)
			l := s.Layout()
			if r := s.Redundancy(); r.Together > 0 || f == 1 && together(l) > 0 {
				t.Errorf("%+v", r)
			}
			for id := range l.Segments {
				// as above
				if p := &l.Segments[id].Placement; id > 0 && l.Segments[id].Kind != layout.KindLog &&
					!p.On(rdma.BladeID(f+1)) {
					t.Errorf("segment %d has no copy in the other domain", id)
				}
			}
			kept(t, c, s, all)
		})
	}
}
