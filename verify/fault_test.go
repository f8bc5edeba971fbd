package verify_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"txnode/occ"
	"txnode/rdma"
	"txnode/verify"
)

// TestFault: a part of a region's file cannot be read when it is its turn, as that of a disk
// that fails, which the system tells by a signal. It is a finding, which says where; what the
// other blades have is left as it is.
func TestFault(t *testing.T) {
	whole := t.TempDir()
	populate(t, whole, variant{2, 1, occ.PolicyDefault}, 200)
	m := dissect(t, whole)
	block := m.v.At(m.blocks[m.live(-1)].Addr, 0)
	slot := m.v.At(m.slots[0], 0)
	last := block // of the blocks on that blade
	for _, c := range m.blocks {
		for k := range m.v.Copies(c.Addr) {
			if at := m.v.At(c.Addr, k); at.Blade == last.Blade && at.Off > last.Off {
				last = at
			}
		}
	}
	for _, x := range []struct {
		name  string
		blade int
		size  uint64
	}{
		{"nothing can be read", 0, 0},
		{"the second copy of the header, and all behind it", 1, 4096},
		{"slots", int(slot.Blade), slot.Off},
		{"a block", int(block.Blade), block.Off},
		{"one of the last blocks", int(last.Blade), last.Off},
	} {
		for _, repair := range []bool{false, true} {
			dir := copyOf(t, whole)
			names := []string{filepath.Join(dir, "blade-000.region"), filepath.Join(dir, "blade-001.region")}
			other, err := os.ReadFile(names[1-x.blade])
			if err != nil {
				t.Fatal(err)
			}
			// a slot of the other blade differs, too, and is checked before any block
			for k := range m.v.Copies(m.slots[1]) {
				if at := m.v.At(m.slots[1], k); int(at.Blade) != x.blade {
					other[at.Off] ^= 1
				}
			}
			if err := os.WriteFile(names[1-x.blade], other, 0o600); err != nil {
				t.Fatal(err)
			}
			d, _, done := attach(t, dir, repair)
			if err := os.Truncate(names[x.blade], int64(x.size)); err != nil {
				t.Fatal(err)
			}
			unreadable, parts := 0, map[uint64]bool{}
			sum, err := d.Check(context.Background(),
				verify.Options{Repair: repair, Report: func(f verify.Finding) error {
					if f.Kind == verify.KindUnreadable {
						if part := f.Off >> 16; parts[part] && part > 0 { // a header has two copies
							t.Errorf("%s: it was said before: %v", x.name, f)
						} else {
							parts[part] = true
						}
						if !strings.Contains(f.What, "copy it to a sound disk, or move it away and ") ||
							!strings.Contains(f.What, "ReplaceLost") {
							t.Errorf("%s: it is not said what to do: %v", x.name, f)
						}
						if unreadable++; int(f.Blade) != x.blade || f.Off+256<<10 < x.size {
							t.Errorf("%s: %v", x.name, f)
						}
					}
					return nil
				}})
			if err != nil || unreadable == 0 || sum.Clean() ||
				!slices.Equal(sum.Unreadable, []rdma.BladeID{rdma.BladeID(x.blade)}) {
				t.Errorf("%s, repair %v: %d findings that it cannot be read, %+v, %v",
					x.name, repair, unreadable, sum, err)
			}
			done()
			if now, err := os.ReadFile(names[1-x.blade]); err != nil || !bytes.Equal(other, now) {
				t.Errorf("%s, repair %v: the other blade has been changed: %v", x.name, repair, err)
			}
		}
	}
}
