package peercred

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
)

// Known says that the system tells which user the peer of a unix socket is.
const Known = true

// UserOf returns the number of the user that has connected a unix socket.
func UserOf(c *net.UnixConn) (user uint32, err error) {
	err = with(c, func(fd int) error {
		cred, err := credentials(fd)
		if err == nil {
			user = cred.Uid
		}
		return err
	})
	return user, err
}

// Process is the process that has connected a unix socket.
type Process struct {
	ID     int // 0: it is in another name space of ids than this process, and not in one below
	User   uint32
	handle *os.File // a pidfd; nil: the system has none
}

// ProcessOf returns the process that has connected a unix socket. The caller closes it.
//
// Its handle is that of the system (SO_PEERPIDFD, Linux 6.5). Without that it is opened by the
// process id, which another process may have by now: the connection is looked at then. If it is
// still open, then so is the process, unless it has given the connection away.
func ProcessOf(c *net.UnixConn) (p *Process, err error) {
	p = &Process{}
	err = with(c, func(fd int) error {
		cred, err := credentials(fd)
		if err != nil {
			return err
		}
		p.ID, p.User = int(cred.Pid), cred.Uid
		handle, err := peerHandle(fd)
		if errors.Is(err, unix.ENOPROTOOPT) && p.ID > 0 {
			if handle, err = openHandle(p.ID); err == nil && !open(fd) {
				return errors.Join(net.ErrClosed, unix.Close(handle))
			}
		}
		if err == nil {
			p.handle = os.NewFile(uintptr(handle), "a process")
		}
		return nil // it has no handle
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Kill ends the process. It returns without waiting for its end. A process that has
// ended is no error.
func (p *Process) Kill() error {
	if p.handle == nil {
		return errors.ErrUnsupported
	}
	err := eintr.Repeat(func() error { return unix.PidfdSendSignal(int(p.handle.Fd()), unix.SIGKILL, nil, 0) })
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// Close gives up the handle.
func (p *Process) Close() error {
	if p.handle == nil {
		return nil
	}
	return p.handle.Close()
}

// with calls fn with the descriptor of a connection.
func with(c *net.UnixConn, fn func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = fn(int(fd)) }); err != nil {
		return err
	}
	return failed
}

func credentials(fd int) (*unix.Ucred, error) {
	return unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
}

// peerHandle asks a socket for a handle of its peer's process. Tests replace it.
var peerHandle = func(fd int) (int, error) { return unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD) }

func openHandle(id int) (handle int, err error) {
	err = eintr.Repeat(func() (err error) {
		handle, err = unix.PidfdOpen(id, 0)
		return err
	})
	return handle, err
}

// open reports whether the peer of a socket has not closed it.
func open(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	err := eintr.Repeat(func() error {
		_, err := unix.Poll(p, 0)
		return err
	})
	return err == nil && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) == 0
}
