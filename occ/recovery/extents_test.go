package recovery_test

import (
	"fmt"
	"slices"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestDeadExtentsTwice: two look for what the dead have allocated and nobody knows of. One of them
// has found it, and comes to freeing it when the other has done so, and a client who is alive may
// have made an extent of his in its place: that stays his, and it is no error.
func TestDeadExtentsTwice(t *testing.T) {
	const size = 1000
	inPlace := 0
	for _, taken := range []bool{false, true} {
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
			var mine memory.Extent
			w.stop = stop{left: -1, at: func() {
				if n++; n == k+1 {
					w.stop.at = nil
					freed, err = recovery.FreeDeadExtents(tx.Coro(), ours.Recovery())
					must(t, err)
					for i := 0; taken && mine.Addr != lost.Addr && i < 6; i++ { // on one blade after the other
						mine, err = w.space.NewExtent(ours.Thread().Plain(), size)
						must(t, err)
					}
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
			if mine.Addr == lost.Addr {
				inPlace++
			}
			is := slices.ContainsFunc(w.space.Extents(), func(x memory.Extent) bool { return x.Addr == lost.Addr })
			if is != (mine.Addr == lost.Addr) {
				t.Errorf("before verb %d: the extent at %v is allocated: %v, and somebody has made one at %v",
					k, lost, is, mine)
			}
		}
	}
	if inPlace == 0 {
		t.Error("nobody has made an extent in the place of the one that was lost")
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

// TestDeadExtentsBesideDrop: another process drops a table while it is looked which extents the
// indexes consist of. That is no error, and the extents of the dead are found the next time.
func TestDeadExtentsBesideDrop(t *testing.T) {
	w := newWorld(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{})
	ours, tx := w.session()
	w.sure(ours, tx, put("a", "1"))
	victim, _ := w.session()
	_, err := w.space.NewExtent(victim.Thread().Plain(), 1000)
	must(t, err)
	w.decideUntil(victim.Coordinator(), -1)
	w.sweep()
	o := w.eng.Recovery()
	o.Open = func(_ *rdma.Coro, _ race.Space, table uint16) (index.Finder, error) {
		return nil, fmt.Errorf("%w: %d", memory.ErrNoTable, table)
	}
	if n, err := recovery.FreeDeadExtents(w.ctl.Plain(), o); n != 0 || err != nil {
		t.Errorf("beside a drop %d extents are freed, %v", n, err)
	}
	if n, err := recovery.FreeDeadExtents(w.ctl.Plain(), w.eng.Recovery()); n != 1 || err != nil {
		t.Errorf("then %d extents are freed, %v", n, err)
	}
}
