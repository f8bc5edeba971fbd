package rdma

import "slices"

// Batch collects work requests that are posted together. It belongs to one
// coroutine at a time; it may be reused after Wait (or once Done) and Reset.
// The zero value is ready for use.
//
// The append methods return the index of the request, for WR and Result.
// Local buffers are offsets into the thread's arena and must stay untouched
// until the batch is done.
type Batch struct {
	wrs     []WR
	posted  int   // wrs[:posted] were handed to the fabric
	failed  int   // 1 + index of the first request that failed; 0: none
	pending int   // posted and not completed
	first   int   // where the last Post began, when tracked
	c       *Coro // the coroutine that posted last, or waits
	tally   tally // of wrs[posted:]
	owed    bool  // posted since the last Wait: the next one is a round trip
	tracked bool  // its thread wants to know of each completion
	waiting bool  // c is parked until pending is 0
}

// tally counts the requests appended since the last Post.
type tally struct {
	ops    uint64 // how many, by verb: fields of opBits bits
	blades uint64 // bit b mod 64: one is for blade b
	read   uint64 // bytes
	write  uint64
}

// Verbs are counted in fields of one word while they are appended; more than
// opMask of them at once are counted again when they are posted.
const (
	opBits = 10
	opMask = 1<<opBits - 1
	_      = -uint(NumOps * opBits / 64) // they fit
)

// WRs returns the requests, for fabrics.
func (b *Batch) WRs() []WR { return b.wrs }

// WR returns request i: its Status and Result once the batch is done.
func (b *Batch) WR(i int) *WR { return &b.wrs[i] }

// Result returns the prior value that the atomic i found.
func (b *Batch) Result(i int) uint64 { return b.wrs[i].Result }

// Len is the number of requests.
func (b *Batch) Len() int { return len(b.wrs) }

// Coro is the number of the coroutine that posted the batch last (Coro.ID), for
// fabrics that trace; -1 for a plain coroutine, or before the first post.
func (b *Batch) Coro() int {
	if b.c == nil || b.c.yield == nil {
		return -1
	}
	return b.c.id
}

// Done reports whether everything posted has completed.
func (b *Batch) Done() bool { return b.pending == 0 }

// OK reports whether everything posted has completed, and nothing has failed.
func (b *Batch) OK() bool { return b.pending|b.failed == 0 }

// Reset empties the batch. Nothing may be outstanding.
func (b *Batch) Reset() {
	if b.pending|b.failed != 0 {
		b.clean()
	}
	b.wrs = b.wrs[:0]
	b.posted = 0
	b.tally = tally{}
	b.owed = false
}

// clean makes every Status StatusOK again, which the append methods rely on.
func (b *Batch) clean() {
	if b.pending != 0 {
		panic("rdma: Reset of a batch with outstanding work requests")
	}
	for i := range b.wrs {
		b.wrs[i].Status = StatusOK
	}
	b.failed = 0
}

// grown makes room for a request. The append methods are written out below, and
// come back here when there is none, so that they call nothing else and check no
// bounds: with the fabric's share, appending is what a verb costs.
//
//go:noinline
func (b *Batch) grown() *Batch { return b.roomy(max(8, len(b.wrs))) }

// roomy is grown for n requests.
//
//go:noinline
func (b *Batch) roomy(n int) *Batch {
	b.wrs = slices.Grow(b.wrs, n)
	return b
}

// set fills in what all verbs have.
func (w *WR) set(op Op, a RemoteAddr, local, n uint32) {
	w.Op, w.Flags, w.Blade, w.Key = op, 0, a.Blade, a.Key
	w.Off, w.Local, w.Len = a.Off, local, n
}

func (y *tally) add(op Op, b BladeID) {
	y.ops += 1 << (op * opBits)
	y.blades |= 1 << (b & 63)
}

// Extend appends n requests and returns them. The caller sets each, with SetRead,
// SetWrite or SetMaskedCAS, and counts them, with Count: for loops that know what
// they append, and in which a call for each request would cost more than the rest.
// The slice is valid until the next request is appended.
func (b *Batch) Extend(n int) []WR {
	i := len(b.wrs)
	if i+n > cap(b.wrs) {
		b.roomy(n)
	}
	b.wrs = b.wrs[:i+n]
	return b.wrs[i:]
}

// Truncate takes back what Extend appended, but for the first n requests of the batch.
// Nothing of that may have been counted.
func (b *Batch) Truncate(n int) { b.wrs = b.wrs[:n] }

// Insert makes room for n requests in front of request i, with those behind it moved up.
// The caller sets and counts them, as with Extend. Nothing from i on may have been posted.
func (b *Batch) Insert(i, n int) {
	b.Extend(n)
	copy(b.wrs[i+n:], b.wrs[i:])
}

// Forget takes back what was appended since the last Post.
func (b *Batch) Forget() {
	b.wrs = b.wrs[:b.posted]
	b.tally = tally{}
}

// Count counts n requests that were set in what Extend returned: their verb, and how
// many bytes they read or write together. blades has the bit of each blade that they
// go to: see BladeBit.
func (b *Batch) Count(op Op, n int, bytes, blades uint64) {
	b.tally.ops += uint64(n) << (op * opBits)
	b.tally.blades |= blades
	if op == OpRead {
		b.tally.read += bytes
	} else {
		b.tally.write += bytes
	}
}

// BladeBit is the bit of a blade for Batch.Count.
func BladeBit(b BladeID) uint64 { return 1 << (b & 63) }

// LockRead appends two requests and returns the index of the first: a masked compare-and-swap of
// the word at guard bytes behind a, as MaskedCAS does, and a READ of n bytes at a into the arena at
// local.
func (b *Batch) LockRead(a RemoteAddr, guard, compare, swap uint64, masks, local, n uint32) int {
	i := len(b.wrs)
	if i+2 > cap(b.wrs) {
		return b.grown().LockRead(a, guard, compare, swap, masks, local, n)
	}
	b.wrs = b.wrs[:i+2]
	two := (*[2]WR)(b.wrs[i:])
	two[0].Op, two[0].Flags, two[0].Blade, two[0].Key = OpMaskedCAS, 0, a.Blade, a.Key
	two[0].Off, two[0].Local, two[0].Len = a.Off+guard, masks, 8
	two[0].Cmp, two[0].Swap = compare, swap
	two[1].set(OpRead, a, local, n)
	b.tally.ops += 1<<(OpMaskedCAS*opBits) + 1<<(OpRead*opBits)
	b.tally.blades |= 1 << (a.Blade & 63)
	b.tally.read += uint64(n)
	b.tally.write += 8
	return i
}

// SetRead makes w a READ of n bytes at a into the arena at local.
func (w *WR) SetRead(a RemoteAddr, local, n uint32) { w.set(OpRead, a, local, n) }

// SetWrite makes w a WRITE of n bytes from the arena at local to a.
func (w *WR) SetWrite(a RemoteAddr, local, n uint32) { w.set(OpWrite, a, local, n) }

// SetMaskedCAS makes w a masked compare-and-swap of the word at a: see Batch.MaskedCAS.
func (w *WR) SetMaskedCAS(a RemoteAddr, compare, swap uint64, local uint32) {
	w.set(OpMaskedCAS, a, local, 8)
	w.Cmp, w.Swap = compare, swap
}

// Read appends a READ of n bytes at a into the arena at local.
func (b *Batch) Read(a RemoteAddr, local, n uint32) int {
	i := len(b.wrs)
	if i >= cap(b.wrs) {
		return b.grown().Read(a, local, n)
	}
	b.wrs = b.wrs[:i+1]
	b.wrs[i].set(OpRead, a, local, n)
	b.tally.add(OpRead, a.Blade)
	b.tally.read += uint64(n)
	return i
}

// Write appends a WRITE of n bytes from the arena at local to a.
func (b *Batch) Write(a RemoteAddr, local, n uint32) int {
	i := len(b.wrs)
	if i >= cap(b.wrs) {
		return b.grown().Write(a, local, n)
	}
	b.wrs = b.wrs[:i+1]
	b.wrs[i].set(OpWrite, a, local, n)
	b.tally.add(OpWrite, a.Blade)
	b.tally.write += uint64(n)
	return i
}

// CAS appends a compare-and-swap of the word at a.
func (b *Batch) CAS(a RemoteAddr, compare, swap uint64) int {
	i := len(b.wrs)
	if i >= cap(b.wrs) {
		return b.grown().CAS(a, compare, swap)
	}
	b.wrs = b.wrs[:i+1]
	w := &b.wrs[i]
	w.set(OpCAS, a, 0, 8)
	w.Cmp, w.Swap = compare, swap
	b.tally.add(OpCAS, a.Blade)
	b.tally.write += 8
	return i
}

// FAA appends a fetch-and-add to the word at a.
func (b *Batch) FAA(a RemoteAddr, add uint64) int {
	i := len(b.wrs)
	if i >= cap(b.wrs) {
		return b.grown().FAA(a, add)
	}
	b.wrs = b.wrs[:i+1]
	w := &b.wrs[i]
	w.set(OpFAA, a, 0, 8)
	w.Swap = add
	b.tally.add(OpFAA, a.Blade)
	b.tally.write += 8
	return i
}

// MaskedCAS appends a masked compare-and-swap: if old&cmpMask ==
// compare&cmpMask, the word becomes old&^swapMask | swap&swapMask. The 16 bytes
// of the arena at local hold the masks, compare mask first. Only on a fabric
// with Caps.MaskedCAS; Coro.MaskedCAS works on all.
func (b *Batch) MaskedCAS(a RemoteAddr, compare, swap uint64, local uint32) int {
	i := len(b.wrs)
	if i >= cap(b.wrs) {
		return b.grown().MaskedCAS(a, compare, swap, local)
	}
	b.wrs = b.wrs[:i+1]
	w := &b.wrs[i]
	w.set(OpMaskedCAS, a, local, 8)
	w.Cmp, w.Swap = compare, swap
	b.tally.add(OpMaskedCAS, a.Blade)
	b.tally.write += 8
	return i
}

// Flush appends a FLUSH of the n bytes at a. When it completes, the WRITEs to these bytes that were
// posted before it on the same queue pair are visible to all clients. On a durable fabric they also
// survive power loss.
func (b *Batch) Flush(a RemoteAddr, n uint32) int {
	i := len(b.wrs)
	if i >= cap(b.wrs) {
		return b.grown().Flush(a, n)
	}
	b.wrs = b.wrs[:i+1]
	b.wrs[i].set(OpFlush, a, 0, n)
	b.tally.add(OpFlush, a.Blade)
	return i
}

// Lookup sets FlagLookup on the request appended last.
func (b *Batch) Lookup() { b.wrs[len(b.wrs)-1].Flags |= FlagLookup }

// Fence sets FlagFence on the request appended last.
func (b *Batch) Fence() { b.wrs[len(b.wrs)-1].Flags |= FlagFence }

// Complete is called by the fabric for each posted request, once, from Post,
// Poll or Wait of the port, in posted order within a queue pair: request i
// ended with status s (and, for atomics, its Result is set).
func (b *Batch) Complete(i int, s Status) {
	w := &b.wrs[i]
	w.Status = s
	if s != StatusOK {
		b.fail(i, s)
	}
	if b.tracked {
		b.c.t.completed(w)
	}
	b.completed(1)
}

// fail notes that request i has failed.
func (b *Batch) fail(i int, s Status) {
	if b.failed == 0 || i < b.failed-1 {
		b.failed = i + 1
	}
	if s.Uncertain() {
		b.c.t.uncertain = true
	}
	b.c.t.noteFailed(&b.wrs[i], s)
}

// refuse fails what was appended since the last Post, without posting any of it, because a request
// is for a barred blade.
func (b *Batch) refuse(c *Coro) {
	for i := b.posted; i < len(b.wrs); i++ {
		b.wrs[i].Status = StatusBarred
		if b.failed == 0 && c.t.barred&BladeBit(b.wrs[i].Blade) != 0 {
			b.failed = i + 1
		}
	}
	b.posted, b.tally, b.c = len(b.wrs), tally{}, c
}

// CompleteAll is Complete with StatusOK for the n requests of the Post in
// progress that Complete was not called for. Only from within Post.
func (b *Batch) CompleteAll(n int) {
	if b.tracked {
		b.completeTracked(n)
		return
	}
	b.pending -= n // no coroutine waits: an untracked thread's fabric is synchronous
}

// CompleteRun is Complete with StatusOK, their Results set, for the n requests from first to last that
// are for the same blade. For fabrics whose devices say at once that several have completed.
func (b *Batch) CompleteRun(first, last, n int) {
	if b.tracked {
		b.c.t.completedRun(b.wrs[first:last+1], n)
	}
	b.completed(n)
}

func (b *Batch) completeTracked(n int) {
	for i := b.first; i < b.posted; i++ {
		if b.wrs[i].Status == StatusOK {
			b.c.t.completed(&b.wrs[i])
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
