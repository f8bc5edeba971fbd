package memory_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// drain allocates until there is no space.
func drain(tb testing.TB, a *memory.Allocator, c *rdma.Coro, class layout.Class) []layout.Addr {
	tb.Helper()
	var out []layout.Addr
	for {
		x, err := a.Alloc(c, class)
		if errors.Is(err, memory.ErrNoSpace) {
			return out
		}
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, x)
	}
}

// checkBlocks verifies that blocks are distinct, aligned and within segments of
// their class.
func checkBlocks(tb testing.TB, s *memory.Space, blocks []layout.Addr, class layout.Class) {
	tb.Helper()
	l := s.Layout()
	seen := make(map[layout.Addr]bool, len(blocks))
	for _, a := range blocks {
		seg := l.Segments[a.Segment()]
		if seen[a] || seg.Kind != layout.KindBlocks || seg.Class != class || a.Offset()%class.Size() != 0 ||
			a.Offset()+class.Size() > l.SegmentSize {
			tb.Fatalf("block %v of class %d in %+v, seen before: %v", a, class, seg, seen[a])
		}
		seen[a] = true
	}
}

func TestAllocEveryClass(t *testing.T) {
	b := newBed(t, 2, 150, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	for class := layout.Class(0); int(class) < 256; class++ {
		x, err := a.Alloc(c, class)
		fits := class < layout.NumClasses && class.Size() <= testSegment
		if fits != (err == nil) || !fits && !errors.Is(err, memory.ErrTooLarge) {
			t.Errorf("class %d: %v, %v", class, x, err)
		}
		if err := a.Refill(c, class); fits != (err == nil) {
			t.Errorf("class %d: refill: %v", class, err)
		}
		if fits {
			checkBlocks(t, s, []layout.Addr{x}, class)
		}
		if class == 255 {
			break
		}
	}
	if free, unscanned := s.FreeBlocks(200); free != 0 || unscanned != 0 {
		t.Errorf("class 200 has %d free blocks, %d unscanned", free, unscanned)
	}
}

// TestFull: everything that was ever free can be allocated, exactly once, and
// then the error says how large the blades are and what to raise.
func TestFull(t *testing.T) {
	const segments = 5
	for _, size := range []uint32{64, 320, 1000, 40_000, testSegment} {
		b := newBed(t, 2, segments, 1)
		s, c := b.open()
		a := b.allocator(s, c)
		k := class(size)
		blocks := drain(t, a, c, k)
		checkBlocks(t, s, blocks, k)
		if want := segments * int(testSegment/k.Size()); len(blocks) != want {
			t.Errorf("%d blocks of %d, want %d", len(blocks), k.Size(), want)
		}
		_, err := a.Alloc(c, k)
		var full *memory.NoSpaceError
		if !errors.As(err, &full) || full.Need != testSegment || full.Copies != 2 || len(full.Free) != 2 ||
			full.Free[0] != 0 {
			t.Errorf("%v", err)
		}
		for _, want := range []string{
			fmt.Sprintf("blocks of %d bytes", k.Size()), "BladeSize",
			"needs 256 KiB on 2 of 2 blades", "blade 1: 0 bytes of 1344 KiB",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v lacks %q", err, want)
			}
		}
		check(t, a.Maintain(c)) // no error there
		for _, x := range blocks {
			a.Free(x, k)
		}
		if again := drain(t, a, c, k); len(again) != len(blocks) {
			t.Errorf("%d of %d blocks after freeing", len(again), len(blocks))
		}
	}
}

// TestPrimariesAlternate: a table that is no longer tiny lies evenly on all blades.
func TestPrimariesAlternate(t *testing.T) {
	b := newBed(t, 4, 12, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	const tiny = 16 * 64
	n := make([]int, 4)
	for i := range 4000 {
		x := must(a.Alloc(c, 1))(t)
		if i >= tiny {
			n[s.View().At(x, 0).Blade]++
		}
	}
	for blade, k := range n {
		if k < 600 || k > 900 {
			t.Errorf("blade %d has %d of %d primaries: %v", blade, k, 4000-tiny, n)
		}
	}
}

func TestMaintain(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	if !a.Low(0) {
		t.Error("an empty list is not low")
	}
	check(t, a.Refill(c, 0))
	check(t, a.Refill(c, 0)) // now there is a segment on each blade
	if a.Low(0) {
		t.Error("a full list is low")
	}
	var blocks []layout.Addr
	for !a.Low(0) {
		blocks = append(blocks, must(a.Alloc(c, 0))(t))
	}
	free, _ := s.FreeBlocks(0)
	check(t, a.Maintain(c))
	if after, _ := s.FreeBlocks(0); a.Low(0) || after >= free {
		t.Errorf("Maintain has not refilled: low %v, %d free blocks, then %d", a.Low(0), free, after)
	}
	for range 6 {
		blocks = append(blocks, must(a.Alloc(c, 0))(t))
	}
	for _, x := range blocks {
		a.Free(x, 0)
	}
	free, _ = s.FreeBlocks(0)
	check(t, a.Maintain(c))
	after, _ := s.FreeBlocks(0)
	check(t, a.Close(c))
	all, _ := s.FreeBlocks(0)
	if after < free || all-after > 5*maxChunk {
		t.Errorf("free blocks: %d, %d after Maintain, %d after Close", free, after, all)
	}
	if uint64(len(blocks)) > all {
		t.Errorf("%d blocks were allocated and given back, %d are free", len(blocks), all)
	}
}

const maxChunk = 64

// TestAllocatorsConserveBlocks: concurrent allocators, on threads with several
// coroutines, never share a block and lose none.
func TestAllocatorsConserveBlocks(t *testing.T) {
	for _, delayed := range []bool{false, true} {
		t.Run(fmt.Sprintf("delayed=%v", delayed), func(t *testing.T) {
			b := newBed(t, 3, 10, 1)
			b.fabric.delayed = delayed
			s, c := b.open()
			const workers = 4
			type worker struct {
				t *rdma.Thread
				a *memory.Allocator
			}
			var w []worker
			for range workers {
				th := b.thread()
				w = append(w, worker{th, b.allocator(s, th.Plain())})
			}
			classes := []layout.Class{0, 3, 9, 20}
			var mu sync.Mutex
			owner := map[layout.Addr]int{}
			b.fabric.Run(workers, func(i int) {
				w[i].t.Run(3, func(c *rdma.Coro) {
					r := rand.New(rand.NewPCG(uint64(i), uint64(c.ID())))
					held := map[layout.Addr]layout.Class{}
					for range 1500 {
						k := classes[r.IntN(len(classes))]
						if r.IntN(5) < 3 {
							alloc := w[i].a.Alloc
							if blade := r.IntN(6); blade < 3 {
								alloc = func(c *rdma.Coro, k layout.Class) (layout.Addr, error) {
									return w[i].a.AllocOn(c, k, rdma.BladeID(blade))
								}
							}
							x, err := alloc(c, k)
							if errors.Is(err, memory.ErrNoSpace) {
								continue
							}
							if err != nil {
								t.Error(err)
								return
							}
							mu.Lock()
							if o, taken := owner[x]; taken {
								t.Errorf("%v is handed out to %d and %d", x, o, i)
							}
							owner[x] = i
							mu.Unlock()
							held[x] = k
						} else {
							for x, k := range held {
								delete(held, x)
								mu.Lock()
								delete(owner, x)
								mu.Unlock()
								w[i].a.Free(x, k)
								break
							}
						}
						if r.IntN(10) == 0 {
							if err := w[i].a.Maintain(c); err != nil {
								t.Error(err)
							}
						}
						if r.IntN(20) == 0 {
							c.Yield()
						}
					}
					for x, k := range held {
						mu.Lock()
						delete(owner, x)
						mu.Unlock()
						w[i].a.Free(x, k)
					}
				})
				if err := w[i].a.Close(w[i].t.Plain()); err != nil {
					t.Error(err)
				}
			})
			// All blocks of all segments are free again.
			l := s.Layout()
			want := map[layout.Class]uint64{}
			for _, seg := range l.Segments {
				if seg.Kind == layout.KindBlocks {
					want[seg.Class] += uint64(testSegment / seg.Class.Size())
				}
			}
			for _, k := range classes {
				if free, _ := s.FreeBlocks(k); free != want[k] {
					t.Errorf("class %d: %d of %d blocks are free", k, free, want[k])
				}
			}
			a := b.allocator(s, c)
			for _, k := range classes {
				checkBlocks(t, s, drain(t, a, c, k), k)
			}
		})
	}
}

func TestAllocDoesNotAllocate(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	var held [16]layout.Addr
	cycle := func() {
		for i := range held {
			held[i], _ = a.Alloc(c, 2)
		}
		for _, x := range held {
			a.Free(x, 2)
		}
		_ = a.Maintain(c)
	}
	cycle()
	if n := testing.AllocsPerRun(1000, cycle); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAllocatorOfAnotherFabric(t *testing.T) {
	s, _ := newBed(t, 1, 2, 0).open()
	if _, err := s.NewAllocator(newBed(t, 1, 2, 0).thread()); err == nil {
		t.Error("a thread of another fabric is accepted")
	}
}

func BenchmarkAllocFree(b *testing.B) {
	bed := newBed(b, 2, 8, 1)
	s, c := bed.open()
	a := bed.allocator(s, c)
	b.ReportAllocs()
	for b.Loop() {
		x, _ := a.Alloc(c, 2)
		a.Free(x, 2)
	}
}

// BenchmarkAllocFresh is the cost of a block when none is ever given back: a
// chunk from the space for every 64.
func BenchmarkAllocFresh(b *testing.B) {
	bed := newBed(b, 2, 4000, 1)
	s, c := bed.open()
	a := bed.allocator(s, c)
	var all []layout.Addr
	b.ReportAllocs()
	for b.Loop() {
		x, err := a.Alloc(c, 0)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, x)
		if len(all) == 1<<20 {
			b.StopTimer()
			for _, x := range all {
				a.Free(x, 0)
			}
			all = all[:0]
			b.StartTimer()
		}
	}
}

// TestNoBacking: blades whose backing store is full say so, and go on when it is not.
func TestNoBacking(t *testing.T) {
	b := newBed(t, 2, 4, 1)
	b.fabric.full = true
	b.fabric.before = func(w *rdma.WR) { t.Errorf("%v of a region that has no room for its header", w.Op) }
	if _, err := memory.Open(b.thread().Plain(), b.fabric, b.cat, b.opts); !errors.Is(err, rdma.ErrNoMemory) ||
		!strings.Contains(err.Error(), "out of memory") {
		t.Errorf("Open: %v", err)
	}
	b.fabric.full, b.fabric.before = false, nil
	s, c := b.open()
	a := b.allocator(s, c)
	b.fabric.full = true
	before := s.Layout()
	for name, err := range map[string]error{
		"Alloc":          errOf(a.Alloc(c, 3)),
		"AllocExtent":    errOf(s.AllocExtent(c, 100)),
		"NewCoordinator": errOf(s.NewCoordinator()),
	} {
		if !errors.Is(err, memory.ErrNoSpace) || !errors.Is(err, rdma.ErrNoMemory) ||
			!strings.Contains(err.Error(), "cannot grow") {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(s.CreateTable("t", nil))(t)
	if after := s.Layout(); len(after.Segments) != len(before.Segments) {
		t.Errorf("%d segments", len(after.Segments))
	}
	b.fabric.full = false
	must(a.Alloc(c, 3))(t)
	must(s.AllocExtent(c, 100))(t)
	must(s.NewCoordinator())(t)
}

// TestAllocLarger: where there is no room for a block of a size, the next larger one that is free
// is to be had; and what another allocator has in stock.
func TestAllocLarger(t *testing.T) {
	b := newBed(t, 2, 3, 1)
	s, c := b.open()
	a, other := b.allocator(s, c), b.allocator(s, b.thread().Plain())
	kept := must(a.Alloc(c, 30))(t)
	stocked := must(other.Alloc(c, 25))(t) // and what is left of a chunk
	full := drain(t, a, c, 20)
	checkBlocks(t, s, full, 20)
	seen := map[layout.Addr]bool{kept: true, stocked: true}
	last := layout.Class(20)
	n := map[layout.Class]int{}
	for {
		x, k, err := a.AllocLarger(c, 20)
		if errors.Is(err, memory.ErrNoSpace) {
			break
		}
		check(t, err)
		if k < last {
			t.Errorf("a block of class %d behind one of class %d", k, last)
		}
		if last = k; seen[x] {
			t.Fatalf("block %v twice", x)
		}
		checkBlocks(t, s, []layout.Addr{x}, k)
		seen[x] = true
		n[k]++
	}
	for _, k := range []layout.Class{25, 30} {
		if want := int(testSegment/k.Size()) - 1; n[k] < want-1 || n[k] > want || len(n) != 2 {
			t.Errorf("%d blocks of class %d, of %d: %v", n[k], k, want, n)
		}
	}
	a.Free(full[0], 20)
	if x, k, err := a.AllocLarger(c, 19); x != full[0] || k != 20 || err != nil {
		t.Errorf("%v of class %d: %v", x, k, err)
	}
	if _, _, err := a.AllocLarger(c, layout.NumClasses-1); !errors.Is(err, memory.ErrNoSpace) {
		t.Errorf("larger than all: %v", err)
	}
}

// TestStockOfOthers: an allocator that finds no room takes from what others have in stock, and not
// from what the dead had, which a sweep finds.
func TestStockOfOthers(t *testing.T) {
	for _, dies := range []bool{false, true} {
		b := newBed(t, 2, 2, 1)
		s, c := b.open()
		a, other := b.allocator(s, c), b.allocator(s, b.thread().Plain())
		id := must(s.NewCoordinator())(t).ID
		other.Serve(id)
		k := class(1000)
		mine := drain(t, a, c, k)
		for _, x := range mine {
			other.Hold(x)
			a.Used(x)
		}
		for _, x := range mine[:40] {
			other.Free(x, k)
		}
		want := 40
		if dies {
			must(s.Claim(memory.ClaimOptions{}, id))(t)
			check(t, errors.Join(c.Thread().Reconnect(0), c.Thread().Reconnect(1)))
			want = 0
		}
		got := drain(t, a, c, k)
		checkBlocks(t, s, got, k)
		if len(got) != want {
			t.Errorf("dead %v: %d blocks of %d", dies, len(got), want)
		}
		if x, err := other.Alloc(b.thread().Plain(), k); !dies && !errors.Is(err, memory.ErrNoSpace) {
			t.Errorf("%v, %v: it was taken", x, err)
		}
	}
}

// TestFewSegments: each size of which there are a few blocks takes one segment.
func TestFewSegments(t *testing.T) {
	b := newBed(t, 2, 40, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	before := len(s.Layout().Segments)
	for range 2 {
		for k := range layout.Class(30) {
			must(a.Alloc(c, k))(t)
			check(t, a.Maintain(c))
		}
	}
	if n := len(s.Layout().Segments) - before; n != 30 {
		t.Errorf("%d segments for 30 classes", n)
	}
}

// TestSpreadWhileRoomy: blocks of a class lie on all blades from the third chunk on, as long as
// there is plenty of room; else when enough of the first segment is in use.
func TestSpreadWhileRoomy(t *testing.T) {
	for _, segments := range []int{64, 4} {
		b := newBed(t, 2, segments, 1)
		s, c := b.open()
		a := b.allocator(s, c)
		on := map[rdma.BladeID]int{}
		for range 192 { // of 64 bytes, which are taken 64 at a time
			x := must(a.Alloc(c, 0))(t)
			on[s.View().At(x, 0).Blade]++
		}
		want := 2
		if segments == 4 {
			want = 1
		}
		if len(on) != want {
			t.Errorf("room for %d segments: blocks have their primaries on %v", segments, on)
		}
	}
}

// TestFullDisks: the disks of some blades are full, also behind segments that are open. What is
// allocated goes to the others until those are full as well.
func TestFullDisks(t *testing.T) {
	for _, x := range []struct {
		blades, f int
		size      uint32 // of segments
		full      []rdma.BladeID
	}{
		{4, 1, testSegment, []rdma.BladeID{0, 1}},
		{4, 2, testSegment, []rdma.BladeID{0}},
		// as many segments as there are blades are open, and have memory in part
		{6, 2, 32 * testSegment, []rdma.BladeID{1, 3, 4}},
	} {
		t.Run(fmt.Sprintf("%d blades, f=%d, full: %d", x.blades, x.f, x.full), func(t *testing.T) {
			b := newBed(t, x.blades, 8*int(x.size/testSegment), x.f)
			b.opts.SegmentSize = x.size
			s, c := b.open()
			a := b.allocator(s, c)
			for range 800 {
				must(a.Alloc(c, 9))(t)
			}
			must(s.AllocExtent(c, 100))(t)
			b.fabric.fullOn = x.full
			before := s.Room()
			for range 10 {
				must(s.AllocExtent(c, 1000))(t)
			}
			must(a.Alloc(c, 3))(t)
			n := len(drain(t, a, c, 9))
			room := 0 // blades that have places left
			for i, r := range s.Room() {
				full := slices.Contains(x.full, rdma.BladeID(i))
				if full && r.Free != before[i].Free || !full && r.Free > uint64(x.size) {
					t.Errorf("blade %d has %d bytes left of %d, after %d blocks", i, r.Free, before[i].Free, n)
				}
				if r.Free > 0 {
					room++
				}
			}
			_, err := a.Alloc(c, 9)
			var none *memory.NoSpaceError
			if !errors.As(err, &none) || room > x.f && (!slices.Contains(x.full, none.Blade) ||
				!errors.Is(err, rdma.ErrNoMemory)) {
				t.Errorf("when all is full: %v", err)
			}
			b.fabric.fullOn = nil
			if room > x.f { // again
				must(a.Alloc(c, 9))(t)
			}
		})
	}
}
