package memory_test

import (
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
)

// TestLossInSkippedEpochs: a blade is lost, taken in again, and what was left is swept, in epochs
// that another process does not see one by one. It takes the blade for lost all the same: what it
// has found free before is not, and slots may lead to free blocks.
func TestLossInSkippedEpochs(t *testing.T) {
	const k = 20
	b := newSharedBed(t, 3, 12, 1)
	s, c := b.join(0)
	other, oc := b.join(0)
	p := newProcess(t, b, s, c, k)
	p.insert(t, k, 10, map[layout.Addr]bool{})
	check(t, s.CloseCoordinatorOn(c, p.id))
	check(t, other.Follow())
	free := p.has[0]
	strays := s.ClaimStrays([]memory.FreeBlock{{Addr: free}})
	if strays == nil || len(strays.Blocks) != 1 {
		t.Fatalf("strays %+v", strays)
	}
	generation, _ := s.Unswept()
	blade := (s.View().At(free, 0).Blade + 2) % 3 // the primary stays where it is
	check(t, other.AdvanceEpoch(func(l *layout.Layout) error { l.TakeDown(blade); return nil }))
	check(t, other.Admit(oc, blade, nil))
	g, ok := other.Unswept()
	if !ok {
		t.Fatal("nothing is to be swept after a loss")
	}
	check(t, other.Swept(g))
	check(t, s.Follow())
	if _, void := strays.Return([]bool{true}); !void {
		t.Error("blocks that were found free before a loss are given away")
	}
	if !s.Dangling() {
		t.Error("no slot can lead to a free block")
	}
	if now, _ := s.Unswept(); now == generation {
		t.Error("nothing is to be swept")
	}
}
