package tcp

import (
	"errors"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
)

// waiter has a goroutine wait for several sockets at once.
type waiter interface {
	// add puts a socket under watch.
	add(fd int) error
	// writable has a wait end also when a socket takes bytes, or no longer.
	writable(fd int, on bool) error
	// remove ends the watch of a socket that is about to be closed.
	remove(fd int)
	// wait calls step, and again whenever something has happened to a socket, until it
	// returns true or the time has come on the clock that began at start. It may return early.
	wait(step func() bool, start time.Time, until int64)
	close() error
}

// polling waits with poll(2), which keeps a thread of the system. It is for systems that have
// nothing better here: see newWaiter.
type polling struct{ fds []unix.PollFd }

var _ waiter = (*polling)(nil)

func (p *polling) add(fd int) error {
	p.fds = append(p.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	return nil
}

func (p *polling) index(fd int) int {
	return slices.IndexFunc(p.fds, func(x unix.PollFd) bool { return x.Fd == int32(fd) })
}

func (p *polling) writable(fd int, on bool) error {
	i := p.index(fd)
	if i < 0 {
		return errors.New("tcp: a connection that is not watched")
	}
	p.fds[i].Events = unix.POLLIN
	if on {
		p.fds[i].Events |= unix.POLLOUT
	}
	return nil
}

func (p *polling) remove(fd int) {
	if i := p.index(fd); i >= 0 {
		p.fds = slices.Delete(p.fds, i, i+1)
	}
}

func (p *polling) wait(step func() bool, start time.Time, until int64) {
	for !step() {
		ms := -1
		if until != math.MaxInt64 {
			left := until - int64(time.Since(start))
			if left <= 0 {
				return
			}
			ms = int(min((left+999_999)/1_000_000, math.MaxInt32))
		}
		err := eintr.Repeat(func() error {
			_, err := unix.Poll(p.fds, ms)
			return err
		})
		if err != nil { // no memory in the system: the caller comes again
			time.Sleep(time.Millisecond)
			return
		}
	}
}

func (p *polling) close() error { return nil }
