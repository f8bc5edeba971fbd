package inproc

import (
	"fmt"
	"runtime/debug"
	"unsafe"

	"txnode/rdma"
)

// filePort is a port of a fabric with files. A file that is mapped may have pages that are
// not there: a disk that cannot be read, a disk that is full under a hole, a file that
// somebody has cut short. To access one is a fault (SIGBUS), which would end the process.
// Here it stops the blade: the request fails as any does that a blade's death overtakes, and
// so does whatever comes later. Who has copies on other blades goes on.
type filePort struct{ *port }

// Post executes the requests.
func (p *filePort) Post(b *rdma.Batch, first int) {
	var r progress
	was := debug.SetPanicOnFault(true) // of this goroutine
	for !p.attempt(b, first, &r) {
	}
	debug.SetPanicOnFault(was)
	b.CompleteAll(len(b.WRs()) - first - r.failed)
}

// attempt executes what is left, to the end or to a fault.
func (p *filePort) attempt(b *rdma.Batch, first int, r *progress) (end bool) {
	defer func() {
		if !end {
			p.blame(b, first, r, recover())
		}
	}()
	p.proceed(b, first, r)
	return true
}

// blame stops the blade of the request at which a Post has panicked for a fault in the
// blade's memory, and fails the request. Whatever else it was goes on as a panic.
func (p *filePort) blame(b *rdma.Batch, first int, r *progress, panicked any) {
	if p.executing()%2 == 1 {
		p.leave()
	}
	if r.exec > 0 {
		r.done += r.exec - p.left
		r.exec = 0
	}
	w := &b.WRs()[first+r.done]
	var err error
	if int(w.Blade) < len(p.qps) && p.qps[w.Blade].region.file != nil {
		err = faultIn(p.qps[w.Blade].region.mem, panicked)
	}
	if err == nil {
		panic(panicked)
	}
	q, s := &p.qps[w.Blade], rdma.StatusIO
	if !p.f.keep {
		s = rdma.StatusNoBlade
		q.region.fail(err)
	}
	q.status = rdma.StatusFlushed
	r.failed++
	b.Complete(first+r.done, s)
	r.done++
}

// fail stops the blade for a fault.
func (r *region) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped() {
		r.stop(fmt.Errorf("%s: %w", r.file.Name(), err))
	}
}

// faultIn says where in a mapping of a file the fault was for which somebody has panicked; nil: it
// was none, or elsewhere.
func faultIn(mem []byte, panicked any) error {
	f, ok := panicked.(interface {
		error
		Addr() uintptr
	})
	if !ok || len(mem) == 0 {
		return nil
	}
	off := uint64(f.Addr() - uintptr(unsafe.Pointer(&mem[0])))
	if off >= uint64(len(mem)) {
		return nil
	}
	return fmt.Errorf("byte %#x cannot be accessed: the disk has failed or is full, or the file was cut short", off)
}

// guard runs fn, and returns an error if it faults in a mapping.
func guard(mem []byte, fn func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			if err = faultIn(mem, p); err == nil {
				panic(p)
			}
		}
	}()
	fn()
	return nil
}
