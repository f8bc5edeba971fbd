//go:build linux && cgo && ibverbs

package ibverbs

/*
#cgo CFLAGS: -O2 -Wall -Wno-unused-function
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "verbs_linux.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"txnode/rdma"
)

// Built reports whether this program can open devices: it was built with the tag ibverbs.
const Built = true

var (
	_ [unsafe.Sizeof(chain{}) - C.sizeof_struct_tx_chain]byte
	_ [C.sizeof_struct_tx_chain - unsafe.Sizeof(chain{})]byte
)

// ibDevice is a device of libibverbs.
type ibDevice struct {
	context, pd unsafe.Pointer
	attr        attributes
	file        *os.File // of asynchronous events
	raw         syscall.RawConn
	closing     sync.Once
	err         error
}

func openDevice(d Device) (device, error) {
	if text := C.tx_load(); text != nil {
		return nil, fmt.Errorf("%w: libibverbs cannot be loaded: %s: install it (Debian: libibverbs1 and "+
			"ibverbs-providers)", ErrDevice, C.GoString(text))
	}
	name := C.CString(d.Name)
	defer C.free(unsafe.Pointer(name))
	gid := -1
	if d.chosen {
		gid = d.GID
	}
	var x ibDevice
	var found [64]C.char
	var a C.struct_tx_attributes
	if e := C.tx_open(name, C.int(d.Port), C.int(gid), &x.context, &x.pd, &found[0], &a); e != 0 {
		return nil, openError(d, syscall.Errno(e))
	}
	x.attr = attributes{
		name: C.GoString(&found[0]), firmware: C.GoString(&a.firmware[0]),
		port: int(a.port), gidIndex: int(a.gid_index), lid: uint16(a.lid), ethernet: a.ethernet != 0,
		mtu: uint8(a.mtu), readers: uint8(a.readers),
		starts: uint8(a.starts), depth: int(a.depth), entries: int(a.entries), message: uint32(a.message),
		atomics: a.atomics != 0, flush: uint64(a.flags)>>38&1 != 0, active: a.state == portActive,
		state: portState(uint8(a.state)),
	}
	for i := range x.attr.gid {
		x.attr.gid[i] = byte(a.gid[i])
	}
	_, err := os.Stat("/sys/class/infiniband/" + x.attr.name + "/device")
	x.attr.software = err != nil
	fd, err := dup(int(C.tx_event_fd(x.context)))
	if err == nil {
		x.file = os.NewFile(uintptr(fd), "events of "+x.attr.name)
		x.raw, err = x.file.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ibverbs: events of %s: %w", x.attr.name, err), x.close())
	}
	return &x, nil
}

// dup is another descriptor of a file. Children must not inherit it: the device stays open for as
// long as one of them lives.
func dup(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }

const portActive = 4

// portState is enum ibv_port_state in words.
func portState(s uint8) string {
	all := [...]string{"in no state", "down", "initializing: is there a subnet manager", "armed", "active",
		"active, and not for long"}
	if int(s) < len(all) {
		return all[s]
	}
	return fmt.Sprintf("in state %d", s)
}

func openError(d Device, e syscall.Errno) error {
	what := "no device with an active port"
	if d.Name != "" {
		what = "device " + d.String()
	}
	switch e {
	case syscall.ENODEV, syscall.ENOSYS:
		return fmt.Errorf("%w: %s: ibv_devices lists those that there are; Soft-RoCE: rdma link add rxe0 type rxe "+
			"netdev eth0", ErrDevice, what)
	case syscall.EACCES, syscall.EPERM:
		return fmt.Errorf("%w: %s: %w: this user may not open /dev/infiniband/uverbs*", ErrDevice, what, e)
	}
	return fmt.Errorf("%w: %s: %w", ErrDevice, what, e)
}

func (d *ibDevice) attributes() attributes { return d.attr }

func (d *ibDevice) events() (e event, err error) {
	var kind C.uint32_t
	var failed syscall.Errno
	err = d.raw.Read(func(uintptr) bool {
		failed = syscall.Errno(C.tx_event(d.context, &kind))
		return failed != syscall.EAGAIN && failed != syscall.EINTR
	})
	if err != nil { // it has no deadline, so it was closed
		return event{}, os.ErrClosed
	}
	if failed != 0 {
		return event{}, failed
	}
	return event{uint32(kind)}, nil
}

// close ends the reading of events first: what it reads from is the library's.
func (d *ibDevice) close() error {
	d.closing.Do(func() {
		if d.file != nil {
			d.err = d.file.Close()
		}
		d.err = errors.Join(d.err, errnoOf("closing the device", C.tx_close(d.context, d.pd)))
	})
	return d.err
}

func errnoOf(what string, e C.int) error {
	if e == 0 {
		return nil
	}
	return fmt.Errorf("ibverbs: %s: %w", what, syscall.Errno(e))
}

type ibRegistration struct {
	mr         unsafe.Pointer
	lkey, rkey uint32
}

func (d *ibDevice) register(p []byte, rights access) (registration, error) {
	r := &ibRegistration{}
	var lkey, rkey C.uint32_t
	e := syscall.Errno(C.tx_register(d.pd, C.uintptr_t(address(p)), C.uint64_t(len(p)), C.uint32_t(rights), &r.mr,
		&lkey, &rkey))
	switch e {
	case 0:
		r.lkey, r.rkey = uint32(lkey), uint32(rkey)
		return r, nil
	case syscall.ENOMEM, syscall.EAGAIN:
		var l unix.Rlimit
		_ = unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l)
		limit := "unlimited"
		if l.Cur != unix.RLIM_INFINITY {
			limit = fmt.Sprintf("%d KiB", l.Cur>>10)
		}
		return nil, fmt.Errorf("ibverbs: registering %d bytes: %w: %w: a device pins what it registers, and this user "+
			"may pin %s: raise it (ulimit -l, LimitMEMLOCK= of systemd)", len(p), rdma.ErrNoMemory, e, limit)
	}
	return nil, fmt.Errorf("ibverbs: registering %d bytes: %w", len(p), e)
}

func (r *ibRegistration) local() uint32  { return r.lkey }
func (r *ibRegistration) remote() uint32 { return r.rkey }

func (r *ibRegistration) end() error { return errnoOf("ending a registration", C.tx_deregister(r.mr)) }

type ibQueue struct {
	d                         *ibDevice
	cq, events, domain, owned unsafe.Pointer
	taken                     uint32 // events, not acknowledged yet
	shared                    error
}

func (d *ibDevice) newQueue(depth int, events, alone bool) (queue, error) {
	q := &ibQueue{d: d}
	var doorbell C.int
	if e := C.tx_queue(d.context, d.pd, C.int(depth), truth(events), truth(alone), &q.cq, &q.events, &q.domain,
		&q.owned, &doorbell); e != 0 {
		return nil, errnoOf(fmt.Sprintf("a completion queue of %d entries", depth), e)
	}
	q.shared = errnoOf("a thread domain", doorbell)
	return q, nil
}

func truth(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func (q *ibQueue) ring(chains []chain, out []completion) int {
	n := C.tx_ring((*C.struct_tx_chain)(unsafe.Pointer(&chains[0])), C.int(len(chains)), q.cq, unsafe.Pointer(&out[0]),
		C.int(len(out)))
	return max(int(n), 0)
}

func (q *ibQueue) poll(out []completion) int {
	n := C.tx_ring(nil, 0, q.cq, unsafe.Pointer(&out[0]), C.int(len(out)))
	return max(int(n), 0)
}

func (q *ibQueue) arm() error { return errnoOf("waiting for completions", C.tx_arm(q.cq)) }

func (q *ibQueue) channel() (int, error) {
	if q.events == nil {
		return -1, nil
	}
	return dup(int(C.tx_channel_fd(q.events)))
}

func (q *ibQueue) doorbell() error { return q.shared }

func (q *ibQueue) drain() { q.taken += uint32(C.tx_drain(q.events)) }

func (q *ibQueue) close() error {
	e := C.tx_queue_close(q.cq, q.events, q.domain, q.owned, C.uint32_t(q.taken))
	return errnoOf("closing a completion queue", e)
}

type ibPair struct {
	q            *ibQueue
	qp           unsafe.Pointer
	num, inlined uint32
	flush        bool
}

func (q *ibQueue) newPair(depth int, flush bool) (pair, error) {
	p := &ibPair{q: q}
	pd := q.owned
	if pd == nil {
		pd = q.d.pd
	}
	var num, inlined C.uint32_t
	flushes := truth(flush)
	if e := C.tx_pair(q.d.context, pd, q.cq, C.int(depth), &flushes, &p.qp, &num, &inlined); e != 0 {
		return nil, errnoOf(fmt.Sprintf("a queue pair of %d requests", depth), e)
	}
	p.num, p.inlined, p.flush = uint32(num), uint32(inlined), flushes != 0
	return p, nil
}

func (p *ibPair) number() uint32         { return p.num }
func (p *ibPair) inline() uint32         { return p.inlined }
func (p *ibPair) flushes() bool          { return p.flush }
func (p *ibPair) handle() unsafe.Pointer { return p.qp }
func (p *ibPair) fail() error            { return errnoOf("ending a queue pair", C.tx_fail(p.qp)) }
func (p *ibPair) close() error           { return errnoOf("closing a queue pair", C.tx_pair_close(p.qp)) }

func (p *ibPair) connect(to path) error {
	a := &p.q.d.attr
	x := C.struct_tx_path{
		number: C.uint32_t(to.number), from: C.uint32_t(to.from), to: C.uint32_t(to.to), lid: C.uint16_t(to.lid),
		mtu: C.uint8_t(to.mtu), readers: C.uint8_t(to.readers), starts: C.uint8_t(to.starts),
		timeout: C.uint8_t(to.timeout), retry: C.uint8_t(to.retry), port: C.uint8_t(a.port),
		gid_index: C.uint8_t(a.gidIndex), flush: C.uint8_t(truth(to.flush)),
	}
	if a.ethernet {
		x.ethernet = 1
	}
	for i, b := range to.gid {
		x.gid[i] = C.uint8_t(b)
	}
	return errnoOf("connecting a queue pair", C.tx_connect(p.qp, &x))
}
