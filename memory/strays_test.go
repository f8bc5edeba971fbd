package memory_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// blanks lists all blocks of a class as a walk would that finds none in use: what is in
// use is the caller's to leave out.
func blanks(s *memory.Space, k layout.Class, used ...layout.Addr) (out []memory.FreeBlock) {
	l := s.Layout()
	for id := range l.Segments {
		if g := &l.Segments[id]; g.Kind != layout.KindBlocks || g.Class != k {
			continue
		}
		for i := range l.SegmentSize / k.Size() {
			if a := layout.MakeAddr(layout.SegmentID(id), i*k.Size()); !slices.Contains(used, a) {
				out = append(out, memory.FreeBlock{Addr: a})
			}
		}
	}
	return out
}

// all says yes to every block.
func all(x *memory.Strays) []bool {
	ok := make([]bool, len(x.Blocks))
	for i := range ok {
		ok[i] = true
	}
	return ok
}

// conserved demands that every block of a class that is not in use is there once.
func conserved(t *testing.T, s *memory.Space, k layout.Class, used ...layout.Addr) {
	t.Helper()
	nobodys, twice := s.Unowned(blanks(s, k, used...))
	if len(nobodys) > 0 || len(twice) > 0 {
		t.Errorf("%d blocks are nobody's, %d are there twice: %v %v", len(nobodys), len(twice), nobodys, twice)
	}
}

// session is an allocator of a coordinator, with some blocks.
func (b *bed) session(s *memory.Space, k layout.Class) (*memory.Allocator, uint32) {
	b.tb.Helper()
	c := b.thread().Plain()
	a := b.allocator(s, c)
	id := must(s.NewCoordinator())(b.tb).ID
	a.Serve(id)
	check(b.tb, a.Refill(c, k))
	return a, id
}

// die has a coordinator declared dead, and recovered.
func die(t *testing.T, s *memory.Space, id uint32) {
	t.Helper()
	check(t, must(s.Claim(memory.ClaimOptions{}, id))(t).Forget())
}

// TestStrays: what a dead coordinator had comes back, all of it and nothing else, and
// once; and the dead one can do nothing with it when it wakes up.
func TestStrays(t *testing.T) {
	const k = layout.Class(2)
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	live, _ := b.session(s, k)
	dead, id := b.session(s, k)
	mine := must(live.Alloc(c, k))(t) // on its way
	used := must(live.Alloc(c, k))(t)
	live.Used(used)
	freed := must(live.Alloc(c, k))(t)
	live.Used(freed)
	live.Hold(freed) // on its way to the list
	late := must(dead.Alloc(c, k))(t)

	if x := s.ClaimStrays(blanks(s, k, used)); len(x.Blocks) != 0 {
		t.Fatalf("while everybody is alive %d blocks are nobody's", len(x.Blocks))
	}
	claim := must(s.Claim(memory.ClaimOptions{}, id))(t)
	if x := s.ClaimStrays(blanks(s, k, used)); x != nil {
		t.Fatalf("while transactions are undecided %d blocks are nobody's", len(x.Blocks))
	}
	if _, err := dead.Alloc(c, layout.Class(4)); !errors.Is(err, memory.ErrNoCoordinator) {
		t.Errorf("one that was declared dead is given blocks: %v", err)
	}
	check(t, claim.Forget())

	first := s.ClaimStrays(blanks(s, k, used))
	if len(first.Blocks) == 0 || !slices.Contains(first.Blocks, memory.FreeBlock{Addr: late}) {
		t.Fatalf("what the dead had taken is not among %v", first.Blocks)
	}
	second := s.ClaimStrays(blanks(s, k, used))
	if n, void := second.Return(all(second)); void || n != len(second.Blocks) {
		t.Errorf("%d of %d strays were returned: %v", n, len(second.Blocks), void)
	}
	if n, void := first.Return(all(first)); !void {
		t.Errorf("%d strays were returned twice", n)
	}
	conserved(t, s, k, used)

	// The dead wakes up.
	if a, err := dead.Alloc(c, k); !errors.Is(err, memory.ErrNoCoordinator) {
		t.Errorf("one that was forgotten gets %v: %v", a, err)
	}
	if dead.Holds(late) {
		t.Error("one that was forgotten holds a block")
	}
	dead.Free(late, k)
	conserved(t, s, k, used)
	dead.Serve(must(s.NewCoordinator())(t).ID)
	again := must(dead.Alloc(c, k))(t)
	conserved(t, s, k, used)
	dead.Used(again)
	conserved(t, s, k, used, again)
	live.Free(freed, k)
	live.Free(mine, k)
	conserved(t, s, k, used, again)
	check(t, dead.Close(c))
	check(t, live.Close(c))
	conserved(t, s, k, used, again)
}

// TestAbandoned: what a session gives up that goes on as another coordinator is found by
// a sweep, which is due then.
func TestAbandoned(t *testing.T) {
	const k = layout.Class(2)
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	a, id := b.session(s, k)
	x := must(a.Alloc(c, k))(t)
	die(t, s, id)
	generation, _ := s.Unswept()
	check(t, s.Swept(generation))
	a.Serve(must(s.NewCoordinator())(t).ID)
	if !a.Holds(x) {
		t.Error("nobody has taken the block, and it is not there any more")
	}
	conserved(t, s, k)
	check(t, a.Abandon())
	if _, due := s.Unswept(); !due {
		t.Error("no sweep is due")
	}
	strays := s.ClaimStrays(blanks(s, k))
	if !slices.Equal(strays.Blocks, []memory.FreeBlock{{Addr: x}}) {
		t.Errorf("%v, not %v, is nobody's", strays.Blocks, x)
	}
	strays.Return([]bool{false}) // it has changed
	if strays = s.ClaimStrays(blanks(s, k)); len(strays.Blocks) != 1 {
		t.Errorf("%v", strays.Blocks)
	}
	strays.Return([]bool{true})
	conserved(t, s, k)
}

// TestResolution: one at a time resolves a lock, those of coordinators that are gone do
// not count, and what they have freed is not given back by them.
func TestResolution(t *testing.T) {
	const k = layout.Class(2)
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	a, id := b.session(s, k)
	_, other := b.session(s, k)
	x := must(a.Alloc(c, k))(t)
	a.Used(x)
	r := s.BeginResolve(x, id)
	if r == nil || s.BeginResolve(x, other) != nil {
		t.Fatal("two resolve one lock")
	}
	if strays := s.ClaimStrays(blanks(s, k)); len(strays.Blocks) != 0 {
		t.Errorf("a block whose lock is being resolved is nobody's: %v", strays.Blocks)
	}
	die(t, s, id)
	r2 := s.BeginResolve(x, other)
	if r2 == nil {
		t.Fatal("the lock is that of one who is gone")
	}
	r.End(true, id)
	r2.End(true, id)
	strays := s.ClaimStrays(blanks(s, k))
	strays.Return(all(strays))
	conserved(t, s, k)
}

// TestScanOfTheDead: a part of a segment that the dead was looking through is looked
// through by others.
func TestScanOfTheDead(t *testing.T) {
	const k = layout.Class(2)
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	first := b.allocator(s, c)
	for range 300 {
		must(first.Alloc(c, k))(t)
	}
	check(t, s.Close(c))

	s, c = b.open()
	dead := b.allocator(s, c)
	id := must(s.NewCoordinator())(t).ID
	dead.Serve(id)
	memory.BeginScan(s, dead, k)
	conserved(t, s, k)
	die(t, s, id)
	if nobodys, _ := s.Unowned(blanks(s, k)); len(nobodys) == 0 {
		t.Fatal("the dead was looking through nothing")
	}
	s.ClaimStrays(nil)
	conserved(t, s, k)
	checkBlocks(t, s, drain(t, b.allocator(s, c), c, k), k)
}

// TestStraysBesideAllocators: while sessions take blocks, use and free them, and die at any
// moment, sweeps find what the dead had. No block is ever anybody's twice, and when all is
// over none is missing. What would be headers on the blades is a map.
func TestStraysBesideAllocators(t *testing.T) {
	const k, workers = layout.Class(2), 4
	b := newBed(t, 3, 10, 1)
	s, _ := b.open()
	var mu, deaths sync.Mutex
	version := map[layout.Addr]uint64{} // of blocks that were used; odd: it is in use
	bump := func(a layout.Addr, odd uint64) {
		mu.Lock()
		defer mu.Unlock()
		if version[a]&1 == odd {
			t.Errorf("%v has two owners", a)
		}
		version[a]++
	}
	free := func() (out []memory.FreeBlock) {
		mu.Lock()
		defer mu.Unlock()
		for _, f := range blanks(s, k) {
			if f.Version = version[f.Addr]; f.Version&1 == 0 {
				out = append(out, f)
			}
		}
		return out
	}
	var threads []*rdma.Thread
	for range workers {
		threads = append(threads, b.thread())
	}
	var last sync.WaitGroup
	over := make(chan struct{})
	swept := 0
	last.Go(func() {
		for done := false; !done; {
			select {
			case <-over:
				done = true
			default:
			}
			x := s.ClaimStrays(free())
			if x == nil {
				continue
			}
			ok := make([]bool, len(x.Blocks))
			mu.Lock()
			for i, f := range x.Blocks {
				ok[i] = version[f.Addr] == f.Version
			}
			mu.Unlock()
			n, _ := x.Return(ok)
			swept += n
		}
	})
	b.fabric.Run(workers, func(i int) {
		c := threads[i].Plain()
		r := rand.New(rand.NewPCG(uint64(i), 11))
		a := b.allocator(s, c)
		var id uint32
		join := func() {
			co, err := s.NewCoordinator()
			if err != nil {
				t.Error(err)
			}
			id = co.ID
			a.Serve(id)
		}
		join()
		var used []layout.Addr
		for range 6000 {
			x, err := a.Alloc(c, k)
			if err != nil {
				t.Error(err)
				return
			}
			switch r.IntN(8) {
			case 0: // it is not used after all
				a.Free(x, k)
			default:
				bump(x, 1)
				a.Used(x)
				used = append(used, x)
			}
			if n := len(used); n > 100 || n > 0 && r.IntN(3) == 0 {
				x, used = used[0], used[1:]
				a.Hold(x)
				bump(x, 0)
				a.Free(x, k)
			}
			if r.IntN(10) == 0 {
				_ = a.Maintain(c)
			}
			if r.IntN(200) == 0 { // with a block on its way
				if _, err := a.Alloc(c, k); err != nil {
					t.Error(err)
				}
				deaths.Lock()
				claim, err := s.Claim(memory.ClaimOptions{}, id)
				if err == nil {
					err = claim.Forget()
				}
				deaths.Unlock()
				if err != nil {
					t.Error(err)
				}
				join()
				if err := a.Abandon(); err != nil {
					t.Error(err)
				}
			}
		}
		for _, x := range used {
			a.Hold(x)
			bump(x, 0)
			a.Free(x, k)
		}
		if err := a.Close(c); err != nil {
			t.Error(err)
		}
	})
	close(over)
	last.Wait()
	if x := s.ClaimStrays(free()); x != nil {
		n, _ := x.Return(all(x))
		swept += n
	}
	if nobodys, twice := s.Unowned(free()); len(nobodys) > 0 || len(twice) > 0 {
		t.Errorf("%d blocks are nobody's, %d are there twice", len(nobodys), len(twice))
	}
	if swept == 0 {
		t.Error("no sweep has found anything")
	}
}

// TestAbandonWithoutCatalog: what an allocator has on its way is given up when the catalog does not
// say that a sweep is due for it. It is asked again, and says so.
func TestAbandonWithoutCatalog(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	id := must(s.NewCoordinator())(t).ID
	a := must(s.NewAllocator(c.Thread()))(t)
	a.Serve(id)
	must(a.Alloc(c, 0))(t)
	b.cat.fail = true
	if err := a.Abandon(); err == nil {
		t.Fatal("the catalog has failed, and nobody is told")
	}
	b.cat.fail = false
	check(t, a.Abandon())
	if _, due := s.Unswept(); !due {
		t.Error("no sweep is due that would find the block")
	}
}
