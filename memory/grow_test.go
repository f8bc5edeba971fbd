package memory_test

import (
	"testing"

	"txnode/memory/layout"
)

// TestGrowLogs: how much of its log areas a coordinator uses is known to whoever opens the
// database after it.
func TestGrowLogs(t *testing.T) {
	b := newBed(t, 3, 20, 1)
	b.opts.LogArea = 4 * layout.LogStep
	s, _ := b.open()
	coord, err := s.NewCoordinator()
	check(t, err)
	for want := uint32(layout.LogStep); ; want *= 2 {
		later, _ := b.open()
		found, err := later.Coordinators()
		check(t, err)
		if len(found) != 1 || found[0].ID != coord.ID || found[0].Logs[0].Size != want ||
			found[0].LogMax != b.opts.LogArea {
			t.Fatalf("%+v; want log areas of %d bytes", found, want)
		}
		if want == b.opts.LogArea {
			return
		}
		_, err = s.GrowLogs(coord.ID)
		check(t, err)
	}
}
