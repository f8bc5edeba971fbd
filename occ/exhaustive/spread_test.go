package exhaustive

import (
	"testing"

	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// TestRecordsAreSpread: a and b of the databases that everything is tried on have their
// primaries on different blades. Else nothing would come between requests for the two.
func TestRecordsAreSpread(t *testing.T) {
	for _, c := range configs() {
		for name, load := range map[string]func(*client) error{"pairs": loadPairs, "stops": loadStops} {
			w := newWorld(t, c, load)
			w.restart()
			on := w.primaries()
			a, ok := on[k("a")]
			b, too := on[k("b")]
			if !ok || !too || a == b {
				t.Errorf("%s, %v: primaries are on %v", name, c, on)
			}
			w.f.End()
		}
	}
}

// primaries tells on which blades the records with short keys have their primaries.
func (w *world) primaries() map[string]rdma.BladeID {
	on := map[string]rdma.BladeID{}
	l, v := w.space.Layout(), w.space.View()
	for id := range l.Segments {
		if l.Segments[id].Kind != memory.KindBlocks {
			continue
		}
		size := l.Segments[id].Class.Size()
		for off := uint32(0); off+size <= l.SegmentSize; off += size {
			at := v.At(memory.MakeAddr(memory.SegmentID(id), off), 0)
			img := record.Image(w.f.Memory(at.Blade)[at.Off:][:size])
			if m := img.Meta(); m.State() == record.Live && record.KeyAt(m.KeyLen()) == record.KeyOff {
				on[string(img.Key())] = at.Blade
			}
		}
	}
	return on
}
