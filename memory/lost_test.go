package memory

import (
	"slices"
	"testing"
)

// TestLostNamesBladesOnce: a blade that has died, come back, and died again with the next copy is one blade.
func TestLostNamesBladesOnce(t *testing.T) {
	p := Placement{Lost: 3, Replicas: [MaxReplicas]Replica{{Blade: 0}, {Blade: 1}, {Blade: 1, Base: HeaderArea}}}
	s := &store{layout: &Layout{Segments: []Segment{{}, {Kind: KindBlocks, Placement: p}}}}
	if e := s.lostError(1); !slices.Equal(e.Blades, []string{"blade 0", "blade 1"}) {
		t.Errorf("%v", e)
	}
}
