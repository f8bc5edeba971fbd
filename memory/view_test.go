package memory_test

import (
	"testing"

	"txnode/memory/layout"
	"txnode/rdma"
)

func TestView(t *testing.T) {
	v := layout.NewView(7,
		[]layout.Placement{
			{},
			{N: 2, Replicas: [3]layout.Replica{{Blade: 1, Base: 0x1000}, {Blade: 0, Base: 0x2000}}},
			{},
			{N: 1, Replicas: [3]layout.Replica{{Blade: 0, Base: 0x3000}}},
		},
		[]rdma.Key{10, 11})
	a := layout.MakeAddr(1, 0x40)
	if v.Epoch != 7 || v.Segments() != 4 || v.Blades() != 2 || v.Copies(a) != 2 || v.Key(1) != 11 {
		t.Errorf("view %+v", v)
	}
	if got := v.At(a, 0); got != (rdma.RemoteAddr{Blade: 1, Key: 11, Off: 0x1040}) {
		t.Errorf("primary at %+v", got)
	}
	if got := v.At(a, 1); got != (rdma.RemoteAddr{Blade: 0, Key: 10, Off: 0x2040}) {
		t.Errorf("backup at %+v", got)
	}
	for a, want := range map[layout.Addr]bool{
		layout.MakeAddr(1, 0):     true,
		layout.MakeAddr(3, 64):    true,
		0:                         false,
		layout.MakeAddr(2, 0):     false,
		layout.MakeAddr(4, 0):     false,
		1<<63 | 1<<26:             false,
		1<<48 | 1<<26:             false,
		layout.Addr(^uint64(0)):   false,
		layout.MakeAddr(1<<21, 0): false,
	} {
		if v.Valid(a) != want {
			t.Errorf("Valid(%#x) is %v", uint64(a), !want)
		}
		if copies := v.Copies(a); !want && a>>layout.AddrBits == 0 && copies != 0 {
			t.Errorf("Copies(%#x) is %d", uint64(a), copies)
		}
	}
	if p := v.Placement(99); p.N != 0 {
		t.Errorf("segment 99 is at %+v", p)
	}
}

func TestViewKnowsWhereSegmentsEnd(t *testing.T) {
	b := newBed(t, 2, 4, 1)
	s, c := b.open()
	a := must(s.AllocExtent(c, 100))(t)
	v := s.View()
	end := layout.MakeAddr(a.Segment(), testSegment)
	for _, x := range []struct {
		a    layout.Addr
		n    uint32
		want bool
	}{
		{end - 64, 64, true},
		{end - 64, 65, false},
		{end - 64, 1<<32 - 1, false},
		{end, 0, false},
		{end, 64, false},
		{layout.MakeAddr(a.Segment(), 0), testSegment, true},
		{layout.MakeAddr(a.Segment(), 0), testSegment + 1, false},
	} {
		if v.Contains(x.a, x.n) != x.want {
			t.Errorf("Contains(%v, %d) is %v", x.a, x.n, !x.want)
		}
	}
	if v.Valid(end) || !v.Valid(end-1) {
		t.Error("Valid does not know where the segment ends")
	}
}
