package recovery_test

import (
	"errors"
	"testing"

	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestFenceAfterEpoch: the last WRITE of a thread of no session to a blade was posted before an
// epoch, so its key is stale. The thread connects again, and fences: it asks for no WRITE of before.
func TestFenceAfterEpoch(t *testing.T) {
	s := setting{occ.PolicyDefault, 1, strong}
	s.caps.Placed = false
	w := newWorld(t, s, occ.Options{})
	c := w.newThread().Plain()
	x, err := w.space.NewExtent(c, 4<<10)
	must(t, err)
	buf, err := c.Thread().Alloc(8)
	must(t, err)
	var b rdma.Batch
	v := w.space.ViewOn(c.Thread())
	for k := range v.Copies(x.Addr) {
		b.Write(v.At(x.Addr, k), buf, 8)
	}
	must(t, errors.Join(c.Do(&b), w.space.AdvanceEpoch(nil)))
	if err := c.Fence(rdma.FenceThread, 0, &b); !errors.Is(err, rdma.ErrStaleKey) {
		t.Fatalf("a fence by a key of before: %v", err)
	}
	must(t, recovery.Reconnect(c, w.space))
	must(t, c.Fence(rdma.FenceThread, 0, &b))
}
