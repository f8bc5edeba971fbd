package recovery_test

import (
	"slices"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/occ/recovery"
)

// TestDeadExtentsTwice: two look for what the dead have allocated and nobody knows of. One of them
// has found it, and comes to freeing it when the other has done so. It is no error.
func TestDeadExtentsTwice(t *testing.T) {
	const size = 1000
	for k, over := 0, false; !over; k++ {
		w := newWorld(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{})
		ours, tx := w.session()
		w.sure(ours, tx, put("a", "1"))
		victim, _ := w.session()
		lost, err := w.space.NewExtent(victim.Thread().Plain(), size)
		must(t, err)
		w.decideUntil(victim.Coordinator(), -1)
		w.sweep()
		n, freed := 0, 0
		w.stop = stop{left: -1, at: func() {
			if n++; n == k+1 {
				w.stop.at = nil
				freed, err = recovery.FreeDeadExtents(tx.Coro(), ours.Recovery())
				must(t, err)
			}
		}}
		again, err := recovery.FreeDeadExtents(w.ctl.Plain(), w.eng.Recovery())
		over = w.stop.at != nil
		w.stop = stop{left: -1}
		if err != nil {
			t.Fatalf("before verb %d: %v", k, err)
		}
		if freed+again != 1 {
			t.Errorf("before verb %d: one has freed %d extents, the other %d", k, freed, again)
		}
		is := slices.ContainsFunc(w.space.Extents(), func(x memory.Extent) bool { return x.Addr == lost.Addr })
		if is {
			t.Errorf("before verb %d: the extent at %v is allocated", k, lost)
		}
	}
}

// TestReservedExtents: an extent that is reserved is no loss of the coordinator that has allocated
// it.
func TestReservedExtents(t *testing.T) {
	w := newWorld(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{})
	ours, tx := w.session()
	w.sure(ours, tx, put("a", "1"))
	victim, _ := w.session()
	for _, name := range []string{"kept", ""} {
		x, err := w.space.NewExtent(victim.Thread().Plain(), 1000)
		must(t, err)
		if name != "" {
			must(t, w.space.ChangeReserved(func(l *layout.Layout, _ uint32) error {
				l.Reserve(layout.Reservation{Name: name, Addr: x.Addr, Size: 1000})
				return nil
			}))
		}
	}
	w.decideUntil(victim.Coordinator(), -1)
	w.sweep()
	if n, err := recovery.FreeDeadExtents(w.ctl.Plain(), w.eng.Recovery()); n != 1 || err != nil {
		t.Errorf("%d extents are given back, %v", n, err)
	}
	w.check("reserved") // it is known to checks, too
}
