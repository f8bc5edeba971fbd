package rdma_test

import (
	"errors"
	"math/bits"
	"testing"

	"pgregory.net/rapid"

	"txnode/rdma"
)

// roundUp is what Alloc(n) takes.
func roundUp(n int) int {
	if n <= 64 {
		return 64
	}
	return 1 << bits.Len(uint(n-1))
}

// TestArenaSpace compares the allocator with a map of the lines in use: pieces
// are aligned, inside, disjoint, and refused only when no run is long enough.
func TestArenaSpace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.IntRange(1, 300).Draw(t, "lines")
		s := rdma.NewSpace(uint32(lines * 64))
		used := make([]bool, lines)
		type piece struct {
			at uint32
			n  int
		}
		var pieces []piece
		longest := func() int {
			best, run := 0, 0
			for _, u := range used {
				if run++; u {
					run = 0
				}
				best = max(best, run)
			}
			return best * 64
		}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				n := rapid.IntRange(-1, 40).Draw(t, "n")
				if rapid.Bool().Draw(t, "large") {
					n = rapid.IntRange(0, lines*64+100).Draw(t, "n")
				}
				at, err := s.Alloc(n)
				size := roundUp(n)
				if err != nil {
					if !errors.Is(err, rdma.ErrArenaFull) {
						t.Fatalf("Alloc(%d): %v", n, err)
					}
					if l := longest(); l >= size {
						t.Fatalf("Alloc(%d) failed, with %d bytes free in one piece", n, l)
					}
					return
				}
				if at%64 != 0 || int(at)+size > lines*64 {
					t.Fatalf("Alloc(%d) = %d, in an arena of %d bytes", n, at, lines*64)
				}
				for i := int(at) / 64; i < (int(at)+size)/64; i++ {
					if used[i] {
						t.Fatalf("Alloc(%d) = %d overlaps a piece in use", n, at)
					}
					used[i] = true
				}
				pieces = append(pieces, piece{at, n})
			},
			"free": func(t *rapid.T) {
				if len(pieces) == 0 {
					t.Skip("nothing to free")
				}
				i := rapid.IntRange(0, len(pieces)-1).Draw(t, "i")
				p := pieces[i]
				pieces = append(pieces[:i], pieces[i+1:]...)
				s.Free(p.at, p.n)
				for j := int(p.at) / 64; j < (int(p.at)+roundUp(p.n))/64; j++ {
					used[j] = false
				}
			},
		})
	})
}

func TestArenaSpaceHuge(t *testing.T) {
	s := rdma.NewSpace(1 << 31)
	for _, n := range []int{1<<31 + 1, 1 << 40, 1<<63 - 1} {
		if _, err := s.Alloc(n); !errors.Is(err, rdma.ErrArenaFull) {
			t.Errorf("Alloc(%d): %v", n, err)
		}
	}
	if at, err := s.Alloc(1 << 31); at != 0 || err != nil {
		t.Errorf("Alloc of everything: %d, %v", at, err)
	}
	if _, err := s.Alloc(1); !errors.Is(err, rdma.ErrArenaFull) {
		t.Errorf("Alloc of more: %v", err)
	}
}

// TestArenaNeeded: it is more than there is, whatever Alloc has refused, and an arena of that
// size would have done.
func TestArenaNeeded(t *testing.T) {
	th := newThread(t, rig{})
	var pieces []uint32
	const piece = 5000 // 8 KiB
	for {
		at, err := th.Alloc(piece)
		if err != nil {
			break
		}
		pieces = append(pieces, at)
	}
	size := th.ArenaSize()
	if got := th.ArenaNeeded(piece); got <= size || got > size+8<<10 {
		t.Errorf("for %d bytes more, %d of %d", piece, got, size)
	}
	for i := 0; i < len(pieces); i += 2 { // half of it is free, but not in one piece
		th.Free(pieces[i], piece)
	}
	if _, err := th.Alloc(size / 4); !errors.Is(err, rdma.ErrArenaFull) {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, piece, size / 4, 2 * size} {
		if got := th.ArenaNeeded(n); got <= size || got < n {
			t.Errorf("for %d bytes, %d of %d", n, got, size)
		}
	}
}

func TestArenaMemory(t *testing.T) {
	th := newThread(t, rig{})
	a, err := th.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	th.PutWord(a, 0x1122334455667788)
	if b := th.Bytes(a, 8); b[0] != 0x88 || b[7] != 0x11 || len(b) != 8 || cap(b) != 8 {
		t.Errorf("Bytes: %x, capacity %d", b, cap(b))
	}
	th.Bytes(a, 8)[7] = 0
	if w := th.Word(a); w != 0x22334455667788 {
		t.Errorf("Word: %#x", w)
	}
	if base := (*byte)(th.Base()); base != &th.Bytes(0, 1)[0] {
		t.Error("Base is not the address of the first byte")
	}
	th.Free(a, 100)
	if b, err := th.Alloc(128); b != a || err != nil {
		t.Errorf("Alloc after Free of the same size: %d, %v; want %d", b, err, a)
	}
}
