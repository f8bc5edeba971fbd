package memory

import (
	"bytes"
	"encoding/binary"
	"math"

	"txnode/memory/layout"
	"txnode/rdma"
)

// syncChunk is how many bytes of a copy SyncWords compares at a time, at most.
const syncChunk = 8 << 10

// SyncWords makes the n bytes at a, of an index segment, equal to the primary's on the copies that
// are being built. Words of an index change by compare-and-swap on the primary first, under no lock
// that a copier could take. So a session that changes a word calls SyncWords afterwards, and does
// not carry its change over. The copier does the same for every word:
//
//	repeat: read the copy's word b and the primary's p; if b = p, done;
//	        compare-and-swap the copy's word from b to p
//
// Claim: when all calls have returned, the words are equal. Let T be the time of the last change of
// the primary's word, to P. Its author's call ended after T with b = p, hence with b = P at some
// time t > T. If no compare-and-swap changes the copy after t, it stays P. If some do, the author
// of the last one went on and ended with b = p after it, hence after T, so with p = P, and b did
// not change any more.
//
// Copies that are being built are never written to in another way. a and n are multiples of 8.
func SyncWords(c *rdma.Coro, v *layout.View, a layout.Addr, n uint32) error {
	_, err := syncWords(c, v, a, n, forever)
	return err
}

// forever: until the words are equal.
const forever = math.MaxInt

// syncWords is SyncWords that gives up, false, when some of the words were not equal
// after so many tries.
func syncWords(c *rdma.Coro, v *layout.View, a layout.Addr, n uint32, tries int) (done bool, err error) {
	if v.Written(a) == v.Copies(a) || n == 0 {
		return true, nil
	}
	t := c.Thread()
	chunk := min(n, syncChunk)
	buf, err := t.Alloc(int(2 * chunk))
	if err != nil {
		return false, err
	}
	defer t.Free(buf, int(2*chunk))
	var batch rdma.Batch
	for k := v.Copies(a); k < v.Written(a); k++ {
		for o := uint32(0); o < n; o += chunk {
			done, err := syncRange(c, v, a+layout.Addr(o), min(chunk, n-o), 0, k, tries, buf, &batch)
			if !done || err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// syncRange is syncWords for what fits the buffer and one copy; it takes what another copy has,
// for syncWords the primary.
func syncRange(c *rdma.Coro, v *layout.View, a layout.Addr, n uint32, from, copyNo, most int, buf uint32,
	b *rdma.Batch) (done bool, err error) {
	t := c.Thread()
	for tries := range most {
		b.Reset()
		b.Read(v.At(a, copyNo), buf, n)
		b.Read(v.At(a, from), buf+n, n)
		if err := c.Do(b); err != nil {
			return false, err
		}
		b.Reset()
		has, want := t.Bytes(buf, n), t.Bytes(buf+n, n)
		at := v.At(a, copyNo)
		for o := uint32(0); o < n; o += 8 {
			x, y := binary.LittleEndian.Uint64(has[o:]), binary.LittleEndian.Uint64(want[o:])
			if x == y {
				continue
			}
			w := at
			w.Off += uint64(o)
			b.CAS(w, x, y)
			if b.Len() == syncBatch {
				if err := c.Do(b); err != nil {
					return false, err
				}
				b.Reset()
			}
		}
		if b.Len() == 0 && bytes.Equal(has, want) {
			return true, nil
		}
		if b.Len() > 0 {
			if err := c.Do(b); err != nil {
				return false, err
			}
		}
		if tries > 4 { // somebody changes the same words all the time
			c.Sleep(int64(t.Rand() % 10_000))
		}
	}
	return false, nil
}

// syncBatch bounds the compare-and-swaps under way.
const syncBatch = 256
