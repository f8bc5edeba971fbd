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
	seq   uint64
}

func (h held) overlaps(off uint32, n int) bool {
	return int(off) < int(h.off)+(h.n+63)&^63 && int(h.off) < int(off)+n
}

// TestRing: reservations lie within the area, on lines of their own, and overlap neither each
// other nor the newest record that is complete; a failed one succeeds at the latest when
// everything was released, if need be behind a mark.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := uint32(128 << rapid.IntRange(0, 8).Draw(t, "size"))
		most := size << rapid.IntRange(0, 3).Draw(t, "doublings")
		r := log.NewRing(size, most)
		if r.Max() != int(most)-64 {
			t.Fatalf("Max is %d of %d", r.Max(), most)
		}
		var out []held
		newest, seq := held{}, uint64(0)
		add := func(off uint32, n int, token log.Token, seq uint64) {
			if off%64 != 0 || int(off)+n > int(size) {
				t.Fatalf("%d bytes at %d of %d", n, off, size)
			}
			for _, h := range append(out, newest) {
				if h.n > 0 && h.overlaps(off, n) {
					t.Fatalf("%d bytes at %d, while %d at %d are in use", n, off, h.n, h.off)
				}
			}
			out = append(out, held{off, n, token, seq})
		}
		reserve := func(n int) bool {
			seq++
			off, token, ok := r.Reserve(n, seq)
			if ok {
				add(off, n, token, seq)
			}
			return ok
		}
		release := func(i int, complete bool) {
			h := out[i]
			r.Release(h.token, complete)
			out = append(out[:i], out[i+1:]...)
			if complete && (newest.n == 0 || h.token > newest.token) {
				newest = h
			}
		}
		// must makes a reservation when nothing else is in use.
		must := func(n int) {
			if reserve(n) {
				return
			}
			if !r.Blocked() {
				t.Fatalf("%d of %d bytes are refused, and nothing is in use", n, size)
			}
			off, token, upTo := r.Mark()
			if upTo != newest.seq {
				t.Fatalf("a mark up to %d instead of %d", upTo, newest.seq)
			}
			add(off, 64, token, upTo)
			release(0, true)
			if !reserve(n) {
				t.Fatalf("%d of %d bytes are refused behind a mark", n, size)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				if n := rapid.IntRange(1, r.Size()).Draw(t, "n"); !reserve(n) && len(out) == 0 {
					must(n)
				}
			},
			"reserve little": func(t *rapid.T) {
				if n := rapid.IntRange(1, min(128, r.Size())).Draw(t, "n"); !reserve(n) && len(out) == 0 {
					must(n)
				}
			},
			"release": func(t *rapid.T) {
				if len(out) > 0 {
					release(rapid.IntRange(0, len(out)-1).Draw(t, "i"), rapid.Bool().Draw(t, "complete"))
				}
			},
			"grow": func(t *rapid.T) {
				if r.Full() != (size == most) || r.Size() != int(size)-64 {
					t.Fatalf("full %v, %d bytes; want %d of %d", r.Full(), r.Size(), size, most)
				}
				size = min(2*size, most)
				r.Grow(size)
			},
			"wait": func(t *rapid.T) {
				// What a transaction does that finds no room: the others come to rest.
				n := rapid.IntRange(1, r.Size()).Draw(t, "n")
				for len(out) > 0 && !reserve(n) {
					release(rapid.IntRange(0, len(out)-1).Draw(t, "i"), true)
				}
				if len(out) == 0 {
					must(n)
				}
			},
		})
		for len(out) > 0 {
			release(0, true)
		}
		if r.Pending() != 0 {
			t.Fatalf("%d reservations are remembered", r.Pending())
		}
		must(r.Size())
	})
}

func TestRingRefuses(t *testing.T) {
	r := log.NewRing(256, 256)
	if _, _, ok := r.Reserve(193, 0); ok {
		t.Error("more than there is beside a mark")
	}
	off, a, _ := r.Reserve(65, 0)
	if off != 0 {
		t.Errorf("the first one is at %d", off)
	}
	off, b, _ := r.Reserve(64, 0)
	if off != 128 {
		t.Errorf("the second one is at %d", off)
	}
	if _, _, ok := r.Reserve(65, 0); ok {
		t.Error("128 bytes are not free")
	}
	// The one in front comes free, but not the one that the record would end in.
	r.Release(a, false)
	if off, _, ok := r.Reserve(128, 0); !ok || off != 0 {
		t.Errorf("128 bytes at the beginning: %d, %v", off, ok)
	}
	r.Release(b, false)
	if off, _, ok := r.Reserve(64, 0); !ok || off != 128 {
		t.Errorf("then %d, %v", off, ok)
	}
}

// TestRingStaysWarm: as long as transactions come one at a time, they use the same lines in
// turn, the newest record's excepted.
func TestRingStaysWarm(t *testing.T) {
	r := log.NewRing(64<<10, 64<<10)
	i := uint32(0)
	if n := testing.AllocsPerRun(1000, func() {
		off, token, ok := r.Reserve(300, 0)
		if !ok || off != i%2*320 {
			t.Fatalf("%d, %v", off, ok)
		}
		r.Release(token, true)
		i++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
