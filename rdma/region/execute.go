package region

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"unsafe"

	"txnode/rdma"
)

// Bounds on what exec does at one go.
const (
	execMax   = 4096 // bytes of a request
	chunk     = 64   // requests
	copyChunk = 1 << 18
)

// Plain executes those requests at the head of wrs that exec executes at one go, and
// returns how many. It is Execute for nearly all batches; Rest does what it leaves.
// Not for a lane of a set with files.
func (l *Lane) Plain(wrs []rdma.WR) int {
	n := min(len(wrs), chunk)
	return exec(unsafe.SliceData(wrs), n, n, &l.head)
}

// Execute executes requests in order, and returns how many have failed. It sets
// Status of these, and Result of atomics that have not; every Status is StatusOK
// before. On return all have taken effect or failed.
func (l *Lane) Execute(wrs []rdma.WR) (failed int) {
	if l.set.files {
		return l.guarded(wrs)
	}
	return l.Rest(wrs, l.Plain(wrs))
}

// Rest executes what Plain has left, as Execute does: all but the first done requests.
func (l *Lane) Rest(wrs []rdma.WR, done int) (failed int) {
	p := progress{done: done, ahead: min(done, chunk)}
	l.proceed(wrs, &p)
	return p.failed
}

// progress is how far an Execute is.
type progress struct {
	done   int // requests
	ahead  int // so many were prefetched, at least
	failed int // of those that are done
	exec   int // requests that exec has at present; 0: it is not at work
}

// proceed executes what is left.
func (l *Lane) proceed(wrs []rdma.WR, p *progress) {
	for p.done < len(wrs) {
		n, touch := min(len(wrs)-p.done, chunk), 0
		if p.done >= p.ahead {
			touch, p.ahead = n, p.done+n
		}
		p.exec = n
		k := exec(&wrs[p.done], n, touch, &l.head)
		if p.exec = 0; k > 0 {
			p.done += k
			continue
		}
		if k := flushes(wrs[p.done:]); k > 0 {
			p.failed += l.flush(wrs[p.done : p.done+k])
			p.done += k
			continue
		}
		l.enter()
		w := &wrs[p.done]
		s := l.execute(w)
		l.leave()
		if s != rdma.StatusOK {
			p.failed++
			w.Status = s
		}
		p.done++
	}
}

// maxFlushes is how many FLUSHes are under way at once: each keeps a thread of the
// operating system.
const maxFlushes = 16

// flushes counts the FLUSHes at the head of a list, as far as they are executed at once.
func flushes(wrs []rdma.WR) (n int) {
	for n < min(len(wrs), maxFlushes) && wrs[n].Op == rdma.OpFlush {
		n++
	}
	return n
}

// flush executes FLUSHes all at once: a disk takes little longer for several than for
// one. It returns how many have failed; after one has, those behind it on its queue pair
// fail, too, though they may have taken effect.
//
// The lane does not announce itself while the disk works: a FLUSH changes no memory, so a key
// fence has nothing to wait for.
func (l *Lane) flush(wrs []rdma.WR) (failed int) {
	l.enter()
	for i := range wrs {
		wrs[i].Status = l.admit(&wrs[i])
	}
	l.leave()
	if len(wrs) == 1 {
		w := &wrs[0]
		if w.Status == rdma.StatusOK && l.qps[w.Blade].region.flush(w.Off, uint64(w.Len)) != nil {
			w.Status = rdma.StatusIO
		}
	} else {
		l.flushAtOnce(wrs)
	}
	for i := range wrs {
		w := &wrs[i]
		if w.Status == rdma.StatusIO {
			l.qps[w.Blade].status = rdma.StatusFlushed
		}
		for _, before := range wrs[:i] {
			if before.Status == rdma.StatusIO && before.Blade == w.Blade {
				w.Status = rdma.StatusFlushed
			}
		}
		if w.Status != rdma.StatusOK {
			failed++
		}
	}
	return failed
}

// flushAtOnce has the disk write what the FLUSHes say that were let in.
func (l *Lane) flushAtOnce(wrs []rdma.WR) {
	var under sync.WaitGroup
	for i := range wrs {
		w := &wrs[i]
		if w.Status != rdma.StatusOK {
			continue
		}
		r := l.qps[w.Blade].region
		under.Go(func() {
			if r.flush(w.Off, uint64(w.Len)) != nil {
				w.Status = rdma.StatusIO
			}
		})
	}
	under.Wait()
}

// enter announces that the lane executes: see doc.go.
func (l *Lane) enter() {
	if l.fenced {
		atomic.AddUint64(l.announced, 1)
	} else {
		*l.announced++
	}
}

func (l *Lane) leave() { l.enter() }

// execute checks and executes one request, which is no FLUSH.
func (l *Lane) execute(w *rdma.WR) rdma.Status {
	s := l.admit(w)
	if s == rdma.StatusOK {
		l.perform(&l.qps[w.Blade], w)
	}
	return s
}

// admit checks one request. One that may not execute breaks its queue pair.
func (l *Lane) admit(w *rdma.WR) rdma.Status {
	if int(w.Blade) >= len(l.qps) {
		return rdma.StatusNoBlade
	}
	q := &l.qps[w.Blade]
	if q.status != rdma.StatusOK {
		return q.status
	}
	s := l.check(q, w)
	if s != rdma.StatusOK {
		q.status = rdma.StatusFlushed
	}
	return s
}

// check decides whether a request may execute (contract, clause 6).
func (l *Lane) check(q *queuePair, w *rdma.WR) rdma.Status {
	n := uint64(w.Len)
	local := uint64(w.Local) + n
	switch w.Op {
	case rdma.OpRead, rdma.OpWrite:
	case rdma.OpCAS, rdma.OpFAA:
		local = 0
	case rdma.OpMaskedCAS:
		local = uint64(w.Local) + 16
	case rdma.OpFlush:
		local = 0
	default:
		return rdma.StatusBadOp
	}
	switch {
	case local > uint64(len(l.arena)):
		return rdma.StatusLocal
	case q.region.stopped():
		return rdma.StatusNoBlade
	case uint64(w.Key) != q.key.Load() && !q.region.opens(w.Key):
		return rdma.StatusKey
	case w.Off > q.size || n > q.size-w.Off:
		return rdma.StatusBounds
	}
	switch w.Op {
	case rdma.OpWrite:
		if q.readOnly {
			return rdma.StatusAccess
		}
	case rdma.OpCAS, rdma.OpFAA, rdma.OpMaskedCAS:
		if q.readOnly {
			return rdma.StatusAccess
		}
		if w.Off&7 != 0 || n != 8 {
			return rdma.StatusAlign
		}
	}
	return rdma.StatusOK
}

// perform executes a request that passed the checks, and is no FLUSH.
func (l *Lane) perform(q *queuePair, w *rdma.WR) {
	remote := unsafe.Add(q.base, w.Off)
	switch w.Op {
	case rdma.OpRead:
		l.read(q.base, w.Off, uint64(w.Local), uint64(w.Len))
	case rdma.OpWrite:
		l.write(q.base, w.Off, uint64(w.Local), uint64(w.Len))
	case rdma.OpCAS:
		w.Result = cas((*uint64)(remote), w.Cmp, w.Swap)
	case rdma.OpFAA:
		w.Result = atomic.AddUint64((*uint64)(remote), w.Swap) - w.Swap
	case rdma.OpMaskedCAS:
		masks := l.arena[w.Local:]
		w.Result = maskedCAS((*uint64)(remote), w.Cmp, binary.LittleEndian.Uint64(masks), w.Swap,
			binary.LittleEndian.Uint64(masks[8:]))
	}
}

// read copies from the region to the arena. Where the ends are not word-aligned
// it goes through the bounce buffer, so that each word of the region is still
// loaded once, whole; the region's size is a multiple of the word's.
func (l *Lane) read(base unsafe.Pointer, off, local, n uint64) {
	if (off|local|n)&7 == 0 {
		for n > 0 {
			k := min(n, copyChunk)
			copyWords(unsafe.Pointer(&l.arena[local]), unsafe.Add(base, off), uintptr(k))
			off, local, n = off+k, local+k, n-k
		}
		return
	}
	for n > 0 {
		low := off &^ 7
		high := min((off+n+7)&^7, low+bounceSize)
		copyWords(unsafe.Pointer(&l.bounce[0]), unsafe.Add(base, low), uintptr(high-low))
		k := min(n, high-off)
		copy(l.arena[local:local+k], l.bounce[off-low:])
		off, local, n = off+k, local+k, n-k
	}
}

// write copies from the arena to the region: whole words are stored whole; a
// word of which only some bytes are written is replaced atomically, so that
// neither it nor a concurrent change of its other bytes is torn.
func (l *Lane) write(base unsafe.Pointer, off, local, n uint64) {
	if head := -off & 7; head != 0 && n > 0 {
		head = min(head, n)
		merge(unsafe.Add(base, off&^7), off&7, l.arena[local:local+head])
		off, local, n = off+head, local+head, n-head
	}
	for n >= 8 {
		src, k := unsafe.Pointer(&l.arena[local]), min(n&^7, copyChunk)
		if local&7 != 0 {
			k = min(k, bounceSize)
			copy(l.bounce[:k], l.arena[local:])
			src = unsafe.Pointer(&l.bounce[0])
		}
		copyWords(unsafe.Add(base, off), src, uintptr(k))
		off, local, n = off+k, local+k, n-k
	}
	if n > 0 {
		merge(unsafe.Add(base, off), 0, l.arena[local:local+n])
	}
}

// merge replaces the bytes of the word at p from byte at on.
func merge(p unsafe.Pointer, at uint64, bytes []byte) {
	word := (*uint64)(p)
	for {
		old := atomic.LoadUint64(word)
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], old)
		copy(b[at:], bytes)
		if atomic.CompareAndSwapUint64(word, old, binary.NativeEndian.Uint64(b[:])) {
			return
		}
	}
}

// cas is compare-and-swap that returns the prior value.
func cas(p *uint64, old, swap uint64) uint64 {
	for {
		if atomic.CompareAndSwapUint64(p, old, swap) {
			return old
		}
		if v := atomic.LoadUint64(p); v != old {
			return v
		}
	}
}

func maskedCAS(p *uint64, compare, cmpMask, swap, swapMask uint64) uint64 {
	for {
		v := atomic.LoadUint64(p)
		if v&cmpMask != compare&cmpMask || atomic.CompareAndSwapUint64(p, v, v&^swapMask|swap&swapMask) {
			return v
		}
	}
}
