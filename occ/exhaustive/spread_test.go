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
	v := w.space.View()
	_ = w.everyBlock(func(a memory.Addr, size uint32) error {
		img := w.image(v.At(a, 0), size)
		if m := img.Meta(); m.State() == record.Live && record.KeyAt(m.KeyLen()) == record.KeyOff {
			on[string(img.Key())] = v.At(a, 0).Blade
		}
		return nil
	})
	return on
}
