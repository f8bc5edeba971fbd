//go:build unix && !linux

package region

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func hugePages(uint64) ([]byte, error) {
	return nil, errors.New("rdma: explicit huge pages are known on Linux only")
}

// anonymous maps zeroed memory.
func anonymous(size uint64) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("rdma: %d bytes of memory: %w", size, err)
	}
	return m, nil
}

func shared(uint64) (*os.File, []byte, error) {
	return nil, nil, errors.New("rdma: memory that processes share is known on Linux only")
}

// sealed: no file is.
func sealed(*os.File) bool { return false }

// notForked does nothing.
func notForked([]byte) {}

// adviseHuge does nothing.
func adviseHuge([]byte) {}

// adviseSmall does nothing.
func adviseSmall([]byte) {}

// reserve is a wish that this system cannot fulfil: the file stays sparse.
func reserve(*os.File, uint64, uint64) error { return nil }

// discard makes all memory of a region zero.
func (r *region) discard() error {
	clearPages(r.mem)
	return nil
}

// redirty has the system write all pages of a mapped file again.
func redirty(mem []byte) {
	for ; len(mem) > 0; mem = mem[min(pageSize, len(mem)):] {
		touch(mem)
	}
}

// openAgain makes another handle on an open file.
func openAgain(f *os.File) (*os.File, error) { return os.Open(f.Name()) }

// writesFailed is for systems that report errors to each handle on a file.
func writesFailed(*os.File, uint64, uint64) error { return nil }
