package inproc

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
	postChunk = 64   // requests
	copyChunk = 1 << 18
)

// Post executes the requests. exec does those that are plain; execute, its slow
// and complete twin, does the others one by one.
func (p *port) Post(b *rdma.Batch, first int) {
	wrs := b.WRs()[first:]
	n := min(len(wrs), postChunk)
	if done := exec(unsafe.SliceData(wrs), n, n, &p.lanes); done < len(wrs) {
		p.post(b, first, done)
		return
	}
	b.CompleteAll(len(wrs))
}

// post executes what is left of a Post.
func (p *port) post(b *rdma.Batch, first, done int) {
	r := progress{done: done, ahead: min(done, postChunk)}
	p.proceed(b, first, &r)
	b.CompleteAll(len(b.WRs()) - first - r.failed)
}

// progress is how far a Post is.
type progress struct {
	done   int // requests
	ahead  int // so many were prefetched, at least
	failed int // of those that are done; they are complete
	exec   int // requests that exec has at present; 0: it is not at work
}

// proceed executes what is left, and completes what fails.
func (p *port) proceed(b *rdma.Batch, first int, r *progress) {
	wrs := b.WRs()[first:]
	for r.done < len(wrs) {
		n, touch := min(len(wrs)-r.done, postChunk), 0
		if r.done >= r.ahead {
			touch, r.ahead = n, r.done+n
		}
		r.exec = n
		k := exec(&wrs[r.done], n, touch, &p.lanes)
		if r.exec = 0; k > 0 {
			r.done += k
			continue
		}
		if k := flushes(wrs[r.done:]); k > 1 {
			r.failed += p.flush(b, first+r.done, wrs[r.done:r.done+k])
			r.done += k
			continue
		}
		p.enter()
		s := p.execute(&wrs[r.done])
		p.leave()
		if s != rdma.StatusOK {
			r.failed++
			b.Complete(first+r.done, s)
		}
		r.done++
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

// flush executes FLUSHes, the first of which is request at of a batch, all at once: a disk
// takes little longer for several than for one. It returns how many have failed; after one
// has, those behind it on its queue pair fail, too, though they may have taken effect.
func (p *port) flush(b *rdma.Batch, at int, wrs []rdma.WR) (failed int) {
	var errs [maxFlushes]error
	var status [maxFlushes]rdma.Status
	var under sync.WaitGroup
	p.enter()
	for i := range wrs {
		w := &wrs[i]
		if status[i] = p.admit(w); status[i] == rdma.StatusOK {
			r := p.qps[w.Blade].region
			under.Go(func() { errs[i] = r.flush(w.Off, uint64(w.Len)) })
		}
	}
	under.Wait()
	for i := range wrs {
		if errs[i] != nil {
			status[i] = rdma.StatusIO
			p.qps[wrs[i].Blade].status = rdma.StatusFlushed
		}
		for j := range i {
			if errs[j] != nil && wrs[j].Blade == wrs[i].Blade {
				status[i] = rdma.StatusFlushed
			}
		}
		if status[i] != rdma.StatusOK {
			failed++
			b.Complete(at+i, status[i])
		}
	}
	p.leave()
	return failed
}

// enter announces that the port executes: see doc.go.
func (p *port) enter() {
	if p.fenced {
		atomic.AddUint64(p.announced, 1)
	} else {
		*p.announced++
	}
}

func (p *port) leave() { p.enter() }

// execute checks and executes one request.
func (p *port) execute(w *rdma.WR) rdma.Status {
	s := p.admit(w)
	if s != rdma.StatusOK {
		return s
	}
	q := &p.qps[w.Blade]
	if s = p.perform(q, w); s != rdma.StatusOK {
		q.status = rdma.StatusFlushed
	}
	return s
}

// admit checks one request. One that may not execute breaks its queue pair.
func (p *port) admit(w *rdma.WR) rdma.Status {
	if int(w.Blade) >= len(p.qps) {
		return rdma.StatusNoBlade
	}
	q := &p.qps[w.Blade]
	if q.status != rdma.StatusOK {
		return q.status
	}
	s := p.check(q, w)
	if s != rdma.StatusOK {
		q.status = rdma.StatusFlushed
	}
	return s
}

// check decides whether a request may execute (contract, clause 6).
func (p *port) check(q *queuePair, w *rdma.WR) rdma.Status {
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
	case local > uint64(len(p.arena)):
		return rdma.StatusLocal
	case q.region.stopped():
		return rdma.StatusNoBlade
	case uint64(w.Key) != q.key.Load():
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

// perform executes a request that passed the checks.
func (p *port) perform(q *queuePair, w *rdma.WR) rdma.Status {
	remote := unsafe.Add(q.base, w.Off)
	switch w.Op {
	case rdma.OpRead:
		p.read(q.base, w.Off, uint64(w.Local), uint64(w.Len))
	case rdma.OpWrite:
		p.write(q.base, w.Off, uint64(w.Local), uint64(w.Len))
	case rdma.OpCAS:
		w.Result = cas((*uint64)(remote), w.Cmp, w.Swap)
	case rdma.OpFAA:
		w.Result = atomic.AddUint64((*uint64)(remote), w.Swap) - w.Swap
	case rdma.OpMaskedCAS:
		masks := p.arena[w.Local:]
		w.Result = maskedCAS((*uint64)(remote), w.Cmp, binary.LittleEndian.Uint64(masks), w.Swap, binary.LittleEndian.Uint64(masks[8:]))
	case rdma.OpFlush:
		if q.region.flush(w.Off, uint64(w.Len)) != nil {
			return rdma.StatusIO
		}
	}
	return rdma.StatusOK
}

// read copies from the region to the arena. Where the ends are not word-aligned
// it goes through the bounce buffer, so that each word of the region is still
// loaded once, whole; the region's size is a multiple of the word's.
func (p *port) read(base unsafe.Pointer, off, local, n uint64) {
	if (off|local|n)&7 == 0 {
		for n > 0 {
			k := min(n, copyChunk)
			copyWords(unsafe.Pointer(&p.arena[local]), unsafe.Add(base, off), uintptr(k))
			off, local, n = off+k, local+k, n-k
		}
		return
	}
	for n > 0 {
		low := off &^ 7
		high := min((off+n+7)&^7, low+bounceSize)
		copyWords(unsafe.Pointer(&p.bounce[0]), unsafe.Add(base, low), uintptr(high-low))
		k := min(n, high-off)
		copy(p.arena[local:local+k], p.bounce[off-low:])
		off, local, n = off+k, local+k, n-k
	}
}

// write copies from the arena to the region: whole words are stored whole; a
// word of which only some bytes are written is replaced atomically, so that
// neither it nor a concurrent change of its other bytes is torn.
func (p *port) write(base unsafe.Pointer, off, local, n uint64) {
	if head := -off & 7; head != 0 && n > 0 {
		head = min(head, n)
		merge(unsafe.Add(base, off&^7), off&7, p.arena[local:local+head])
		off, local, n = off+head, local+head, n-head
	}
	for n >= 8 {
		src, k := unsafe.Pointer(&p.arena[local]), min(n&^7, copyChunk)
		if local&7 != 0 {
			k = min(k, bounceSize)
			copy(p.bounce[:k], p.arena[local:])
			src = unsafe.Pointer(&p.bounce[0])
		}
		copyWords(unsafe.Add(base, off), src, uintptr(k))
		off, local, n = off+k, local+k, n-k
	}
	if n > 0 {
		merge(unsafe.Add(base, off), 0, p.arena[local:local+n])
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
