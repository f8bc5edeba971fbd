package inproc

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"txnode/rdma"
)

// queuePair is a port's connection to one blade. The base address comes first
// and the size is 64 bytes: prefetch, in assembly, depends on it.
type queuePair struct {
	base     unsafe.Pointer
	size     uint64
	key      *atomic.Uint32
	status   rdma.Status // not StatusOK: error state
	readOnly bool
	region   *region
	_        [24]byte
}

var (
	_ [64 - unsafe.Sizeof(queuePair{})]byte
	_ [unsafe.Sizeof(queuePair{}) - 64]byte
	_ [56 - unsafe.Sizeof(rdma.WR{})]byte
	_ [unsafe.Sizeof(rdma.WR{}) - 56]byte
)

// port executes what is posted, at once, on the caller's goroutine.
type port struct {
	qps   []queuePair
	arena []byte
	mem   []byte // arena with one page in front, whose first word is the sequence number
	f     *Fabric
	fence bool // announce with a fence: no membarrier
	start time.Time
}

// Offsets that prefetch, in assembly, relies on.
var _ = [1]struct{}{}[unsafe.Offsetof(rdma.WR{}.Blade)-2+unsafe.Offsetof(rdma.WR{}.Off)-8+unsafe.Offsetof(rdma.WR{}.Len)-20]

// NewPort maps an arena and connects it to all blades.
func (f *Fabric) NewPort(cfg rdma.PortConfig) (rdma.Port, error) {
	page := pageSize
	size := (cfg.Arena + page - 1) / page * page
	if size <= 0 || size > math.MaxInt32 {
		return nil, fmt.Errorf("inproc: arena of %d bytes: between 1 and 2^31-1 are possible", cfg.Arena)
	}
	mem, err := anonymous(uint64(size+page), false)
	if err != nil {
		return nil, err
	}
	p := &port{mem: mem, arena: mem[page:], f: f, fence: !f.barrier.asymmetric, start: f.start}
	for _, r := range f.regions {
		p.qps = append(p.qps, queuePair{base: r.base(), size: uint64(len(r.mem)), key: &r.key, readOnly: r.readOnly, region: r})
	}
	f.mu.Lock()
	f.ports[p] = struct{}{}
	f.mu.Unlock()
	return p, nil
}

// seq is odd while the port executes. The word lives outside the Go heap and is
// written with plain stores: see doc.go.
func (p *port) seq() uint64 { return atomic.LoadUint64((*uint64)(unsafe.Pointer(&p.mem[0]))) }

func (p *port) Post(b *rdma.Batch, first int) {
	wrs := b.WRs()[first:]
	announce := (*uint64)(unsafe.Pointer(unsafe.SliceData(p.mem)))
	if p.fence {
		atomic.AddUint64(announce, 1)
	} else {
		*announce++
	}
	if len(wrs) > 1 {
		prefetch(unsafe.Pointer(&wrs[0]), uintptr(len(wrs)), unsafe.Pointer(&p.qps[0]), uintptr(len(p.qps)))
	}
	arena := unsafe.Pointer(unsafe.SliceData(p.arena))
	failed := 0
	for i := range wrs {
		w := &wrs[i]
		if int(w.Blade) >= len(p.qps) {
			failed++
			b.Complete(first+i, rdma.StatusNoBlade)
			continue
		}
		q := &p.qps[w.Blade]
		n := uint64(w.Len)
		if q.status|check(q, w, uint64(len(p.arena))) != rdma.StatusOK {
			failed++
			p.fail(b, first+i, q)
			continue
		}
		remote := unsafe.Add(q.base, w.Off)
		switch w.Op {
		case rdma.OpRead:
			if (n|w.Off|uint64(w.Local))&7 == 0 {
				copyWords(unsafe.Add(arena, w.Local), remote, uintptr(n))
			} else {
				copyAny(unsafe.Add(arena, w.Local), remote, uintptr(n))
			}
		case rdma.OpWrite:
			if (n|w.Off|uint64(w.Local))&7 == 0 {
				copyWords(remote, unsafe.Add(arena, w.Local), uintptr(n))
			} else {
				copyAny(remote, unsafe.Add(arena, w.Local), uintptr(n))
			}
		case rdma.OpCAS:
			w.Result = cas((*uint64)(remote), w.Cmp, w.Swap)
		case rdma.OpFAA:
			w.Result = atomic.AddUint64((*uint64)(remote), w.Swap) - w.Swap
		case rdma.OpMaskedCAS:
			masks := (*[2]uint64)(unsafe.Add(arena, w.Local))
			w.Result = maskedCAS((*uint64)(remote), w.Cmp, masks[0], w.Swap, masks[1])
		case rdma.OpFlush:
			if err := q.region.flush(w.Off, n); err != nil {
				q.status = rdma.StatusFlushed
				failed++
				b.Complete(first+i, rdma.StatusIO)
			}
		}
	}
	if p.fence {
		atomic.AddUint64(announce, 1)
	} else {
		*announce++
	}
	b.CompleteAll(len(wrs) - failed)
}

// fail completes request i with its own error, or as flushed when the queue
// pair was in the error state before.
func (p *port) fail(b *rdma.Batch, i int, q *queuePair) {
	s := rdma.StatusFlushed
	if q.status == rdma.StatusOK {
		s = check(q, b.WR(i), uint64(len(p.arena)))
		q.status = rdma.StatusFlushed
	}
	b.Complete(i, s)
}

// check decides whether a request may execute (contract, clause 6).
func check(q *queuePair, w *rdma.WR, arena uint64) rdma.Status {
	n := uint64(w.Len)
	if w.Off > q.size || n > q.size-w.Off {
		return rdma.StatusBounds
	}
	if uint32(w.Key) != q.key.Load() {
		return rdma.StatusKey
	}
	switch w.Op {
	case rdma.OpRead:
		if uint64(w.Local)+n > arena {
			return rdma.StatusLocal
		}
	case rdma.OpWrite:
		if uint64(w.Local)+n > arena {
			return rdma.StatusLocal
		}
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
		if w.Op == rdma.OpMaskedCAS && (w.Local&7 != 0 || uint64(w.Local)+16 > arena) {
			return rdma.StatusLocal
		}
	case rdma.OpFlush:
	default:
		return rdma.StatusBadOp
	}
	return rdma.StatusOK
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

// copyAny copies memory of any alignment; a word that is aligned on the remote
// side is copied as one if the local side is aligned with it, bytes otherwise.
func copyAny(dst, src unsafe.Pointer, n uintptr) {
	if (uintptr(dst)^uintptr(src))&7 == 0 {
		for ; n > 0 && uintptr(src)&7 != 0; n-- {
			*(*byte)(dst) = *(*byte)(src)
			dst, src = unsafe.Add(dst, 1), unsafe.Add(src, 1)
		}
		words := n &^ 7
		copyWords(dst, src, words)
		dst, src, n = unsafe.Add(dst, words), unsafe.Add(src, words), n&7
	}
	for i := uintptr(0); i < n; i++ {
		*(*byte)(unsafe.Add(dst, i)) = *(*byte)(unsafe.Add(src, i))
	}
}

var pageSize = unix.Getpagesize()

func (p *port) Poll() {}

// spinNs is how long Wait spins before it sleeps.
const spinNs = 20_000

func (p *port) Wait(until int64) {
	for {
		left := until - p.Now()
		if left <= 0 || until == math.MaxInt64 {
			return
		}
		if left > 2*spinNs {
			time.Sleep(time.Duration(left - spinNs))
			continue
		}
		runtime.Gosched()
	}
}

func (p *port) Now() int64 { return int64(time.Since(p.start)) }

func (p *port) Arena() []byte { return p.arena }

func (p *port) Reset(b rdma.BladeID) error {
	if int(b) >= len(p.qps) {
		return &rdma.VerbError{Blade: b, Status: rdma.StatusNoBlade}
	}
	p.qps[b].status = rdma.StatusOK
	return nil
}

func (p *port) Close() error {
	p.f.mu.Lock()
	delete(p.f.ports, p)
	p.f.mu.Unlock()
	return unix.Munmap(p.mem)
}
