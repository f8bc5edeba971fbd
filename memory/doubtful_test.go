package memory_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// TestReservationInDoubt: the answer of the catalog to a reservation is lost, of a change that was
// made, or not, or comes later; the catalog can be asked at once, or later; and another process
// changes the catalog in between. The extent stays exactly if it is reserved.
func TestReservationInDoubt(t *testing.T) {
	for _, kind := range []string{"made", "not made", "late"} {
		for _, deaf := range []bool{false, true} {
			for _, other := range []string{"", "changes what the change is about", "discards it"} {
				for _, then := range []string{"settle", "allocate", "again", "close"} {
					t.Run(fmt.Sprintf("%s, deaf %v, %s, %s", kind, deaf, other, then), func(t *testing.T) {
						testInDoubt(t, kind, deaf, other, then)
					})
				}
			}
		}
	}
	for _, kind := range []string{"made", "not made"} { // of one process
		for _, then := range []string{"settle", "allocate", "again", "close"} {
			t.Run(fmt.Sprintf("not shared, %s, %s", kind, then), func(t *testing.T) {
				testInDoubt(t, kind, true, "none", then)
			})
		}
	}
}

func testInDoubt(t *testing.T, kind string, deaf bool, other, then string) {
	const size = 1000
	b := newBed(t, 2, 8, 1)
	b.opts.Shared = other != "none"
	s, c := b.open()
	change := func(a layout.Addr) func(l *layout.Layout, _ uint32) error {
		return func(l *layout.Layout, _ uint32) error {
			n := byte(0)
			if r := l.Reservation("count"); r != nil {
				n = r.Text[0]
			}
			l.Reserve(layout.Reservation{Name: "count", Text: []byte{n + 1}})
			if r := l.Reservation("object"); r == nil {
				l.Reserve(layout.Reservation{Name: "object", Addr: a, Size: size})
			}
			return nil
		}
	}
	x := must(s.NewExtent(c, size))(t)
	meddle := func() {}
	if b.opts.Shared {
		second, _ := b.join(0)
		meddle = func() {
			was := *b.cat
			b.cat.fail, b.cat.deaf, b.cat.failed = false, false, nil
			defer func() { b.cat.fail, b.cat.deaf = was.fail, was.deaf }()
			check(t, second.Follow())
			switch other {
			case "changes what the change is about":
				check(t, second.ChangeReserved(func(l *layout.Layout, _ uint32) error {
					l.Reserve(layout.Reservation{Name: "count", Text: []byte{100}})
					return nil
				}))
			case "discards it":
				check(t, second.AdvanceEpoch(func(l *layout.Layout) error { l.Discard("object"); return nil }))
			}
		}
	}
	b.cat.fail, b.cat.lie, b.cat.late, b.cat.deaf = true, kind == "made", kind == "late", deaf
	b.cat.failed = func() { // once
		b.cat.failed = nil
		if meddle(); !deaf {
			b.cat.fail = false
		}
	}
	err := s.ReserveExtent(x, change(x.Addr))
	if deaf && err == nil {
		t.Fatal("the catalog cannot be asked")
	}
	if deaf && !slices.Contains(s.Extents(), x) {
		t.Error("the extent was given back, and may be reserved")
	}
	b.cat.fail, b.cat.deaf = false, false
	connect := func() {
		s.View().Rekey(c.Thread())
		for _, b := range s.Fabric().Blades() {
			check(t, c.Thread().Reconnect(b.ID))
		}
	}
	connect()
	switch then {
	case "settle":
		if deaf && !s.ExtentsDue(0) {
			t.Error("there is nothing to be done")
		}
		check(t, ignore(s.SettleExtents(c), rdma.ErrVerb))
	case "allocate":
		must(s.NewExtent(c, 50_000))(t)
	case "again":
		again := must(s.NewExtent(c, size))(t)
		check(t, s.ReserveExtent(again, change(again.Addr)))
	case "close":
		check(t, ignore(s.Close(c), rdma.ErrVerb))
		connect()
		if err := s.Close(c); !errors.Is(err, memory.ErrClosed) {
			check(t, err)
		}
		s, c = b.open()
	}
	connect()
	check(t, s.SettleExtents(c))
	connect()
	l := must(layout.LoadLayout(b.cat))(t)
	for _, e := range s.Extents() {
		if e.Size < 50_000 && !slices.ContainsFunc(l.Reserved, func(r layout.Reservation) bool {
			return r.Addr == e.Addr
		}) {
			t.Errorf("the extent %v is lost: reserved are %+v", e, l.Reserved)
		}
	}
	for _, r := range l.Reserved {
		if x := s.ExtentAt(r.Addr); r.Size > 0 && x.Size < r.Size && then != "close" {
			t.Errorf("%q is reserved, and the extent there is %v", r.Name, x)
		}
	}
	for range 8 { // no other one gets the place
		again := must(s.NewExtent(c, size))(t)
		if slices.ContainsFunc(l.Reserved, func(r layout.Reservation) bool {
			return r.Size > 0 && r.Addr == again.Addr
		}) {
			t.Errorf("%v is reserved, and was given away", again)
		}
	}
}

// TestLateFree: a process that has allocated an extent is taken for dead while it lives. The
// extent is found to be lost when the process has adopted its own segment again, and its place
// is another extent's. Now it frees what it has had: that extent is not touched, and what is
// gone is not reserved.
func TestLateFree(t *testing.T) {
	b := newSharedBed(t, 2, 12, 1)
	other, oc := b.join(1000)
	s, c := b.join(10)
	x := must(s.NewExtent(c, 1000))(t)
	connect := func() {
		for _, x := range []struct {
			s *memory.Space
			c *rdma.Coro
		}{{s, c}, {other, oc}} {
			check(t, x.s.Follow())
			x.s.Begin(x.c.Thread())
			x.s.View().Rekey(x.c.Thread())
			for _, b := range s.Fabric().Blades() {
				check(t, x.c.Thread().Reconnect(b.ID))
			}
		}
	}
	check(t, other.Follow())
	if n := must(other.TakeOver(11))(t); n != 1 {
		t.Fatalf("%d processes were taken over", n)
	}
	connect()
	late := func(when string) {
		t.Helper()
		if done, err := s.FreeExtent(x); done || err != nil {
			t.Errorf("%s, %v is freed: %v, %v", when, x, done, err)
		}
		if err := s.ReserveExtent(x, func(l *layout.Layout, _ uint32) error {
			l.Reserve(layout.Reservation{Name: "late", Addr: x.Addr, Size: 1000})
			return nil
		}); err == nil {
			t.Errorf("%s, %v is reserved", when, x)
		}
	}
	late("without a segment")
	for n := 0; n < 60 && !s.Owns(x.Addr); n++ {
		must(s.NewExtent(c, 20_000))(t)
	}
	must(s.NewExtent(c, 256))(t) // what is adopted is read
	if s.ExtentAt(x.Addr).Size == 0 {
		t.Fatalf("the process has not adopted the segment of %v", x)
	}
	late("adopted again")
	for _, x := range s.DeadExtents() { // no index leads to it
		must(s.FreeExtent(x))(t)
	}
	var again memory.Extent
	for n := 0; n < 40 && again.Addr != x.Addr; n++ {
		again = must(s.NewExtent(c, 1000))(t)
	}
	if again.Addr != x.Addr {
		t.Fatal("its place is not used again: this test tests nothing")
	}
	late("used again")
	for range 8 {
		if next := must(s.NewExtent(c, 1000))(t); next.Addr == again.Addr {
			t.Fatalf("%v is given away twice", next)
		}
	}
	if x := s.ExtentAt(again.Addr); x != again {
		t.Errorf("%v is not %v any more", x, again)
	}
}
