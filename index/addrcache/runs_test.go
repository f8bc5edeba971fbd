package addrcache_test

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"testing"

	"txnode/index/addrcache"
	"txnode/internal/raced"
	"txnode/memory/layout"
)

// inOrder is where key number k lies when keys of two tables were inserted in turn.
func inOrder(table uint16, k uint64) layout.Addr {
	block := 2*k + uint64(table)
	return layout.MakeAddr(layout.SegmentID(1+block>>20), uint32(block&(1<<20-1))*64)
}

func ExampleRuns() {
	r := addrcache.NewRuns(1 << 20)
	for key := range uint64(5) {
		r.Store(1, key, layout.MakeAddr(3, uint32(key)*192), 0)
	}
	fmt.Println(r.Lookup(1, 4))
	fmt.Println(r.Lookup(1, 5))
	// Output:
	// seg 3 +0x300 0 true
	// seg 0 +0x0 0 false
}

// TestRunsInOrder: of keys that were inserted in order nearly all are found, in few
// bytes, whatever their byte order and wherever they begin.
func TestRunsInOrder(t *testing.T) {
	raced.Skip(t)
	const n, limit = 300_000, 64 << 20
	for _, c := range []struct {
		name string
		key  func(k uint64) uint64
	}{
		{"little-endian", func(k uint64) uint64 { return k }},
		{"big-endian", bits.ReverseBytes64},
		{"from the middle", func(k uint64) uint64 { return 1<<40 + 7 + k }},
		{"downwards", func(k uint64) uint64 { return n - k }},
		{"every second", func(k uint64) uint64 { return 2 * k }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := addrcache.NewRuns(limit)
			for k := range uint64(n) {
				for table := range uint16(2) {
					r.Store(table, c.key(k), inOrder(table, k), 0)
				}
			}
			found := 0
			for k := range uint64(n) {
				for table := range uint16(2) {
					a, class, ok := r.Lookup(table, c.key(k))
					if ok && (a != inOrder(table, k) || class != 0) {
						t.Fatalf("key %d of table %d is at %v, found at %v", k, table, inOrder(table, k), a)
					}
					if ok {
						found++
					}
				}
			}
			if found < 2*n*9/10 {
				t.Errorf("%d of %d found", found, 2*n)
			}
			if _, _, ok := r.Lookup(2, c.key(5)); ok {
				t.Error("found a key of another table")
			}
			if r.Bytes() > limit/8 {
				t.Errorf("%d bytes of %d", r.Bytes(), limit/8)
			}
		})
	}
}

// TestRunsAgainstMap: what is found is what was stored last and not dropped.
func TestRunsAgainstMap(t *testing.T) {
	raced.Skip(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, keys := range []uint64{100, 5000, 200_000} {
		r := addrcache.NewRuns(1 << 20)
		truth := map[uint64]layout.Addr{}
		found, kept := 0, 0
		for step := range 400_000 {
			k := rng.Uint64N(keys)
			switch rng.IntN(16) {
			case 0: // moves elsewhere
				truth[k] = addr(uint64(step))
				r.Store(0, k, truth[k], class(k))
			case 1:
				r.Drop(0, k, truth[k])
				delete(truth, k)
			default: // a few neighbours where they belong
				for j := k; j < k+8; j++ {
					truth[j] = inOrder(0, j)
					if r.Store(0, j, truth[j], class(0)) {
						kept++
						if a, _, ok := r.Lookup(0, j); !ok || a != truth[j] {
							t.Fatalf("step %d: key %d was kept at %v, found %v %v", step, j, truth[j], a, ok)
						}
					}
				}
			}
			k = rng.Uint64N(keys)
			if a, _, ok := r.Lookup(0, k); ok {
				found++
				if want, known := truth[k]; !known || a != want {
					t.Fatalf("step %d: key %d is at %v %v, found at %v", step, k, want, known, a)
				}
			}
		}
		if found < 1000 || kept < 1000 {
			t.Errorf("of %d keys only %d were found and %d kept: nothing was tested", keys, found, kept)
		}
	}
}

// TestRunsScattered: keys that lie all over are left to the cache, and do not drive
// those of other tables out.
func TestRunsScattered(t *testing.T) {
	r := addrcache.NewRuns(8 << 20)
	for k := range uint64(20_000) {
		r.Store(1, k, inOrder(1, k), 0)
	}
	kept := 0
	for k := range uint64(1 << 20) {
		if r.Store(2, k, addr(k), 0) {
			kept++
		}
	}
	if kept > 100 {
		t.Errorf("%d scattered keys kept", kept)
	}
	found := 0
	for k := range uint64(20_000) {
		if _, _, ok := r.Lookup(1, k); ok {
			found++
		}
	}
	if found < 18_000 {
		t.Errorf("%d of 20,000 keys in order found", found)
	}
	for k := range uint64(20_000) { // in order from now on
		r.Store(2, k, inOrder(2, k), 0)
		r.Store(2, k, inOrder(2, k), 0)
	}
	if a, _, ok := r.Lookup(2, 19_999); !ok || a != inOrder(2, 19_999) {
		t.Errorf("keys that have come to lie in order are not found: %v %v", a, ok)
	}
}

func TestRunsOff(t *testing.T) {
	r := addrcache.NewRuns(16 << 10)
	for k := range uint64(100) {
		if r.Store(0, k, inOrder(0, k), 0) {
			t.Fatal("stored, though there is no room")
		}
	}
	r = addrcache.NewRuns(1 << 20)
	for k := range uint64(100) {
		r.Store(0, k, inOrder(0, k), 0)
	}
	if r.Store(0, 7, 0, 0) || r.Store(0, 7, 65, 0) || r.Store(0, 7, 1<<48, 0) || r.Store(0, 7, 64, 64) {
		t.Fatal("an impossible block was stored")
	}
	if !r.Prefetch(0, 7) || r.Prefetch(1, 7) {
		t.Fatal("only table 0 has runs")
	}
}

// TestRunsConcurrent: whatever several clients leave, an answer is an address and a class.
func TestRunsConcurrent(t *testing.T) {
	r := addrcache.NewRuns(4 << 20)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range 30_000 {
				k := rng.Uint64N(50_000)
				switch rng.IntN(20) {
				case 0:
					r.Store(0, k, addr(k+uint64(g)), class(k))
				case 1:
					r.Drop(0, k, inOrder(0, k))
				default:
					r.Store(0, k, inOrder(0, k), 0)
				}
				if a, class, ok := r.Lookup(0, k); ok && (uint64(a)%layout.BlockAlign != 0 ||
					uint64(a)>>layout.AddrBits != 0 || class >= layout.NumClasses) {
					t.Errorf("found %#x, class %d", uint64(a), class)
				}
			}
		})
	}
	wg.Wait()
	for k := range uint64(50_000) {
		r.Store(0, k, inOrder(0, k), 0)
		if a, _, ok := r.Lookup(0, k); ok && a != inOrder(0, k) {
			r.Drop(0, k, a)
			if b, _, ok := r.Lookup(0, k); ok && a == b {
				t.Fatalf("%v is found for key %d after it was dropped", a, k)
			}
		}
	}
}

func TestRunsAllocNothing(t *testing.T) {
	r := addrcache.NewRuns(1 << 20)
	k := uint64(0)
	r.Store(0, k, inOrder(0, k), 0)
	if n := testing.AllocsPerRun(1000, func() {
		k++
		r.Store(0, k, inOrder(0, k), 0)
		r.Prefetch(0, k)
		r.Lookup(0, k)
		r.Drop(0, k-1, inOrder(0, k-1))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRunsLookup(b *testing.B) {
	for _, n := range []uint64{4000, 10_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := addrcache.NewRuns(512 << 20)
			for k := range n {
				r.Store(0, k, inOrder(0, k), 0)
			}
			rng, sum := rand.New(rand.NewPCG(1, 1)), layout.Addr(0)
			var key [8]byte
			for b.Loop() {
				binary.LittleEndian.PutUint64(key[:], rng.Uint64N(n))
				a, _, _ := r.Lookup(0, binary.LittleEndian.Uint64(key[:]))
				sum += a
			}
		})
	}
}
