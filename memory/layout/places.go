package layout

import (
	"iter"
	"math/bits"

	"txnode/rdma"
)

// Places is a set of places of a blade, by number: place i is bit i%8 of byte i/8. Its last byte is
// not 0. It cannot be changed, so layouts share it.
type Places string

// Has reports whether place i is in the set.
func (p Places) Has(i uint32) bool { return uint64(i/8) < uint64(len(p)) && p[i/8]>>(i%8)&1 != 0 }

// With is the set with place i.
func (p Places) With(i uint32) Places {
	b := make([]byte, max(len(p), int(i/8)+1))
	copy(b, p)
	b[i/8] |= 1 << (i % 8)
	return Places(b)
}

// Without is the set without place i.
func (p Places) Without(i uint32) Places {
	if !p.Has(i) {
		return p
	}
	b := []byte(p)
	b[i/8] &^= 1 << (i % 8)
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return Places(b)
}

// Len is how many places are in the set.
func (p Places) Len() (n int) {
	for i := range len(p) {
		n += bits.OnesCount8(p[i])
	}
	return n
}

// All yields the places of the set in order.
func (p Places) All() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i := range uint32(len(p)) {
			for x := p[i]; x != 0; x &= x - 1 {
				if !yield(i*8 + uint32(bits.TrailingZeros8(x))) {
					return
				}
			}
		}
	}
}

// A place of a blade, below Blade.Used, is one of these:
//
//	in use    a segment has a copy there that is written
//	clean     in Blade.Clean: a segment had one there, and the place has been cleared since
//	dirty     neither: whatever a segment had there is there still
//
// A copy begins in a place that is clean, or that no segment ever had (from Blade.Used on): both
// are all zero. The change of the catalog that has it there takes the place out of Clean.

// Place is the number of the place at an offset of a region.
func (l *Layout) Place(base uint64) uint32 {
	return uint32((base - HeaderArea) / uint64(l.SegmentSize)) // of places there are MaxSegments at most
}

// Vacancy is where the next copy on a blade goes: the first place that is clean, or that was never
// used. false: there is none.
func (l *Layout) Vacancy(b rdma.BladeID) (base uint64, ok bool) {
	x := &l.Blades[b]
	for i := range x.Clean.All() {
		return l.Base(i), true
	}
	return l.Base(x.Used), x.Used < l.Slots(b)
}

// Take notes that a place is in use which Vacancy has returned.
func (l *Layout) Take(r Replica) {
	x := &l.Blades[r.Blade]
	if i := l.Place(r.Base); i == x.Used {
		x.Used++
	} else {
		x.Clean = x.Clean.Without(i)
	}
}

// Vacancies is how many places of a blade can be taken.
func (l *Layout) Vacancies(b rdma.BladeID) int {
	return int(l.Slots(b)-l.Blades[b].Used) + l.Blades[b].Clean.Len()
}

// Dirty lists the places of a blade that are dirty, in order.
func (l *Layout) Dirty(b rdma.BladeID) (out []uint64) {
	x := &l.Blades[b]
	if x.Used == 0 {
		return nil
	}
	taken := make([]bool, x.Used)
	for i := range l.Segments {
		p := &l.Segments[i].Placement
		for _, r := range p.Replicas[:p.Written()] {
			if k := l.Place(r.Base); r.Blade == b && k < x.Used {
				taken[k] = true
			}
		}
	}
	for i := range x.Used {
		if !taken[i] && !x.Clean.Has(i) {
			out = append(out, l.Base(i))
		}
	}
	return out
}

// validatePlaces compares the places that are clean with those that are in use.
func (l *Layout) validatePlaces(taken map[Replica]SegmentID) error {
	for i := range l.Blades {
		x := &l.Blades[i]
		if x.Clean != "" && x.State == BladeDown {
			return unsound("blade %d is down, and %d of its places are said to be clean", i, x.Clean.Len())
		}
		for k := range x.Clean.All() {
			if k >= x.Used {
				return unsound("blade %d: place %d is said to have been cleared, and it has handed out %d",
					i, k, x.Used)
			}
			if id, ok := taken[Replica{Blade: rdma.BladeID(i), Base: l.Base(k)}]; ok {
				return unsound("blade %d: place %d is said to be clean, and segment %d has a copy there", i, k, id)
			}
		}
	}
	return nil
}
