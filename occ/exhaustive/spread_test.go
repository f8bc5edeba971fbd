package exhaustive

import (
	"testing"

	"txnode/memory/layout"
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

// TestTombstoneIsUsed: an insert over a tombstone gets the block that the deleted record has had.
func TestTombstoneIsUsed(t *testing.T) {
	for _, c := range configs() {
		w := newWorld(t, c, loadStops)
		w.restart()
		for i, want := range []record.State{record.Live, record.Absent, record.Live} {
			switch i {
			case 1:
				w.tombstones([]op{gone("c")})
			case 2:
				if err := w.client().do(gone("c"), insert("c", "10")); err != nil {
					t.Fatal(err)
				}
			}
			if got := w.statesOf(k("c")); len(got) != 1 || got[0] != want {
				t.Errorf("%v, after %d transactions: blocks are %v", c, i, got)
			}
		}
		w.f.End()
	}
}

// statesOf are the states of blocks in use that have a key.
func (w *world) statesOf(key string) (all []record.State) {
	v := w.space.View()
	_ = w.everyBlock(func(a layout.Addr, size uint32) error {
		img := w.image(v.At(a, 0), size)
		if m := img.Meta(); m.State() != record.Free && record.KeyAt(m.KeyLen()) == record.KeyOff &&
			string(img.Key()) == key {
			all = append(all, m.State())
		}
		return nil
	})
	return all
}

// primaries tells on which blades the records with short keys have their primaries.
func (w *world) primaries() map[string]rdma.BladeID {
	on := map[string]rdma.BladeID{}
	v := w.space.View()
	_ = w.everyBlock(func(a layout.Addr, size uint32) error {
		img := w.image(v.At(a, 0), size)
		if m := img.Meta(); m.State() == record.Live && record.KeyAt(m.KeyLen()) == record.KeyOff {
			on[string(img.Key())] = v.At(a, 0).Blade
		}
		return nil
	})
	return on
}
