package memory_test

import (
	"bytes"
	"testing"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// TestScrubIsDurable: a blade that was lost is taken in again, and its memory is as after a
// restart: zero, but not on its disk. When the power goes, nothing of what it had comes back.
func TestScrubIsDurable(t *testing.T) {
	raced.Skip(t)
	junk := bytes.Repeat([]byte("junk"), 64<<10/4)
	for seed := range uint64(4) {
		f := rdmatest.New(rdmatest.Options{
			Blades: 3, Size: 4 << 20, Seed: seed, Volatile: true,
			Caps: rdma.Caps{Synchronous: true, Placed: true, OrderedLine: true},
		})
		th := must(rdma.NewThread(f, rdma.ThreadOptions{Arena: 4 << 20}))(t)
		c := th.Plain()
		s := must(memory.Open(c, f, &catalog.Mem{}, memory.Options{
			Backups: 1, SegmentSize: testSegment, LogArea: 64 << 10, Durable: true,
		}))(t)
		id := must(s.NewCoordinator())(t).ID
		for range 6 {
			a := must(s.AllocExtent(c, uint32(len(junk))))(t)
			buf := must(th.Alloc(len(junk)))(t)
			copy(th.Bytes(buf, uint32(len(junk))), junk)
			var b rdma.Batch
			for k := range s.View().Copies(a) {
				b.Write(s.View().At(a, k), buf, uint32(len(junk)))
				b.Flush(s.View().At(a, k), uint32(len(junk)))
			}
			check(t, c.Do(&b))
			th.Free(buf, len(junk))
		}
		check(t, s.CloseCoordinatorOn(c, id))
		if !bytes.Contains(f.Memory(1), junk[:64]) {
			t.Fatal("there is nothing on the blade")
		}
		check(t, f.StopBlade(1))
		check(t, s.AdvanceEpoch(s.DeclareDead(1)))
		check(t, f.RestartBlade(1, false))
		check(t, s.Admit(c, 1, nil))
		if bytes.Contains(f.LosePower(seed).Memory(1), []byte("junkjunk")) {
			t.Errorf("seed %d: what the blade had before is back", seed)
		}
	}
}
