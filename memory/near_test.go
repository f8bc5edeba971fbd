package memory_test

import (
	"errors"
	"testing"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// TestAllocOn: blocks have their primaries on the blade that was asked for, as long as there are
// some, also those of earlier sessions and those that were given back. Then others serve. Alloc
// gets the rest of them, and nothing is lost.
func TestAllocOn(t *testing.T) {
	for _, size := range []uint32{64, 1000, 40_000} {
		k := class(size)
		const segments = 32 // of a blade; the class has some on all blades as long as there is plenty of room
		b := newBed(t, 3, segments, 1)
		for session := range 2 {
			s, c := b.open()
			a := b.allocator(s, c)
			all := segments * 3 / 2 * int(testSegment/k.Size())
			var out []layout.Addr
			elsewhere := 0
			for i := range all / 8 {
				blade := rdma.BladeID(i / 3 % 3)
				x := must(a.AllocOn(c, k, blade))(t)
				if s.View().At(x, 0).Blade != blade {
					elsewhere++
				}
				out = append(out, x)
			}
			// What an earlier session has left is found a part of a segment at a time.
			if session == 0 && elsewhere > 0 || elsewhere > all/80 {
				t.Errorf("size %d, session %d: %d of %d blocks are elsewhere", size, session, elsewhere, all/8)
			}
			for range 8 {
				out = append(out, must(a.Alloc(c, k))(t))
			}
			for {
				x, err := a.AllocOn(c, k, 1)
				if errors.Is(err, memory.ErrNoSpace) {
					break
				}
				if out = append(out, x); err != nil {
					t.Fatal(err)
				}
			}
			checkBlocks(t, s, out, k)
			if n := len(out) - all; n < -int(testSegment/k.Size()) || n > 0 {
				t.Errorf("size %d, session %d: %d blocks of %d", size, session, len(out), all)
			}
			if session == 1 {
				continue
			}
			for _, x := range out { // they come back in any order
				a.Free(x, k)
			}
			if again := drain(t, a, c, k); len(again) != len(out) {
				t.Errorf("size %d: %d of %d blocks after freeing", size, len(again), len(out))
			}
			b.crash() // nothing was written: all are free
		}
	}
}

// TestAllocOnFull: a blade that has nothing left is not looked at each time, and one that
// is none is no error.
func TestAllocOnFull(t *testing.T) {
	b := newBed(t, 2, 8, 0)
	s, c := b.open()
	a := b.allocator(s, c)
	for on, n := true, 0; on; n++ {
		x := must(a.AllocOn(c, 3, 1))(t)
		on = s.View().At(x, 0).Blade == 1
		if on && n > 8*int(testSegment/layout.Class(3).Size()) {
			t.Fatal("a blade has more blocks than room")
		}
	}
	if _, err := a.AllocOn(c, 3, 77); err != nil {
		t.Errorf("blade 77: %v", err)
	}
	if _, err := a.AllocOn(c, layout.NumClasses, 1); !errors.Is(err, memory.ErrTooLarge) {
		t.Errorf("no class: %v", err)
	}
}

func TestAllocOnDoesNotAllocate(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	var held [16]layout.Addr
	cycle := func() {
		for i := range held {
			held[i], _ = a.AllocOn(c, 2, rdma.BladeID(i%2))
		}
		for _, x := range held {
			a.Free(x, 2)
		}
		_ = a.Maintain(c)
	}
	for range 100 {
		cycle()
	}
	if n := testing.AllocsPerRun(1000, cycle); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAllocOn(b *testing.B) {
	bed := newBed(b, 2, 8, 1)
	s, c := bed.open()
	a := bed.allocator(s, c)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x, _ := a.AllocOn(c, 2, rdma.BladeID(i%2))
		a.Free(x, 2)
	}
}

// TestAllocOnLate: the first that a process hears of having been taken for dead is when it wants
// memory for blocks on a certain blade.
func TestAllocOnLate(t *testing.T) {
	const k = 20
	b := newSharedBed(t, 2, 12, 1)
	b.fabric.clock = new(int64)
	s, _ := b.join(1000)
	late, c := b.join(10)
	p := newProcess(t, b, late, c, k)
	must(p.a.AllocOn(c, k, 0))(t)
	check(t, s.Follow())
	*b.fabric.clock = 11
	must(s.TakeOver(11))(t)
	done := make(chan error, 1)
	go func() {
		for range 100 {
			if _, err := p.a.AllocOn(c, k, 0); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, rdma.ErrVerb) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for itself")
	}
	if late.Process() == 2 {
		t.Error("it has not heard of it: this test tests nothing")
	}
}
