package layout

import (
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/rdma"
)

// TestPlaces compares a set of places with a map.
func TestPlaces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var p Places
	have := map[uint32]bool{}
	for range 2000 {
		i := r.Uint32N(200)
		if was := p; r.IntN(2) == 0 {
			p, have[i] = p.With(i), true
			if was.Has(i) != (was == p) {
				t.Fatalf("%d was there: %v, and now it is another set: %v", i, was.Has(i), was != p)
			}
		} else {
			p = p.Without(i)
			delete(have, i)
		}
		var want []uint32
		for i := range uint32(300) {
			if have[i] {
				want = append(want, i)
			}
			if p.Has(i) != have[i] {
				t.Fatalf("has %d: %v", i, p.Has(i))
			}
		}
		if got := slices.Collect(p.All()); !slices.Equal(got, want) || p.Len() != len(want) {
			t.Fatalf("%v, of %d; want %v", got, p.Len(), want)
		}
		if n := len(p); n > 0 && p[n-1] == 0 {
			t.Fatalf("%q ends with 0", p)
		}
	}
	for range p.All() {
		break
	}
}

// TestVacancies: a place is in use, clean or dirty; those that are clean are taken
// first, and none twice.
func TestVacancies(t *testing.T) {
	l := &Layout{
		Geometry: Geometry{SegmentSize: MinSegmentSize},
		Blades:   []Blade{{Size: HeaderArea + 6*MinSegmentSize, Used: 5}},
	}
	l.Segments = []Segment{
		{},
		{Placement: Placement{
			N: 1, Building: 1, Lost: 1, Replicas: [3]Replica{{0, l.Base(1)}, {0, l.Base(3)}, {0, l.Base(0)}},
		}},
	}
	if got := l.Dirty(0); !slices.Equal(got, []uint64{l.Base(0), l.Base(2), l.Base(4)}) {
		t.Errorf("dirty: %x", got)
	}
	l.Blades[0].Clean = l.Blades[0].Clean.With(2).With(0)
	if got := l.Dirty(0); !slices.Equal(got, []uint64{l.Base(4)}) || l.Vacancies(0) != 3 {
		t.Errorf("dirty: %x, and %d can be taken", got, l.Vacancies(0))
	}
	for _, want := range []uint64{l.Base(0), l.Base(2), l.Base(5)} {
		base, ok := l.Vacancy(0)
		if !ok || base != want {
			t.Fatalf("%x, %v; want %x", base, ok, want)
		}
		l.Take(Replica{Blade: rdma.BladeID(0), Base: base})
	}
	if _, ok := l.Vacancy(0); ok || l.Vacancies(0) != 0 || l.Blades[0].Used != 6 || l.Blades[0].Clean != "" {
		t.Errorf("%+v", l.Blades[0])
	}
}

// TestVacant: a segment that goes back has nothing but its purpose, and its number is for
// another one of that.
func TestVacant(t *testing.T) {
	l := &Layout{
		Geometry: Geometry{SegmentSize: MinSegmentSize},
		Blades:   []Blade{{Size: HeaderArea + 6*MinSegmentSize, Used: 2}},
	}
	for i := range 2 {
		l.Segments = append(l.Segments, Segment{
			Kind: KindBlocks, Class: 7, Owner: 3, Backed: PartUnit,
			Placement: Placement{N: 1, Replicas: [3]Replica{{0, l.Base(uint32(i))}}},
		})
	}
	l.Segments[0] = Segment{}
	old := l.View(func(SegmentID) bool { return true })
	l.Segments[1].Leaving = true
	if v, a := l.View(func(SegmentID) bool { return true }), MakeAddr(1, 64); v.Valid(a) || !v.Gone(a) ||
		!v.Leaves(a) || v.Lost(a) || v.At(a, 0) != old.At(a, 0) || l.Missing(1) != 0 || l.Redundancy().Segments != 0 {
		t.Errorf("leaving: valid %v, gone %v, lost %v, at %v", v.Valid(a), v.Gone(a), v.Lost(a), v.At(a, 0))
	}
	l.GiveBack(1, 7)
	v := l.View(func(SegmentID) bool { return true })
	a := MakeAddr(1, 64)
	if !old.Valid(a) || old.Gone(a) || v.Valid(a) || !v.Gone(a) || v.Lost(a) || v.Copies(a) != 0 || v.Leaves(a) ||
		v.Freed(a) != 7 || old.Freed(a) != 0 || v.Freed(MakeAddr(9, 0)) != 0 {
		t.Errorf("before: valid %v, vacant %v; now: valid %v, vacant %v, lost %v", old.Valid(a), old.Gone(a),
			v.Valid(a), v.Gone(a), v.Lost(a))
	}
	if r := l.Redundancy(); r.Segments != 0 || r.Lost != 0 {
		t.Errorf("%+v", r)
	}
	if got := l.Dirty(0); !slices.Equal(got, []uint64{l.Base(0)}) {
		t.Errorf("dirty: %x; the place of what has gone back can be taken", got)
	}
	if x, y, z := l.VacantSegment(KindBlocks, 7), l.VacantSegment(KindBlocks, 8),
		l.VacantSegment(KindIndex, 0); x != 1 || y != 0 || z != 0 {
		t.Errorf("vacant numbers: %d, %d, %d", x, y, z)
	}
	if got := l.Backed(1); got != PartUnit {
		t.Errorf("stale addresses lead to %d bytes", got)
	}
}
