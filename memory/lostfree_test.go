package memory_test

import (
	"errors"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// TestLostStock: of free blocks that an allocator has in stock when all copies of their segment are
// lost, nobody gets any: neither who takes from it when there is no room, nor who finds what it
// gives back when it is closed.
func TestLostStock(t *testing.T) {
	for _, closes := range []bool{false, true} {
		b := newBed(t, 2, 2, 0)
		s, c := b.open()
		a, other := b.allocator(s, c), b.allocator(s, b.thread().Plain())
		k := class(1000)
		full := drain(t, a, c, k)
		for _, x := range full {
			other.Hold(x)
			a.Used(x)
		}
		for _, x := range full {
			other.Free(x, k)
		}
		check(t, s.AdvanceEpoch(func(l *layout.Layout) error { l.TakeDown(1); return nil }))
		check(t, c.Thread().Reconnect(rdma.BladeID(0)))
		if closes {
			check(t, other.Close(c))
		}
		n, lost := 0, 0
		for ; ; n++ {
			x, err := a.Alloc(c, k)
			if errors.Is(err, memory.ErrNoSpace) {
				break
			}
			check(t, err)
			if s.View().Copies(x) == 0 {
				lost++
			}
		}
		if lost > 0 || n == 0 {
			t.Errorf("closed %v: %d blocks of %d are in lost segments", closes, lost, n)
		}
	}
}
