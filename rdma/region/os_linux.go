package region

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
	"txnode/internal/oslimit"
	"txnode/rdma"
)

// hugePage is the size of an explicit huge page in bytes.
const hugePage = 2 << 20

// hugePages maps zeroed memory on explicit huge pages.
func hugePages(size uint64) ([]byte, error) {
	if size%hugePage != 0 {
		return nil, fmt.Errorf("rdma: %d bytes on reserved huge pages: the size must be a multiple of 2 MiB", size)
	}
	m, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_HUGETLB)
	if err != nil {
		return nil, fmt.Errorf("rdma: %d bytes on reserved huge pages (see /proc/sys/vm/nr_hugepages): %w", size, err)
	}
	return m, nil
}

// anonymous maps zeroed memory, on transparent huge pages where the kernel grants them.
func anonymous(size uint64) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("rdma: %d bytes of memory: %w", size, err)
	}
	adviseHuge(m)
	return m, nil
}

// shared maps zeroed memory that other processes can map, too. Its size is sealed: no process can
// make parts of it vanish.
func shared(size uint64) (*os.File, []byte, error) {
	fd, err := unix.MemfdCreate("txnode blade", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("rdma: %d bytes of shared memory: %w", size, oslimit.Explain(err))
	}
	f := os.NewFile(uintptr(fd), "memory of a blade")
	err = f.Truncate(int64(size))
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, sizeSeals|unix.F_SEAL_SEAL)
	}
	var m []byte
	if err == nil {
		m, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("rdma: %d bytes of shared memory: %w", size, err), f.Close())
	}
	notForked(m)
	adviseHuge(m)
	return f, m, nil
}

// notForked keeps shared memory from children that are forked: they would have it without
// announcing themselves to a key fence. Programs that a child executes do not have it anyway, nor
// do children of Go's own, which share all memory until they execute one.
func notForked(p []byte) { _ = madvise(p, unix.MADV_DONTFORK) }

// sizeSeals: a file has the size that it has.
const sizeSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// sealed reports whether f is memory whose size cannot change.
func sealed(f *os.File) bool {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	return err == nil && seals&sizeSeals == sizeSeals
}

// adviseHuge asks for transparent huge pages under p, which begins at a page: a hint.
func adviseHuge(p []byte) { _ = madvise(p, unix.MADV_HUGEPAGE) }

// adviseSmall asks for small pages.
func adviseSmall(p []byte) { _ = madvise(p, unix.MADV_NOHUGEPAGE) }

// madvise is unix.Madvise, repeated.
func madvise(p []byte, advice int) error {
	return eintr.Repeat(func() error { return unix.Madvise(p, advice) })
}

// fallocate is unix.Fallocate, but in tests.
var fallocate = unix.Fallocate

// reserve gives [off, off+n) of a file disk blocks. It makes no file longer: of one that somebody
// has cut short, what was lost would look like zeros, and not like a fault.
func reserve(f *os.File, off, n uint64) error {
	return reserveError(f.Name(), eintr.Repeat(func() error {
		return fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
	}))
}

// reserveError says what an error of fallocate means. A file system that cannot
// reserve is no error: the file stays sparse.
func reserveError(name string, err error) error {
	switch {
	case err == nil || errors.Is(err, unix.EOPNOTSUPP):
		return nil
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG):
		return fmt.Errorf("rdma: %s: %w: %w", name, rdma.ErrNoMemory, oslimit.Explain(err))
	default:
		return fmt.Errorf("rdma: %s: %w", name, err)
	}
}

// discard makes all memory of a region zero, and gives it back: disk blocks too,
// until they are provisioned again.
func (r *region) discard() error {
	f := r.file
	if f == nil {
		f = r.memfd
	}
	if f == nil {
		return madvise(r.mem, unix.MADV_DONTNEED)
	}
	err := eintr.Repeat(func() error {
		return fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(r.size))
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		clearPages(r.mem)
		return nil
	}
	return err
}

// residentChunk is how many bytes are asked about at once.
const residentChunk = 64 << 20

// redirty has the system write all pages of a mapped file again that it has in memory.
// The others are as they are on the disk.
func redirty(mem []byte) {
	resident := make([]byte, residentChunk/pageSize)
	for len(mem) > 0 {
		part := mem[:min(residentChunk, len(mem))]
		mem = mem[len(part):]
		_, _, failed := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&part[0])), uintptr(len(part)),
			uintptr(unsafe.Pointer(&resident[0])))
		for at := 0; at < len(part); at += pageSize {
			if failed != 0 || resident[at/pageSize]&1 != 0 {
				touch(part[at:])
			}
		}
	}
}

// openAgain makes another handle on an open file, whatever its name is by now.
func openAgain(f *os.File) (*os.File, error) {
	again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if errors.Is(err, os.ErrNotExist) {
		again, err = os.Open(f.Name()) // there is no /proc
	}
	return again, err
}

// writesFailed returns the error that the system has met since it was last asked by this
// handle in writing the file, that of a flush of [off, off+n) that has just ended included.
func writesFailed(f *os.File, off, n uint64) error {
	err := eintr.Repeat(func() error {
		return unix.SyncFileRange(int(f.Fd()), int64(off), int64(n), unix.SYNC_FILE_RANGE_WAIT_BEFORE)
	})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil // not of this system, or of this kind of file
	}
	return err
}
