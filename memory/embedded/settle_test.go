package embedded

import (
	"testing"

	"txnode/memory/layout"
)

// TestSettled: region files are written to the disk when they are mapped, if a promise to
// survive a loss of power is, or is about to be, based on what is read of them.
func TestSettled(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(Options{
		Dir: dir, Blades: 2, Replicas: 2, BladeSize: 1 << 20, SegmentSize: 256 << 10, LogArea: 64 << 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Space().NewCoordinator(); err != nil { // with a segment on each blade
		t.Fatal(err)
	}
	l := d.Space().Layout()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	used := uint64(layout.HeaderArea + 64<<10) // what a coordinator uses of its log area
	for _, x := range []struct {
		name       string
		checkpoint uint32
		durable    bool
		down       bool
		want       uint64
	}{
		{name: "nothing was or is promised"},
		{name: "not closed", checkpoint: 3, want: used},
		{name: "opened durably", durable: true, want: used},
		{name: "down", checkpoint: 3, durable: true, down: true},
	} {
		l.Checkpoint, l.Blades[1].State = x.checkpoint, layout.BladeUp
		if x.down {
			l.Blades[1].State = layout.BladeDown
		}
		h := &Host{}
		blades, err := h.blades(&Options{Dir: dir, Blades: 2, Durable: x.durable}, l)
		if err != nil {
			t.Fatal(err)
		}
		got := uint64(0)
		for _, p := range blades[1].Settle {
			got += p[1]
		}
		if got != x.want {
			t.Errorf("%s: %#x bytes are settled, not %#x", x.name, got, x.want)
		}
	}
}
