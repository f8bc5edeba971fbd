package rdma

import (
	"encoding/binary"
	"math/bits"
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

// Alloc returns the offset of n bytes of arena, 64-byte aligned, or
// ErrArenaFull. Sizes are rounded up to powers of two from 64 bytes.
func (t *Thread) Alloc(n int) (uint32, error) { return t.space.alloc(n) }

// Free gives back what Alloc(n) returned.
func (t *Thread) Free(local uint32, n int) { t.space.free(local, n) }

// arenaSpace is a buddy-less power-of-two allocator: a bump pointer and a free
// list per class.
type arenaSpace struct {
	next, end uint32
	lists     [26][]uint32
}

func (s *arenaSpace) init(size uint32) { s.next, s.end = 0, size }

func arenaClass(n int) int { return bits.Len(uint(max(n, 64)-1)) - 6 }

func (s *arenaSpace) alloc(n int) (uint32, error) {
	k := arenaClass(n)
	if k >= len(s.lists) {
		return 0, ErrArenaFull
	}
	if l := s.lists[k]; len(l) > 0 {
		s.lists[k] = l[:len(l)-1]
		return l[len(l)-1], nil
	}
	size := uint32(64) << k
	if s.end-s.next < size {
		return s.split(k)
	}
	a := s.next
	s.next += size
	return a, nil
}

// split takes a larger free piece apart.
func (s *arenaSpace) split(k int) (uint32, error) {
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
		return a, nil
	}
	return 0, ErrArenaFull
}

func (s *arenaSpace) free(a uint32, n int) {
	k := arenaClass(n)
	s.lists[k] = append(s.lists[k], a)
}
