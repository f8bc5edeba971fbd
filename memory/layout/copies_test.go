package layout

import (
	"testing"

	"txnode/rdma"
)

// TestUnavailable: a segment is unavailable if it has full copies, and all of them are on blades
// that are away. Copies that are being built do not count, nor do logs, segments that are lost, and
// those that are vacant.
func TestUnavailable(t *testing.T) {
	on := func(full, building uint8, blades ...rdma.BladeID) (p Placement) {
		p.N, p.Building = full, building
		for i, b := range blades {
			p.Replicas[i].Blade = b
		}
		return p
	}
	l := &Layout{Segments: []Segment{
		{},
		{Kind: KindBlocks, Placement: on(2, 0, 0, 1)},
		{Kind: KindIndex, Placement: on(2, 0, 1, 2)},
		{Kind: KindBlocks, Placement: on(1, 1, 1, 0)},
		{Kind: KindLog, Placement: on(1, 0, 1)},
		{Kind: KindBlocks},
		{Kind: KindBlocks, Vacant: true},
	}}
	for _, c := range []struct {
		away []rdma.BladeID
		want int
	}{
		{nil, 0}, {[]rdma.BladeID{0}, 0}, {[]rdma.BladeID{1}, 1}, {[]rdma.BladeID{2}, 0}, {[]rdma.BladeID{0, 1}, 2},
		{[]rdma.BladeID{0, 1, 2}, 3},
	} {
		away := map[rdma.BladeID]bool{}
		for _, b := range c.away {
			away[b] = true
		}
		if n := l.Unavailable(func(b rdma.BladeID) bool { return away[b] }); n != c.want {
			t.Errorf("without %v: %d; want %d", c.away, n, c.want)
		}
		// what members say counts, in the last round, if none hears the blade
		l.Blades, l.Sights = make([]Blade, 3), nil
		for _, b := range c.away {
			l.See(Sight{Member: 7, Blade: b, Says: Silent, Round: 2})
			l.See(Sight{Member: 8, Blade: b, Says: Hears, Round: 1})
			l.See(Sight{Member: 9, Blade: b, Says: Troubled, Round: 2})
		}
		if n := l.Redundancy().Unavailable; n != c.want {
			t.Errorf("members do not hear %v: %d; want %d", c.away, n, c.want)
		}
		for _, b := range c.away {
			l.See(Sight{Member: 8, Blade: b, Says: Hears, Round: 2})
		}
		if n := l.Redundancy().Unavailable; n != 0 {
			t.Errorf("a member hears %v: %d", c.away, n)
		}
	}
}
