package region

import (
	"fmt"
	"runtime/debug"
	"unsafe"

	"txnode/rdma"
)

// guarded is Execute for a set with files. A file that is mapped may have pages that
// are not there: a disk that cannot be read, a disk that is full under a hole, a file
// that was cut short. To access one is a fault (SIGBUS), which would end the process.
// Here it stops the blade: the request fails as any does that a blade's death overtakes,
// and so does whatever comes later. A client that has copies on other blades goes on.
func (l *Lane) guarded(wrs []rdma.WR) (failed int) {
	var p progress
	was := debug.SetPanicOnFault(true) // of this goroutine
	for !l.attempt(wrs, &p) {
	}
	debug.SetPanicOnFault(was)
	return p.failed
}

// attempt executes what is left, to the end or to a fault.
func (l *Lane) attempt(wrs []rdma.WR, p *progress) (end bool) {
	defer func() {
		if !end {
			l.blame(wrs, p, recover())
		}
	}()
	l.proceed(wrs, p)
	return true
}

// blame stops the blade of the request at which an Execute has panicked for a fault in
// the blade's memory, and fails the request. Whatever else it was goes on as a panic.
func (l *Lane) blame(wrs []rdma.WR, p *progress, panicked any) {
	if l.executing()%2 == 1 {
		l.leave()
	}
	if p.exec > 0 {
		p.done += p.exec - l.left
		p.exec = 0
	}
	w := &wrs[p.done]
	var err error
	if int(w.Blade) < len(l.qps) && l.qps[w.Blade].region.file != nil {
		err = faultIn(l.qps[w.Blade].region.mem, panicked)
	}
	if err == nil {
		panic(panicked)
	}
	q := &l.qps[w.Blade]
	w.Status = rdma.StatusIO
	if !l.set.keep {
		w.Status = rdma.StatusNoBlade
		q.region.fail(err)
	}
	q.status = rdma.StatusFlushed
	p.failed++
	p.done++
}

// fail stops the blade for a fault.
func (r *region) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped() {
		r.fault = fmt.Errorf("%s: %w", r.file.Name(), err)
		r.stop()
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
