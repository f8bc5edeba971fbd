package peercred

import (
	"net"

	"golang.org/x/sys/unix"
)

// Known says that the system tells which user the peer of a unix socket is.
const Known = true

// UserOf returns the number of the user that has connected a unix socket.
func UserOf(c *net.UnixConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	return cred.Uid, nil
}
