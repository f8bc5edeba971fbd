package tcp

import (
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// newWaiter is what ports wait with.
var newWaiter = newNested

// nested waits without keeping a thread: an epoll descriptor of the port's own has
// the sockets in it, and Go's network poller, which takes epoll descriptors, has that one.
type nested struct {
	epoll int
	file  *os.File
	raw   syscall.RawConn
	armed int64 // the deadline that file has, on the clock of wait
	ready func(fd uintptr) bool
	step  func() bool
}

func newNested() (waiter, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("tcp: waiting for several connections: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that package os hands it to the network poller
		return nil, errors.Join(err, unix.Close(fd))
	}
	p := &nested{epoll: fd, file: os.NewFile(uintptr(fd), "epoll"), armed: math.MaxInt64}
	p.ready = func(uintptr) bool { return p.step() }
	if p.raw, err = p.file.SyscallConn(); err == nil {
		err = p.file.SetReadDeadline(time.Time{}) // an error: the network poller does not have it
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tcp: waiting for several connections: %w", err), p.file.Close())
	}
	return p, nil
}

func (p *nested) add(fd int) error { return p.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN) }

func (p *nested) writable(fd int, on bool) error {
	events := uint32(unix.EPOLLIN)
	if on {
		events |= unix.EPOLLOUT
	}
	return p.control(unix.EPOLL_CTL_MOD, fd, events)
}

func (p *nested) control(what, fd int, events uint32) error {
	if err := unix.EpollCtl(p.epoll, what, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("tcp: watching a connection: %w", err)
	}
	return nil
}

func (p *nested) remove(fd int) {
	_ = p.control(unix.EPOLL_CTL_DEL, fd, 0) // it is closed anyway
}

func (p *nested) wait(step func() bool, start time.Time, until int64) {
	// To set the deadline costs as much as a few verbs, so one that is earlier stays.
	if p.armed > until || p.armed <= int64(time.Since(start)) {
		p.armed = until
		t := time.Time{}
		if until != math.MaxInt64 {
			t = start.Add(time.Duration(until))
		}
		_ = p.file.SetReadDeadline(t) // it had one before
	}
	p.step = step
	_ = p.raw.Read(p.ready) // an error is that the time has come
}

func (p *nested) close() error { return p.file.Close() }
