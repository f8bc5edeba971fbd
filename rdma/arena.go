package rdma

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"unsafe"
)

// Bytes returns n bytes of the thread's arena at local. The slice aliases
// registered memory: it is valid as long as the thread, and a READ that is in
// flight changes it.
func (t *Thread) Bytes(local, n uint32) []byte { return t.arena[local : local+n : local+n] }

// Word returns the 8-byte little-endian word of the arena at local.
func (t *Thread) Word(local uint32) uint64 {
	return binary.LittleEndian.Uint64(t.arena[local:])
}

// PutWord sets the word of the arena at local.
func (t *Thread) PutWord(local uint32, v uint64) {
	binary.LittleEndian.PutUint64(t.arena[local:], v)
}

// Base is the address of the arena's first byte; it is not on the Go heap.
func (t *Thread) Base() unsafe.Pointer { return unsafe.Pointer(&t.arena[0]) }

// ArenaSize is the size of the arena in bytes.
func (t *Thread) ArenaSize() int { return len(t.arena) }

// Alloc returns the offset of n bytes of arena, 64-byte aligned, or
// ErrArenaFull. Sizes are rounded up to powers of two from 64 bytes.
func (t *Thread) Alloc(n int) (uint32, error) { return t.space.alloc(n) }

// ArenaNeeded is how large the arena would have to be, as it is used now, for n bytes more than
// what Alloc has refused: what is not in its largest free piece counts as used. It is more than
// ArenaSize, also if n bytes have come free since, or are not known and 0.
func (t *Thread) ArenaNeeded(n int) int {
	free := t.space.largest()
	need := 64 << arenaClass(max(n, free+1))
	return len(t.arena) - free + need
}

// Free gives back what Alloc(n) returned.
func (t *Thread) Free(local uint32, n int) { t.space.free(local, n) }

// arenaSpace allocates power-of-two pieces: a bump pointer and a free list per
// class. Pieces are merged only when nothing fits: threads allocate a few
// buffers and keep them.
type arenaSpace struct {
	next, end uint32
	lists     [26][]uint32 // by class: pieces of 64<<class bytes
}

func (s *arenaSpace) init(size uint32) { s.next, s.end = 0, size }

func arenaClass(n int) int { return bits.Len(uint(max(n, 64)-1)) - 6 }

func (s *arenaSpace) alloc(n int) (uint32, error) {
	k := arenaClass(n)
	if k >= len(s.lists) {
		return 0, fmt.Errorf("%w: %d bytes asked for", ErrArenaFull, n)
	}
	if a, ok := s.take(k); ok {
		return a, nil
	}
	s.merge()
	if a, ok := s.take(k); ok {
		return a, nil
	}
	return 0, fmt.Errorf("%w: %d bytes asked for, %d in all", ErrArenaFull, n, s.end)
}

// take returns a piece of class k: a free one, new space, or part of a larger piece.
func (s *arenaSpace) take(k int) (uint32, bool) {
	if l := s.lists[k]; len(l) > 0 {
		s.lists[k] = l[:len(l)-1]
		return l[len(l)-1], true
	}
	if size := uint32(64) << k; s.end-s.next >= size {
		s.next += size
		return s.next - size, true
	}
	for j := k + 1; j < len(s.lists); j++ {
		l := s.lists[j]
		if len(l) == 0 {
			continue
		}
		a := l[len(l)-1]
		s.lists[j] = l[:len(l)-1]
		for j--; j >= k; j-- {
			s.lists[j] = append(s.lists[j], a+uint32(64)<<j)
		}
		return a, true
	}
	return 0, false
}

// largest is the size of the largest free piece, or of what was never used.
func (s *arenaSpace) largest() int {
	for k := len(s.lists) - 1; k >= 0; k-- {
		if len(s.lists[k]) > 0 {
			return max(64<<k, int(s.end-s.next))
		}
	}
	return int(s.end - s.next)
}

// merge joins free pieces that touch, and cuts the runs into pieces as large as
// they go; a run that ends where new space begins becomes new space.
func (s *arenaSpace) merge() {
	type run struct{ a, size uint32 }
	var runs []run
	for k := range s.lists {
		for _, a := range s.lists[k] {
			runs = append(runs, run{a, 64 << k})
		}
		s.lists[k] = s.lists[k][:0]
	}
	slices.SortFunc(runs, func(x, y run) int { return cmp.Compare(x.a, y.a) })
	for i := 0; i < len(runs); {
		r := runs[i]
		for i++; i < len(runs) && runs[i].a == r.a+r.size; i++ {
			r.size += runs[i].size
		}
		if r.a+r.size == s.next {
			s.next = r.a
			continue
		}
		for r.size > 0 {
			k := bits.Len32(r.size) - 7
			s.lists[k] = append(s.lists[k], r.a)
			r.a, r.size = r.a+uint32(64)<<k, r.size-uint32(64)<<k
		}
	}
}

func (s *arenaSpace) free(a uint32, n int) {
	k := arenaClass(n)
	s.lists[k] = append(s.lists[k], a)
}
