package memory_test

import (
	"testing"

	"txnode/memory"
)

func TestAddr(t *testing.T) {
	for _, c := range []struct {
		seg  memory.SegmentID
		off  uint32
		want memory.Addr
		text string
	}{
		{0, 0, 0, "seg 0 +0x0"},
		{1, 0, 1 << 26, "seg 1 +0x0"},
		{3, 0x40, 3<<26 | 0x40, "seg 3 +0x40"},
		{memory.MaxSegments - 1, memory.MaxSegmentSize - 64, 1<<48 - 64, "seg 4194303 +0x3ffffc0"},
	} {
		a := memory.MakeAddr(c.seg, c.off)
		if a != c.want || a.Segment() != c.seg || a.Offset() != c.off || a.String() != c.text {
			t.Errorf("MakeAddr(%d, %#x) = %#x, segment %d, offset %#x, %q", c.seg, c.off, uint64(a), a.Segment(), a.Offset(), a)
		}
		if a>>memory.AddrBits != 0 {
			t.Errorf("%v does not fit %d bits", a, memory.AddrBits)
		}
	}
}

// TestClasses compares ClassOf with the definition: the smallest class that is
// large enough.
func TestClasses(t *testing.T) {
	for c := memory.Class(1); c < memory.NumClasses; c++ {
		if c.Size() <= (c-1).Size() || c.Size()%memory.BlockAlign != 0 {
			t.Errorf("class %d has %d bytes, the one before %d", c, c.Size(), (c - 1).Size())
		}
		if c >= 4 && c.Size() > (c-1).Size()*5/4 {
			t.Errorf("class %d has %d bytes, more than a quarter over %d", c, c.Size(), (c - 1).Size())
		}
	}
	if memory.MaxBlock != 8<<20 {
		t.Errorf("MaxBlock is %d", memory.MaxBlock)
	}
	smallest := func(n uint32) memory.Class {
		c := memory.Class(0)
		for c.Size() < n {
			c++
		}
		return c
	}
	for n := uint32(0); n <= memory.MaxBlock; n += 1 + n/50 {
		for _, m := range []uint32{n, n + 1, n &^ 63, n&^63 + 1} {
			if m > memory.MaxBlock {
				continue
			}
			if c, ok := memory.ClassOf(m); !ok || c != smallest(m) {
				t.Fatalf("ClassOf(%d) = %d (%d bytes), %v; want %d", m, c, c.Size(), ok, smallest(m))
			}
		}
	}
	for _, n := range []uint32{memory.MaxBlock + 1, 1 << 30, 1<<32 - 1} {
		if c, ok := memory.ClassOf(n); ok {
			t.Errorf("ClassOf(%d) = %d", n, c)
		}
	}
}
