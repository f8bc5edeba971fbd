package tcp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
)

// errAgain: nothing can be read, or written, at present. It is os.ErrDeadlineExceeded for TLS,
// whose connections survive nothing else.
var errAgain error = again{}

type again struct{}

func (again) Error() string   { return "tcp: it would block" }
func (again) Timeout() bool   { return true }
func (again) Temporary() bool { return true }
func (again) Unwrap() error   { return os.ErrDeadlineExceeded }

// link is a data connection of a port. It never blocks: a goroutine has several, and waits
// for all of them at once. The descriptor is the link's alone. Only the port's goroutine uses it.
type link struct {
	fd     int
	tls    *tls.Conn // nil: none
	cipher *cipher   // below tls
	on     *remote   // nil: it is being made
}

// newLink takes over a connection that has been greeted.
func newLink(c net.Conn) (*link, error) {
	l := &link{fd: -1}
	raw := c
	if t, ok := c.(*tls.Conn); ok {
		l.tls, l.cipher = t, t.NetConn().(*cipher)
		raw = l.cipher.Conn
	}
	err := l.take(raw)
	if l.cipher != nil {
		l.cipher.fd = l.fd
		l.cipher.detached = true
	}
	if err = errors.Join(err, raw.Close()); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// take duplicates the descriptor of a connection, which does not block.
func (l *link) take(c net.Conn) error {
	s, ok := c.(syscall.Conn)
	if !ok {
		return fmt.Errorf("tcp: a connection without a descriptor: %T", c)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { l.fd, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return err
	}
	if failed != nil {
		l.fd = -1
		return fmt.Errorf("tcp: a connection's descriptor: %w", failed)
	}
	return unix.SetNonblock(l.fd, true)
}

// read reads what is there: errAgain if nothing is, io.EOF at the end.
func (l *link) read(p []byte) (int, error) {
	if l.tls != nil {
		return l.tls.Read(p)
	}
	return readFd(l.fd, p)
}

// drained reports whether a read of n bytes into p has taken all that was there.
func (l *link) drained(n int, p []byte) bool { return l.tls == nil && n < len(p) }

// write takes as much of p as the system, or the cipher, takes: errAgain if that is nothing.
func (l *link) write(p []byte) (int, error) {
	if l.tls == nil {
		return writeFd(l.fd, p)
	}
	if len(l.cipher.out) > 0 {
		return 0, errAgain // p waits, so that it does not grow
	}
	n, err := l.tls.Write(p)
	if err != nil {
		return 0, err
	}
	return n, l.flush()
}

// flush writes what the cipher has for the system.
func (l *link) flush() error {
	if l.cipher == nil || len(l.cipher.out) == 0 {
		return nil
	}
	n, err := writeFd(l.fd, l.cipher.out)
	l.cipher.out = l.cipher.out[:copy(l.cipher.out, l.cipher.out[n:])]
	if errors.Is(err, errAgain) {
		return nil
	}
	return err
}

// pending reports whether there is something to flush.
func (l *link) pending() bool { return l.cipher != nil && len(l.cipher.out) > 0 }

func (l *link) close() {
	if l == nil {
		return
	}
	if l.on != nil { // which may be about to break it
		l.on.mu.Lock()
		defer l.on.mu.Unlock()
		delete(l.on.links, l)
	}
	if l.fd >= 0 {
		_ = unix.Close(l.fd) // a socket's close has nothing to say that reads and writes have not
		l.fd = -1
	}
}

func readFd(fd int, p []byte) (n int, err error) {
	err = eintr.Repeat(func() (err error) {
		n, err = unix.Read(fd, p)
		return err
	})
	switch {
	case errors.Is(err, unix.EAGAIN):
		return 0, errAgain
	case err != nil:
		return 0, err
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

func writeFd(fd int, p []byte) (n int, err error) {
	// A stream's write that a signal interrupts has written nothing, or says how much.
	err = eintr.Repeat(func() (err error) {
		n, err = unix.Write(fd, p)
		return err
	})
	if errors.Is(err, unix.EAGAIN) {
		return 0, errAgain
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// cipher is what TLS of a link writes to and reads from. At first it is the connection. Once
// detached its Read reads what is there, and its Write takes everything into out: a TLS
// connection that has written a part of a record is broken, while one that has read a part
// of a record goes on.
type cipher struct {
	net.Conn
	detached bool
	fd       int
	out      []byte
}

// Read reads from the connection: see cipher.
func (c *cipher) Read(p []byte) (int, error) {
	if !c.detached {
		return c.Conn.Read(p)
	}
	return readFd(c.fd, p)
}

// Write writes to the connection: see cipher.
func (c *cipher) Write(p []byte) (int, error) {
	if !c.detached {
		return c.Conn.Write(p)
	}
	c.out = append(c.out, p...)
	return len(p), nil
}
