package memory_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// checkExtents verifies that extents do not overlap each other or the tables.
func checkExtents(t *testing.T, extents []memory.Extent) {
	t.Helper()
	slices.SortFunc(extents, func(a, b memory.Extent) int { return int(int64(a.Addr) - int64(b.Addr)) })
	for i, x := range extents {
		if x.Addr.Offset() < memory.TableGranules(testSegment)*memory.Granule(testSegment) ||
			x.Addr.Offset()+x.Size > testSegment {
			t.Errorf("extent %+v leaves its segment", x)
		}
		if i > 0 && extents[i-1].Addr+layout.Addr(extents[i-1].Size) > x.Addr {
			t.Errorf("extents %+v and %+v overlap", extents[i-1], x)
		}
	}
}

// TestExtentsAgainstMap allocates and frees at random beside a map, reopening
// now and then.
func TestExtentsAgainstMap(t *testing.T) {
	raced.Skip(t)
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 4))
			b := newBed(t, 3, 6, int(seed%3))
			b.opts.Durable = seed%2 == 0
			s, c := b.open()
			live := map[layout.Addr]uint32{}
			for range 400 {
				switch r.IntN(20) {
				default:
					size := uint32(r.IntN(30_000))
					a, err := s.AllocExtent(c, size)
					if errors.Is(err, memory.ErrNoSpace) {
						continue
					}
					check(t, err)
					for i := range s.View().Copies(a) {
						if !isZero(read(t, c, s.View().At(a, i), int(max(size, 8)))) {
							t.Fatalf("copy %d of the extent at %v is not zero", i, a)
						}
					}
					write(t, s, c, a, bytes.Repeat([]byte{0xaa}, int(max(size&^7, 8))))
					live[a] = size
				case 0, 1, 2, 3, 4, 5, 6:
					for a, size := range live {
						check(t, s.FreeAt(a, size))
						if err := s.FreeAt(a, size); err == nil {
							t.Fatalf("%v is freed twice", a)
						}
						delete(live, a)
						break
					}
				case 7:
					check(t, s.Close(c))
					b.dropThreads()
					s, c = b.open()
				}
			}
			extents := s.Extents()
			checkExtents(t, extents)
			if len(extents) != len(live) {
				t.Errorf("%d extents, %d are live", len(extents), len(live))
			}
			for _, x := range extents {
				if size, ok := live[x.Addr]; !ok || x.Size < size ||
					x.Size >= max(size, 1)+memory.Granule(testSegment) {
					t.Errorf("extent %+v of %d bytes", x, size)
				}
			}
		})
	}
}

func TestExtentLimits(t *testing.T) {
	b := newBed(t, 1, 2, 0)
	s, c := b.open()
	if _, err := s.AllocExtent(c, s.MaxExtent()+1); !errors.Is(err, memory.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if _, err := s.AllocExtent(c, 1<<32-1); !errors.Is(err, memory.ErrTooLarge) {
		t.Errorf("far too large: %v", err)
	}
	a := must(s.AllocExtent(c, s.MaxExtent()))(t)
	z := must(s.AllocExtent(c, 0))(t)
	for _, x := range []struct {
		a layout.Addr
		n uint32
	}{
		{a, 1}, {a + 256, s.MaxExtent()}, {a + 1, s.MaxExtent()}, {0, 1}, {1 << 60, 1}, {layout.MakeAddr(77, 0), 1},
		{layout.MakeAddr(1, 0), 1}, {z, 1000}, {z, 1<<32 - 1},
	} {
		if err := s.FreeAt(x.a, x.n); err == nil {
			t.Errorf("%d bytes at %v are freed", x.n, x.a)
		}
	}
	check(t, s.FreeAt(a, s.MaxExtent()))
	check(t, s.FreeAt(z, 0))
	var b2 layout.Addr
	if b2 = must(s.AllocExtent(c, s.MaxExtent()))(t); b2.Offset() != a.Offset() {
		t.Errorf("the freed extent is not used again: %v", b2)
	}
}

// TestDamagedExtentTable: a damaged word is read from a backup; when all copies
// are, Open says where.
func TestDamagedExtentTable(t *testing.T) {
	b := newBed(t, 2, 4, 1)
	s, c := b.open()
	a := must(s.AllocExtent(c, 1000))(t)
	word := layout.MakeAddr(a.Segment(), a.Offset()/memory.Granule(testSegment)*8)
	at := []rdma.RemoteAddr{s.View().At(word, 0), s.View().At(word, 1)}
	good := read(t, c, at[0], 8)
	check(t, s.Close(c))
	for bit := range 64 {
		b.dropThreads()
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		b.poke(at[0].Blade, at[0].Off, bad)
		s, c := b.open()
		if x := s.Extents(); len(x) != 1 || x[0].Addr != a {
			t.Errorf("bit %d: extents %+v", bit, x)
		}
		check(t, s.LevelExtents(c)) // as the recovery of an open does
		for i := range at {
			if got := read(t, c, at[i], 8); !bytes.Equal(got, good) {
				t.Errorf("bit %d: copy %d has %x after they were made equal", bit, i, got)
			}
		}
		check(t, s.Close(c))
		b.poke(at[0].Blade, at[0].Off, bad)
		b.poke(at[1].Blade, at[1].Off, bad)
		_, err := memory.Open(b.thread().Plain(), b.fabric, b.cat, b.opts)
		var be *layout.BladeError
		if !errors.Is(err, layout.ErrDamaged) || !errors.As(err, &be) || be.Blade != at[0].Blade ||
			strings.Count(err.Error(), "the word") != 2 {
			t.Errorf("bit %d in both copies: %v", bit, err)
		}
		b.poke(at[0].Blade, at[0].Off, good)
		b.poke(at[1].Blade, at[1].Off, good)
	}
	// Words that are right in themselves, but not beside the others.
	unit := memory.Granule(testSegment)
	for name, x := range map[string]struct{ granule, n uint32 }{
		"in the table":  {0, 1},
		"in the extent": {a.Offset()/unit + 1, 1},
		"past the end":  {testSegment/unit - 1, 2},
		"of no length":  {testSegment/unit - 1, 0},
	} {
		b.dropThreads()
		p := binary.LittleEndian.AppendUint64(nil, memory.ExtentWord(layout.MakeAddr(a.Segment(), x.granule*unit), x.n))
		for i := range at {
			b.poke(at[i].Blade, at[i].Off-uint64(word.Offset())+uint64(8*x.granule), p)
		}
		if _, err := memory.Open(b.thread().Plain(), b.fabric, b.cat, b.opts); !errors.Is(err, layout.ErrDamaged) {
			t.Errorf("a word for an extent %s: %v", name, err)
		}
		for i := range at {
			b.poke(at[i].Blade, at[i].Off-uint64(word.Offset())+uint64(8*x.granule), make([]byte, 8))
		}
	}
}

// TestExtentWord pins the words on the blades.
func TestExtentWord(t *testing.T) {
	for _, x := range []struct {
		a    layout.Addr
		n    uint32
		want uint64
	}{
		{layout.MakeAddr(4, 0x2000), 1, 0x6e8f444d_00000001},
		{layout.MakeAddr(1<<21, 1<<25), 16383, 0x5e5902ca_00003fff},
	} {
		if got := memory.ExtentWord(x.a, x.n); got != x.want {
			t.Errorf("%d granules at %v: %#x", x.n, x.a, got)
		}
	}
}

// TestExtentVerbFails: an extent whose verbs failed is not lost for ever.
func TestExtentVerbFails(t *testing.T) {
	b := newBed(t, 1, 1, 0)
	s, c := b.open()
	first := must(s.AllocExtent(c, 1000))(t)
	b.fabric.stop = &stop{}
	if _, err := s.AllocExtent(c, 1000); err == nil {
		t.Fatal("allocated without verbs")
	}
	check(t, s.FreeAt(first, 1000))
	if _, err := s.AllocExtent(c, 1000); err == nil {
		t.Fatal("allocated without verbs")
	}
	b.fabric.stop = nil
	must(s.AllocExtent(c, s.MaxExtent()))(t)
	if n := len(s.Extents()); n != 1 {
		t.Errorf("%d extents", n)
	}
}

// TestFreesUnwound: a panic, of a function on the same thread that its caller gets over, ends the
// clearing of the words of freed extents anywhere. When the coordinator of the thread is gone they
// are found, and used again.
func TestFreesUnwound(t *testing.T) {
	for k, over := 0, false; !over; k++ {
		b := newBed(t, 2, 6, 1)
		s, c := b.open()
		mine := must(s.NewCoordinator())(t)
		th := b.thread()
		th.SetOwner(uint64(mine.ID))
		a := must(s.AllocExtent(c, 1000))(t)
		check(t, s.FreeAt(a, 1000))
		n := 0
		b.fabric.before = func(*rdma.WR) {
			if n++; n == k+1 {
				panic("unwound")
			}
		}
		func() {
			defer func() { over = recover() == nil }()
			check(t, s.SettleExtents(th.Plain()))
		}()
		b.fabric.before = nil
		check(t, must(s.Claim(memory.ClaimOptions{}, mine.ID))(t).Forget())
		for _, x := range s.DeadExtents() {
			must(s.FreeExtent(x))(t)
		}
		check(t, s.SettleExtents(c))
		again := false
		for range 2 { // the blades take turns
			again = must(s.AllocExtent(c, 1000))(t) == a || again
		}
		if !again {
			t.Fatalf("unwound at verb %d: the extent is lost", k)
		}
	}
}

// TestExtentVerbUncertain: an extent, of which a verb has failed that may still arrive, is not
// used again before the coordinator is gone whose verb it is.
func TestExtentVerbUncertain(t *testing.T) {
	b := newBed(t, 2, 6, 1)
	s, c := b.open()
	mine := must(s.NewCoordinator())(t)
	th := b.thread()
	th.SetOwner(uint64(mine.ID))
	used := map[layout.Addr]bool{}
	again := func(c *rdma.Coro) bool {
		return used[must(s.AllocExtent(c, 1000))(t)]
	}
	for range 2 { // a segment for each blade
		again(c)
	}
	// In the allocation, and while the word of one that was freed is cleared.
	for _, free := range []bool{false, true} {
		if free {
			a := must(s.AllocExtent(c, 1000))(t)
			check(t, s.FreeAt(a, 1000))
			used[a] = true
		}
		before := s.Extents()
		b.fabric.stop = &stop{status: rdma.StatusTimeout}
		if _, err := s.AllocExtent(th.Plain(), 1000); err == nil {
			t.Fatal("allocated without verbs")
		}
		b.fabric.stop = nil
		for _, x := range s.Extents() {
			if !slices.Contains(before, x) {
				used[x.Addr] = true
			}
		}
		for i := range 20 {
			if again(c) {
				t.Fatalf("freed before %v: the %d. extent is one to which a verb may be on its way", free, i)
			}
		}
	}
	if len(used) != 2 || len(s.DeadExtents()) != 0 {
		t.Fatalf("%v, of dead ones %v", used, s.DeadExtents())
	}
	check(t, must(s.Claim(memory.ClaimOptions{}, mine.ID))(t).Forget())
	dead := s.DeadExtents()
	for _, x := range dead {
		if !used[x.Addr] {
			t.Errorf("%v is that of a dead coordinator", x)
		}
		check(t, s.FreeAt(x.Addr, x.Size))
	}
	for range used {
		if !again(c) || len(dead) != 2 {
			t.Errorf("they are lost: %v", dead)
		}
	}
}

func TestConcurrentExtents(t *testing.T) {
	for _, delayed := range []bool{false, true} {
		b := newBed(t, 2, 8, 1)
		b.fabric.delayed = delayed
		s, _ := b.open()
		var mu sync.Mutex
		live := map[layout.Addr]bool{}
		var threads []*rdma.Thread
		for range 4 {
			threads = append(threads, b.thread())
		}
		b.fabric.Run(4, func(i int) {
			threads[i].Run(4, func(c *rdma.Coro) {
				for k := range 30 {
					a, err := s.AllocExtent(c, 3000)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if live[a] {
						t.Errorf("%v is handed out twice", a)
					}
					live[a] = true
					mu.Unlock()
					if k%3 > 0 {
						mu.Lock()
						delete(live, a)
						err := s.FreeAt(a, 3000)
						mu.Unlock()
						if err != nil {
							t.Error(err)
						}
					}
				}
			})
		})
		checkExtents(t, s.Extents())
		if n := len(s.Extents()); n != len(live) || n != 4*4*10 {
			t.Errorf("%d extents, %d are live", n, len(live))
		}
	}
}
