package log_test

import (
	"testing"

	"pgregory.net/rapid"

	"txnode/log"
)

// held is a reservation of a test.
type held struct {
	off   uint32
	n     int
	token log.Token
}

// TestRing: reservations lie within the area, on lines of their own, and never
// overlap; a failed one succeeds at the latest when everything was released.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := uint32(64 << rapid.IntRange(0, 8).Draw(t, "size"))
		most := size << rapid.IntRange(0, 3).Draw(t, "doublings")
		r := log.NewRing(size, most)
		if r.Max() != int(most) {
			t.Fatalf("Max is %d of %d", r.Max(), most)
		}
		var out []held
		reserve := func(n int) bool {
			off, token, ok := r.Reserve(n)
			if !ok {
				return false
			}
			if off%64 != 0 || int(off)+n > int(size) {
				t.Fatalf("%d bytes at %d of %d", n, off, size)
			}
			for _, h := range out {
				if int(off) < int(h.off)+(h.n+63)&^63 && int(h.off) < int(off)+n {
					t.Fatalf("%d bytes at %d, while %d at %d are in use", n, off, h.n, h.off)
				}
			}
			out = append(out, held{off, n, token})
			return true
		}
		release := func(i int) {
			r.Release(out[i].token)
			out = append(out[:i], out[i+1:]...)
		}
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				n := rapid.IntRange(1, int(size)).Draw(t, "n")
				if !reserve(n) && len(out) == 0 {
					t.Fatalf("%d of %d bytes are refused, and nothing is in use", n, size)
				}
			},
			"reserve little": func(t *rapid.T) {
				if !reserve(rapid.IntRange(1, min(128, int(size))).Draw(t, "n")) && len(out) == 0 {
					t.Fatal("refused, and nothing is in use")
				}
			},
			"release": func(t *rapid.T) {
				if len(out) > 0 {
					release(rapid.IntRange(0, len(out)-1).Draw(t, "i"))
				}
			},
			"grow": func(t *rapid.T) {
				if r.Full() != (size == most) || r.Size() != int(size) {
					t.Fatalf("full %v, %d bytes; want %d of %d", r.Full(), r.Size(), size, most)
				}
				size = min(2*size, most)
				r.Grow(size)
			},
			"wait": func(t *rapid.T) {
				// What a transaction does that finds no room: the others come to rest.
				n := rapid.IntRange(1, int(size)).Draw(t, "n")
				for len(out) > 0 && !reserve(n) {
					release(rapid.IntRange(0, len(out)-1).Draw(t, "i"))
				}
				if len(out) == 0 && !reserve(n) {
					t.Fatalf("%d of %d bytes are refused, and nothing is in use", n, size)
				}
			},
		})
		for len(out) > 0 {
			release(0)
		}
		if r.Pending() != 0 {
			t.Fatalf("%d reservations are remembered", r.Pending())
		}
		if !reserve(int(size)) {
			t.Fatal("not everything has come back")
		}
	})
}

func TestRingRefuses(t *testing.T) {
	r := log.NewRing(256, 256)
	if _, _, ok := r.Reserve(257); ok {
		t.Error("more than there is")
	}
	off, a, _ := r.Reserve(65)
	if off != 0 {
		t.Errorf("the first one is at %d", off)
	}
	off, b, _ := r.Reserve(64)
	if off != 128 {
		t.Errorf("the second one is at %d", off)
	}
	if _, _, ok := r.Reserve(65); ok {
		t.Error("128 bytes are not free")
	}
	// The one in front comes free, but not the one that the record would end in.
	r.Release(a)
	if off, _, ok := r.Reserve(128); !ok || off != 0 {
		t.Errorf("128 bytes at the beginning: %d, %v", off, ok)
	}
	r.Release(b)
	if off, _, ok := r.Reserve(64); !ok || off != 128 {
		t.Errorf("then %d, %v", off, ok)
	}
}

// TestRingStaysWarm: as long as transactions come one at a time, they use the
// same lines.
func TestRingStaysWarm(t *testing.T) {
	r := log.NewRing(64<<10, 64<<10)
	if n := testing.AllocsPerRun(1000, func() {
		off, token, ok := r.Reserve(300)
		if !ok || off != 0 {
			t.Fatalf("%d, %v", off, ok)
		}
		r.Release(token)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
