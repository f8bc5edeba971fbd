package region

import "golang.org/x/sys/unix"

// Commands of membarrier(2).
const (
	membarrierPrivateExpedited         = 1 << 3
	membarrierRegisterPrivateExpedited = 1 << 4
)

// barrier orders the plain stores by which lanes announce that they execute
// against a change of keys, without a fence on the fast path.
type barrier struct{ asymmetric bool }

func (b *barrier) init() {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierRegisterPrivateExpedited, 0, 0)
	b.asymmetric = errno == 0
}

// all makes every running thread of the process pass a full memory barrier.
func (b *barrier) all() {
	if b.asymmetric {
		_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, membarrierPrivateExpedited, 0, 0)
	}
}
