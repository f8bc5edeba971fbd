package memory_test

import (
	"encoding/binary"
	"testing"

	"txnode/memory/layout"
	"txnode/rdma"
)

// TestAdoptedLevel: a process is killed while it frees an extent: the word is cleared on one copy
// of the table, and not on the other. The process that adopts the segment makes them equal: else
// what the other copy says would count after the loss of the primary.
func TestAdoptedLevel(t *testing.T) {
	for cleared := range 2 {
		b := newSharedBed(t, 2, 12, 1)
		s, c := b.open()
		s2, c2 := b.join(10)
		extent := must(s2.AllocExtent(c2, 1000))(t)
		must(s2.AllocExtent(c2, 1000))(t)
		word := layout.MakeAddr(extent.Segment(), extent.Offset()/256*8) // granules are of 256 bytes
		buf := must(c2.Thread().Alloc(64))(t)
		words := func(c *rdma.Coro, v *layout.View) (w [2]uint64) {
			t.Helper()
			buf := must(c.Thread().Alloc(64))(t)
			defer c.Thread().Free(buf, 64)
			var batch rdma.Batch
			for k := range w {
				batch.Read(v.At(word, k), buf+uint32(8*k), 8)
			}
			check(t, c.Do(&batch))
			for k := range w {
				w[k] = binary.LittleEndian.Uint64(c.Thread().Bytes(buf+uint32(8*k), 8))
			}
			return w
		}
		if w := words(c2, s2.View()); w[0] == 0 || w[0] != w[1] {
			t.Fatalf("the words of an extent are %#x", w)
		}
		var batch rdma.Batch
		c2.Thread().PutWord(buf, 0)
		batch.Write(s2.View().At(word, cleared), buf, 8)
		check(t, c2.Do(&batch))
		check(t, s.Follow())
		if n := must(s.TakeOver(21))(t); n != 1 {
			t.Fatalf("%d processes were taken over", n)
		}
		for n := 0; n < 40 && !s.Owns(extent); n++ {
			must(s.AllocExtent(c, 20_000))(t)
		}
		must(s.AllocExtent(c, 256))(t) // what is adopted is read
		if !s.Owns(extent) {
			t.Fatal("the segment is not adopted")
		}
		if w := words(c, s.View()); w[0] != w[1] {
			t.Errorf("cleared on copy %d: the copies of a word are %#x once its segment is adopted", cleared, w)
		}
	}
}
