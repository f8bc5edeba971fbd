package rdma

import "math/bits"

// Batch collects work requests that are posted together. It belongs to one
// coroutine at a time; it may be reused after Wait (or once Done) and Reset.
// The zero value is ready for use.
//
// The append methods return the index of the request, for WR and Result.
// Local buffers are offsets into the thread's arena and must stay untouched
// until the batch is done.
type Batch struct {
	wrs     []WR
	posted  int    // wrs[:posted] were handed to the fabric
	pending int    // of these, how many have not completed
	blades  uint64 // bit b mod 64: a request for blade b was appended since the last Post
	failed  int    // 1 + index of the first request that failed; 0: none
	first   int    // where the last Post began
	c       *Coro  // who posted last, or waits
	waiting bool
	owed    bool           // posted since the last Wait: the next one is a round trip
	n       [NumOps]uint32 // appended since the last Post, by verb
	rbytes  uint64
	wbytes  uint64
}

// WRs returns the requests, for fabrics.
func (b *Batch) WRs() []WR { return b.wrs }

// WR returns request i: its Status and Result once the batch is done.
func (b *Batch) WR(i int) *WR { return &b.wrs[i] }

// Result returns the prior value that the atomic i found.
func (b *Batch) Result(i int) uint64 { return b.wrs[i].Result }

// Len is the number of requests.
func (b *Batch) Len() int { return len(b.wrs) }

// Coro is the number of the coroutine that posted the batch last (Coro.ID), for
// fabrics that trace; -1 when it was a plain one, or nobody did.
func (b *Batch) Coro() int {
	if b.c == nil || b.c.yield == nil {
		return -1
	}
	return b.c.id
}

// Done reports whether everything posted has completed.
func (b *Batch) Done() bool { return b.pending == 0 }

// Reset empties the batch. Nothing may be outstanding.
func (b *Batch) Reset() {
	if b.pending != 0 {
		panic("rdma: Reset of a batch with outstanding work requests")
	}
	b.wrs = b.wrs[:0]
	b.posted, b.failed, b.blades = 0, 0, 0
	b.rbytes, b.wbytes = 0, 0
	b.n = [NumOps]uint32{}
	b.owed = false
}

func (b *Batch) add(op Op, a RemoteAddr, local, n uint32) *WR {
	i := len(b.wrs)
	if i < cap(b.wrs) {
		b.wrs = b.wrs[:i+1]
	} else {
		b.wrs = append(b.wrs, WR{})
	}
	w := &b.wrs[i]
	w.Op, w.Flags, w.Status = op, 0, StatusOK
	w.Blade, w.Key, w.Off = a.Blade, a.Key, a.Off
	w.Local, w.Len = local, n
	b.blades |= 1 << (a.Blade & 63)
	b.n[op]++
	return w
}

// Read appends a READ of n bytes at a into the arena at local.
func (b *Batch) Read(a RemoteAddr, local, n uint32) int {
	b.add(OpRead, a, local, n)
	b.rbytes += uint64(n)
	return len(b.wrs) - 1
}

// Write appends a WRITE of n bytes from the arena at local to a.
func (b *Batch) Write(a RemoteAddr, local, n uint32) int {
	b.add(OpWrite, a, local, n)
	b.wbytes += uint64(n)
	return len(b.wrs) - 1
}

// CAS appends a compare-and-swap of the word at a.
func (b *Batch) CAS(a RemoteAddr, compare, swap uint64) int {
	w := b.add(OpCAS, a, 0, 8)
	w.Cmp, w.Swap = compare, swap
	b.wbytes += 8
	return len(b.wrs) - 1
}

// FAA appends a fetch-and-add to the word at a.
func (b *Batch) FAA(a RemoteAddr, add uint64) int {
	w := b.add(OpFAA, a, 0, 8)
	w.Swap = add
	b.wbytes += 8
	return len(b.wrs) - 1
}

// MaskedCAS appends a masked compare-and-swap: if old&cmpMask ==
// compare&cmpMask, the word becomes old&^swapMask | swap&swapMask. The 16 bytes
// of the arena at local hold the masks, compare mask first. Only on a fabric
// with Caps.MaskedCAS; Coro.MaskedCAS works on all.
func (b *Batch) MaskedCAS(a RemoteAddr, compare, swap uint64, local uint32) int {
	w := b.add(OpMaskedCAS, a, local, 8)
	w.Cmp, w.Swap = compare, swap
	b.wbytes += 8
	return len(b.wrs) - 1
}

// Flush appends a FLUSH of the n bytes at a: when it completes, the WRITEs to
// them that were posted before it on the same queue pair are visible to all
// and, on a durable fabric, survive power loss.
func (b *Batch) Flush(a RemoteAddr, n uint32) int {
	b.add(OpFlush, a, 0, n)
	return len(b.wrs) - 1
}

// Fence sets FlagFence on the request appended last.
func (b *Batch) Fence() { b.wrs[len(b.wrs)-1].Flags |= FlagFence }

// Complete is called by the fabric for each posted request, once, from Post,
// Poll or Wait of the port, in posted order within a queue pair: request i
// ended with status s (and, for atomics, its Result is set).
func (b *Batch) Complete(i int, s Status) {
	w := &b.wrs[i]
	w.Status = s
	if s != StatusOK && (b.failed == 0 || i < b.failed-1) {
		b.failed = i + 1
	}
	if b.c.t.tracks {
		b.c.t.completed(w)
	}
	b.completed(1)
}

// CompleteAll is Complete with StatusOK for the n requests of the Post in
// progress that Complete was not called for. Only from within Post.
func (b *Batch) CompleteAll(n int) {
	if b.c.t.tracks {
		for i := b.first; i < b.posted; i++ {
			if b.wrs[i].Status == StatusOK {
				b.c.t.completed(&b.wrs[i])
			}
		}
	}
	b.completed(n)
}

func (b *Batch) completed(n int) {
	b.pending -= n
	if b.pending == 0 && b.waiting {
		b.waiting = false
		b.c.t.ready.push(b.c)
	}
}

// Err returns nil, or the *VerbError of the first request that failed.
func (b *Batch) Err() error {
	if b.failed == 0 {
		return nil
	}
	return b.verbError(b.failed - 1)
}

func (b *Batch) verbError(i int) error {
	w := &b.wrs[i]
	e := &VerbError{Op: w.Op, Blade: w.Blade, Off: w.Off, Len: w.Len, Status: w.Status}
	if int(w.Blade) < len(b.c.t.sizes) {
		e.Size = b.c.t.sizes[w.Blade]
	}
	return e
}

// doorbells is the number of distinct blades (mod 64) since the last Post.
func (b *Batch) doorbells() int { return bits.OnesCount64(b.blades) }
