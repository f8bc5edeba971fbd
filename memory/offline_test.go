package memory_test

import (
	"bytes"
	"errors"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// TestOffline reads the header and the extents of a database from its bytes, and
// compares with what the Space says.
func TestOffline(t *testing.T) {
	b := newBed(t, 2, 6, 1)
	s, c := b.open()
	a, err := s.AllocExtent(c, 5000)
	if err != nil {
		t.Fatal(err)
	}
	l, v := s.Layout(), s.View()
	read := func(at rdma.RemoteAddr, n uint32) []byte {
		t.Helper()
		local, err := c.Thread().Alloc(int(n))
		if err != nil {
			t.Fatal(err)
		}
		var batch rdma.Batch
		batch.Read(at, local, n)
		if err := c.Do(&batch); err != nil {
			t.Fatal(err)
		}
		return c.Thread().Bytes(local, n)
	}
	for blade := range rdma.BladeID(2) {
		for i := range layout.HeaderCopies {
			p := read(rdma.RemoteAddr{Blade: blade, Key: v.Key(blade), Off: layout.HeaderOffset(i)},
				layout.RegionHeaderSize)
			h, blank, err := layout.ParseHeaderCopy(p, i)
			if err != nil || blank || h != l.HeaderOf(blade) {
				t.Errorf("blade %d, copy %d: %+v, %v, %v", blade, i, h, blank, err)
			}
			if !bytes.Equal(h.Encode(i), p) {
				t.Errorf("blade %d, copy %d: encoded again it differs", blade, i)
			}
			if _, _, err := layout.ParseHeaderCopy(p, 1-i); !errors.Is(err, layout.ErrDamaged) {
				t.Errorf("copy %d passes as the other: %v", i, err)
			}
		}
	}
	size, unit := s.SegmentSize(), memory.ExtentUnit(s.SegmentSize())
	table := read(v.At(layout.MakeAddr(a.Segment(), 0), 0), memory.ExtentTable(size))
	found := 0
	for g := range uint32(len(table)) / 8 {
		w := uint64(0)
		for k := range 8 {
			w |= uint64(table[8*g+uint32(k)]) << (8 * k)
		}
		at := layout.MakeAddr(a.Segment(), g*unit)
		n, ok := memory.ParseExtentWord(at, w)
		if !ok {
			t.Errorf("word %#x at %v is damaged", w, at)
		}
		if n > 0 {
			found++
			if want := s.Extents()[0]; want.Addr != at || want.Size != n*unit ||
				at.Offset() < memory.FirstExtent(size) {
				t.Errorf("extent of %d bytes at %v, want %+v", n*unit, at, want)
			}
			if _, ok := memory.ParseExtentWord(at+layout.Addr(unit), w); ok {
				t.Errorf("word %#x is good in another place", w)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d extents", found)
	}
}
