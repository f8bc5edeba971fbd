package region_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/rdma/region"
)

// TestExecAgainstExecute runs random requests, good and bad, on a port that
// executes plain ones in assembly and on one that never does. Results, statuses,
// memory and arenas must be the same.
func TestExecAgainstExecute(t *testing.T) {
	const size, arena = 1 << 16, 1 << 17
	var c [2]*client
	for i := range c {
		f := open(t, inproc.Options{Blades: blades(3, size, ""), Seed: 7})
		if i == 1 {
			f.Fence()
		} else if !f.Fast() {
			t.Skip("no assembly here")
		}
		th, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: arena})
		if err != nil {
			t.Fatal(err)
		}
		c[i] = &client{Thread: th, t: t, f: f}
		defer c[i].close()
	}
	near := func(edges ...uint64) *rapid.Generator[uint64] {
		return rapid.Custom(func(t *rapid.T) uint64 {
			e := rapid.SampledFrom(edges).Draw(t, "edge")
			unit := rapid.SampledFrom([]uint64{1, 8, 16, 64}).Draw(t, "unit")
			return e + rapid.Uint64Range(0, 40).Draw(t, "plus")*unit - rapid.Uint64Range(0, 40).Draw(t, "minus")*unit
		})
	}
	offs := near(0, 64, 256, 4096, size/2, size, ^uint64(0))
	locals := near(0, 256, 8192, arena, 1<<32-1)
	lens := near(0, 8, 64, 128, region.ExecMax, size)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3*region.Chunk).Draw(t, "requests")
		seed := rapid.Uint64().Draw(t, "seed")
		mostlyGood := rapid.Bool().Draw(t, "mostly good")
		for _, c := range c {
			for i := uint32(0); i < arena; i += 8 {
				c.PutWord(i, uint64(i)*seed)
			}
			c.b.Reset()
		}
		for range n {
			a := rdma.RemoteAddr{
				Blade: rdma.BladeID(rapid.IntRange(0, 2).Draw(t, "blade")),
				Off:   offs.Draw(t, "off"),
			}
			a.Key = rdma.Key(100 + a.Blade)
			local, length := uint32(locals.Draw(t, "local")), uint32(lens.Draw(t, "len"))
			if mostlyGood {
				a.Off, local, length = a.Off%(size/2)&^7, local%(arena/2)&^7, length%8192&^7
			}
			if rapid.IntRange(0, 99).Draw(t, "odd") == 0 {
				a.Blade, a.Key = rapid.SampledFrom([]rdma.BladeID{0, 2, 3, 65535}).Draw(t, "odd blade"), a.Key^1
			}
			x, y := rapid.Uint64Range(0, 3).Draw(t, "x"), rapid.Uint64().Draw(t, "y")
			op := rdma.Op(rapid.SampledFrom([]int{0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6}).Draw(t, "op"))
			if op > rdma.OpWrite && op != rdma.OpFlush && rapid.IntRange(0, 9).Draw(t, "length as it is") > 0 {
				length = 8
			}
			for _, c := range c {
				i := c.b.CAS(a, x, y)
				w := c.b.WR(i)
				w.Op, w.Local, w.Len = op, local, length
			}
		}
		fast, slow := c[0].Plain().Do(&c[0].b), c[1].Plain().Do(&c[1].b)
		if (fast == nil) != (slow == nil) || fast != nil && fast.Error() != slow.Error() {
			t.Fatalf("errors differ: %v, %v", fast, slow)
		}
		for i := range n {
			x, y := c[0].b.WR(i), c[1].b.WR(i)
			if x.Status != y.Status || x.Status == rdma.StatusOK && x.Result != y.Result && x.Op >= rdma.OpCAS &&
				x.Op < rdma.OpFlush {
				t.Fatalf("request %d, %v of %d bytes at %v, local %#x: %q %#x and %q %#x",
					i, x.Op, x.Len, rdma.RemoteAddr{Blade: x.Blade, Key: x.Key, Off: x.Off}, x.Local, x.Status,
					x.Result, y.Status, y.Result)
			}
		}
		if !bytes.Equal(c[0].Bytes(0, arena), c[1].Bytes(0, arena)) {
			t.Fatal("the arenas differ")
		}
		for b := range rdma.BladeID(3) {
			for _, c := range c {
				if err := c.Reconnect(b); err != nil {
					t.Fatal(err)
				}
			}
			if x, y := c[0].read(b, 0, size), c[1].read(b, 0, size); x != y {
				t.Fatalf("the memory of blade %d differs", b)
			}
		}
	})
}
