package memory_test

import (
	"testing"

	"txnode/memory/layout"
)

func TestAddr(t *testing.T) {
	for _, c := range []struct {
		seg  layout.SegmentID
		off  uint32
		want layout.Addr
		text string
	}{
		{0, 0, 0, "seg 0 +0x0"},
		{1, 0, 1 << 26, "seg 1 +0x0"},
		{3, 0x40, 3<<26 | 0x40, "seg 3 +0x40"},
		{layout.MaxSegments - 1, layout.MaxSegmentSize - 64, 1<<48 - 64, "seg 4194303 +0x3ffffc0"},
	} {
		a := layout.MakeAddr(c.seg, c.off)
		if a != c.want || a.Segment() != c.seg || a.Offset() != c.off || a.String() != c.text {
			t.Errorf("MakeAddr(%d, %#x) = %#x, segment %d, offset %#x, %q",
				c.seg, c.off, uint64(a), a.Segment(), a.Offset(), a)
		}
		if a>>layout.AddrBits != 0 {
			t.Errorf("%v does not fit %d bits", a, layout.AddrBits)
		}
	}
}

// TestClasses compares ClassOf with the definition: the smallest class that is
// large enough.
func TestClasses(t *testing.T) {
	for c := layout.Class(1); c < layout.NumClasses; c++ {
		if c.Size() <= (c-1).Size() || c.Size()%layout.BlockAlign != 0 {
			t.Errorf("class %d has %d bytes, the one before %d", c, c.Size(), (c - 1).Size())
		}
		if c >= 4 && c.Size() > (c-1).Size()*5/4 {
			t.Errorf("class %d has %d bytes, more than a quarter over %d", c, c.Size(), (c - 1).Size())
		}
	}
	if layout.MaxBlock != 8<<20 {
		t.Errorf("MaxBlock is %d", layout.MaxBlock)
	}
	smallest := func(n uint32) layout.Class {
		c := layout.Class(0)
		for c.Size() < n {
			c++
		}
		return c
	}
	for n := uint32(0); n <= layout.MaxBlock; n += 1 + n/50 {
		for _, m := range []uint32{n, n + 1, n &^ 63, n&^63 + 1} {
			if m > layout.MaxBlock {
				continue
			}
			if c, ok := layout.ClassOf(m); !ok || c != smallest(m) {
				t.Fatalf("ClassOf(%d) = %d (%d bytes), %v; want %d", m, c, c.Size(), ok, smallest(m))
			}
		}
	}
	for _, n := range []uint32{layout.MaxBlock + 1, 1 << 30, 1<<32 - 1} {
		if c, ok := layout.ClassOf(n); ok {
			t.Errorf("ClassOf(%d) = %d", n, c)
		}
	}
}
