package memory

import (
	"slices"
	"testing"

	"txnode/memory/layout"
)

// TestLostNamesBladesOnce: a blade that has died, come back, and died again with the next
// copy is one blade.
func TestLostNamesBladesOnce(t *testing.T) {
	p := layout.Placement{Lost: 3, Replicas: [layout.MaxReplicas]layout.Replica{{Blade: 0}, {Blade: 1},
		{Blade: 1, Base: layout.HeaderArea}}}
	s := &store{layout: &layout.Layout{Segments: []layout.Segment{{}, {Kind: layout.KindBlocks, Placement: p}}}}
	if e := s.lostError(1); !slices.Equal(e.Blades, []string{"blade 0", "blade 1"}) {
		t.Errorf("%v", e)
	}
}
