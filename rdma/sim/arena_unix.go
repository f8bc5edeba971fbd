//go:build unix

package sim

import (
	"fmt"

	"golang.org/x/sys/unix"

	"txnode/rdma"
)

// newArena maps memory that costs nothing until it is touched, and that the
// garbage collector does not know.
func newArena(size int) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("sim: arena of %d bytes: %w: %w", size, rdma.ErrNoMemory, err)
	}
	return m, nil
}

func freeArena(m []byte) error { return unix.Munmap(m) }
