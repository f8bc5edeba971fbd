package memory_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// Segments that are nobody's: those that need room adopt them.

// TestAdoptedInTurn: one process after the other fills a little of several segments and of an
// index, and dies. The next one goes on in the segments of those before it: there are no more of
// them than two processes need.
func TestAdoptedInTurn(t *testing.T) {
	classes := []layout.Class{4, 20}
	b := newSharedBed(t, 2, 24, 1)
	s, _ := b.join(0) // lives, and needs nothing
	b.fabric.clock = new(int64)
	taken := map[layout.Addr]bool{}
	extents := map[layout.Addr]bool{}
	for n := range 12 {
		x, c := b.join(*b.fabric.clock + 10)
		for _, k := range classes {
			p := newProcess(t, b, x, c, k)
			p.insert(t, k, 30, taken)
			check(t, x.CloseCoordinatorOn(c, p.id))
		}
		for range 3 {
			a := must(x.AllocExtent(c, 500))(t)
			if extents[a] {
				t.Fatalf("the extent %v is given twice", a)
			}
			extents[a] = true
		}
		check(t, s.Follow())
		l := s.Layout()
		for _, k := range classes {
			has := 0
			for _, g := range l.Segments {
				if g.Kind == layout.KindBlocks && g.Class == k {
					has++
				}
			}
			// What is in use, and as many to be filled as a process has open and looks through
			// before it adds one.
			if most := 30*(n+1)*int(k.Size())/testSegment + 1 + 2 + 1; has > most {
				t.Fatalf("process %d: there are %d segments of blocks of %d bytes, and %d should do",
					n, has, k.Size(), most)
			}
		}
		if n := len(s.Layout().Segments) - blockSegments(l); n > 1+2+2 {
			t.Fatalf("process %d: %d segments of logs and indexes: %+v", n, n, l.Segments)
		}
		*b.fabric.clock += 11
		if ended := must(s.TakeOver(*b.fabric.clock))(t); ended != 1 {
			t.Fatalf("%d registrations were ended", ended)
		}
		if generation, due := s.Unswept(); due { // as maintenance does it
			check(t, s.Swept(generation))
		}
	}
}

// TestFirstLeavesRoom: blades are full of segments when a database is opened by two processes. Both
// find what is free.
func TestFirstLeavesRoom(t *testing.T) {
	const k = 20
	b := newSharedBed(t, 2, 6, 1)
	s, c := b.open()
	p := newProcess(t, b, s, c, k)
	taken := map[layout.Addr]bool{}
	p.insert(t, k, 1<<20, taken)
	for _, a := range p.has {
		if a.Offset()/layout.Class(k).Size()%2 == 0 {
			delete(taken, a)
			p.free(a)
		}
	}
	room := len(p.has) - len(taken)
	check(t, s.CloseCoordinatorOn(c, p.id))
	check(t, p.a.Close(c))
	check(t, s.Close(c))
	s, c = b.open()
	first := newProcess(t, b, s, c, k)
	first.insert(t, k, 5, taken)
	s, c = b.join(0)
	second := newProcess(t, b, s, c, k)
	second.insert(t, k, 1<<20, taken)
	if len(second.has) == 0 {
		t.Error("the second process has found nothing")
	}
	first.insert(t, k, 1<<20, taken)
	if n := len(first.has) + len(second.has); n != room {
		t.Errorf("%d blocks were found of %d", n, room)
	}
}

// TestAdoptedWhileFreeing: a session is about to free a block in a segment that is nobody's, under
// the number of those that do not own it, when another thread of its process adopts the segment.
// The block is found by its header, with a number of this process; but not before the session has
// done with it, not even by the session: what it says of the block then would be taken for the
// second time that it has the block (V545).
func TestAdoptedWhileFreeing(t *testing.T) {
	t.Run("found when freed", func(t *testing.T) { adoptedWhileFreeing(t, false) })
	t.Run("looked for before", func(t *testing.T) { adoptedWhileFreeing(t, true) })
}

func adoptedWhileFreeing(t *testing.T, early bool) {
	const k = 20
	b := newSharedBed(t, 2, 4, 1)
	b.fabric.clock = new(int64)
	s, c := b.join(1000)
	dead, dc := b.join(10)
	taken := map[layout.Addr]bool{}
	gone := newProcess(t, b, dead, dc, k)
	gone.insert(t, k, 1<<20, taken) // all there is
	check(t, s.Follow())
	*b.fabric.clock = 11
	if must(s.TakeOver(11))(t) != 1 {
		t.Fatal("no registration has ended")
	}

	gone.recover(t, s)
	freeing, other := newProcess(t, b, s, c, k), newProcess(t, b, s, b.thread().Plain(), k)
	a := gone.has[7]
	freeing.a.Hold(a)
	number := s.CountFree(a)
	if number != memory.FreedByOther {
		t.Fatalf("a block that is nobody's is freed under %#x", number)
	}
	other.insert(t, k, 1<<20, taken) // adopts all, and finds nothing
	if len(other.has) > 0 || !s.Owns(a) {
		t.Fatalf("%d blocks were found, and the segment is adopted: %v", len(other.has), s.Owns(a))
	}
	line := make(record.Image, record.LineSize)
	line.PutFree(a, record.MakeTxID(freeing.id, 1), 1, k, number)
	write(t, s, c, a, line)
	delete(taken, a)
	if early {
		freeing.insert(t, k, 1<<20, taken)
		other.insert(t, k, 1<<20, taken)
		if len(freeing.has)+len(other.has) > 0 {
			t.Fatal("the block is given away while a session is about to free it")
		}
	}
	freeing.a.Free(a, k)
	freeing.insert(t, k, 1<<20, taken) // which looks at the numbers
	if !slices.Equal(freeing.has, []layout.Addr{a}) {
		t.Errorf("found are %v, and %v is free", freeing.has, a)
	}
	if freeing.a.Free(a, k); freeing.a.Holds(a) {
		t.Error("the block is on its way still")
	}
	other.insert(t, k, 1<<20, taken)
	if len(other.has) > 0 {
		t.Error("the block is given away twice")
	}
}

// TestAdoptedTable: the table of an index segment that was adopted cannot be read. It is
// read the next time.
func TestAdoptedTable(t *testing.T) {
	b := newSharedBed(t, 2, 4, 1)
	b.fabric.clock = new(int64)
	s, c := b.join(1000)
	dead, dc := b.join(10)
	var had []layout.Addr
	for {
		a, err := dead.AllocExtent(dc, 60<<10)
		if errors.Is(err, memory.ErrNoSpace) {
			break
		}
		check(t, err)
		had = append(had, a)
	}
	for _, a := range had {
		check(t, dead.FreeAt(a, 60<<10))
	}
	check(t, dead.SettleExtents(dc))
	check(t, s.Follow())
	*b.fabric.clock = 11
	if must(s.TakeOver(11))(t) != 1 {
		t.Fatal("no registration has ended")
	}
	connect := func() {
		for _, b := range s.Fabric().Blades() {
			check(t, c.Thread().Reconnect(b.ID))
		}
	}
	connect()
	b.fabric.stop = &stop{status: rdma.StatusFlushed}
	if _, err := s.AllocExtent(c, 60<<10); !errors.Is(err, rdma.ErrVerb) {
		t.Fatalf("no table can be read: %v", err)
	}
	b.fabric.stop = nil
	connect()
	var got []layout.Addr
	for {
		a, err := s.AllocExtent(c, 60<<10)
		if errors.Is(err, memory.ErrNoSpace) {
			break
		}
		check(t, err)
		got = append(got, a)
	}
	if len(got) < len(had) {
		t.Errorf("found are %d extents, and %d are free", len(got), len(had))
	}
}

// TestAdoptedDamage: the table of an index segment of a process that is gone is damaged, on one
// copy or on all. The process that adopts it is told, and goes on beside: the extent that is there
// is not given away. A copy that cannot be read now is none that is damaged.
func TestAdoptedDamage(t *testing.T) {
	for _, x := range []struct{ damaged, unread []int }{
		{damaged: []int{0, 1}}, {damaged: []int{0}}, {damaged: []int{1}}, {damaged: []int{1}, unread: []int{0}},
		{damaged: []int{0}, unread: []int{1}},
	} {
		b := newSharedBed(t, 2, 16, 1)
		b.fabric.clock = new(int64)
		var told []error
		b.opts.Damaged = func(err error) { told = append(told, err) }
		s, c := b.join(1000)
		dead, dc := b.join(10)
		a := must(dead.AllocExtent(dc, 1000))(t)
		check(t, s.Follow())
		must(s.TakeOver(11))(t)
		word := layout.MakeAddr(a.Segment(), a.Offset()/memory.Granule(testSegment)*8)
		for _, i := range x.damaged {
			at := s.View().At(word, i)
			b.poke(at.Blade, at.Off, []byte{1, 2, 3})
		}
		failed := 0
		b.fabric.failing = func(w *rdma.WR) bool {
			for _, i := range x.unread {
				table := s.View().At(layout.MakeAddr(a.Segment(), 0), i)
				if w.Op == rdma.OpRead && w.Blade == table.Blade && w.Off == table.Off && failed == 0 {
					failed++
					return true
				}
			}
			return false
		}
		what := fmt.Sprintf("damaged are the copies %v, and unread %v", x.damaged, x.unread)
		extents := map[layout.Addr]bool{a: true}
		for range 60 {
			e, err := s.AllocExtent(c, 20_000)
			if errors.Is(err, rdma.ErrVerb) && failed == 1 {
				failed++
				for _, blade := range b.fabric.Blades() {
					check(t, c.Thread().Reconnect(blade.ID))
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if extents[e] {
				t.Fatalf("%s: the extent %v is given twice", what, e)
			}
			extents[e] = true
		}
		own := slices.ContainsFunc(s.Extents(), func(e memory.Extent) bool { return e.Addr == a })
		all := len(x.damaged) == 2
		if own == all || all != (len(told) == 1) || len(x.unread) > 0 && failed != 2 || !s.Owns(a) {
			t.Errorf("%s: it is known: %v; told: %v; failed: %d", what, own, told, failed)
		}
		for _, err := range told {
			var be *layout.BladeError
			if !errors.Is(err, layout.ErrDamaged) || !errors.As(err, &be) ||
				strings.Count(err.Error(), "the word") != 2 {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}
