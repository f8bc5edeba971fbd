package unixsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
)

// Listener is a socket that Close removes, unless another one has its name by then. Its methods are
// safe for concurrent use.
type Listener struct {
	*net.UnixListener

	path string
	// of the socket that this listener has made; no other file has its number while the listener is
	// open
	info fs.FileInfo
	once sync.Once
}

// Listen makes a socket with a mode, for network "unix" or "unixpacket". One that a process has
// left which is gone is replaced. Which processes connect is decided by the mode only as far as the
// system looks at it: Linux does.
func Listen(network, path string, mode fs.FileMode) (*Listener, error) {
	path, err := filepath.Abs(path) // Close may find another working directory
	if err != nil {
		return nil, err
	}
	defer alone(filepath.Dir(path))()
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if errors.Is(err, unix.EADDRINUSE) {
		if e := removeLeft(network, path); e != nil {
			return nil, fmt.Errorf("%w: %w", err, e)
		}
		l, err = net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	}
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	x := &Listener{UnixListener: l, path: path}
	if x.info, err = os.Lstat(path); err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// removeLeft removes a socket that nothing serves.
func removeLeft(network, path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if st.Mode()&fs.ModeSocket == 0 {
		return errors.New("something that is no socket is there")
	}
	c, err := net.Dial(network, path)
	if err == nil {
		_ = c.Close() // it was a question only
		return errors.New("another process serves it")
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// Close removes the socket and closes it. To close again does nothing.
func (l *Listener) Close() (err error) {
	l.once.Do(func() { err = l.close() })
	return err
}

func (l *Listener) close() error {
	defer alone(filepath.Dir(l.path))()
	st, err := os.Lstat(l.path)
	if err == nil && l.info != nil && os.SameFile(st, l.info) {
		err = os.Remove(l.path)
	}
	if errors.Is(err, fs.ErrNotExist) { // it was tidied away
		err = nil
	}
	return errors.Join(err, l.UnixListener.Close())
}

// aloneWait bounds how long a lock of a directory is waited for: any user that can read the
// directory can hold it.
const aloneWait = time.Second

// alone keeps other processes of this package from making or removing sockets in a directory until
// the function that it returns is called. It is best effort.
func alone(dir string) (done func()) {
	d, err := os.Open(dir)
	if err != nil {
		return func() {}
	}
	for until := time.Now().Add(aloneWait); ; time.Sleep(time.Millisecond) {
		err = eintr.Repeat(func() error { return unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(until) {
			return func() { _ = d.Close() } // which unlocks it
		}
	}
}
