package memory

import (
	"fmt"
	"slices"
	"testing"

	"txnode/memory/layout"
)

// TestCopied: a copy that is built needs all of an index segment but what is reserved.
func TestCopied(t *testing.T) {
	const size = 256 << 10
	s := &store{layout: &layout.Layout{Geometry: layout.Geometry{SegmentSize: size}}}
	for i, r := range [][2]uint32{{70000 / 256 * 256, 1000}, {80000 / 256 * 256, 1}, {200000 / 256 * 256, 30000}} {
		s.layout.Reserve(layout.Reservation{Name: fmt.Sprint(2 - i), Addr: layout.MakeAddr(3, r[0]), Size: r[1]})
	}
	s.layout.Reserve(layout.Reservation{Name: "other segment", Addr: layout.MakeAddr(2, 90112), Size: 1})
	s.layout.Reserve(layout.Reservation{Name: "nothing"})
	var got [][2]uint32
	for off := uint32(0); off < size; off += 64 << 10 {
		for _, r := range s.copied(3, off, 64<<10) {
			if n := len(got); n > 0 && got[n-1][0]+got[n-1][1] == r[0] {
				got[n-1][1] += r[1]
			} else {
				got = append(got, r)
			}
		}
	}
	if want := [][2]uint32{{0, 69888}, {70912, 8960}, {80128, 119808}, {230144, 32000}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
