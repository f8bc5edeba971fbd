package peercred

import "golang.org/x/sys/unix"

// WithoutPeerHandles is a system before SO_PEERPIDFD, until the function that it returns is called.
func WithoutPeerHandles() (restore func()) {
	was := peerHandle
	peerHandle = func(int) (int, error) { return -1, unix.ENOPROTOOPT }
	return func() { peerHandle = was }
}
