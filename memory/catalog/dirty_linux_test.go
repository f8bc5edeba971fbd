package catalog

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dirtyPages is how many pages of a file the system has still to write.
func dirtyPages(f *os.File) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || fs.Type == unix.TMPFS_MAGIC {
		return 0, errors.Join(err, errors.ErrUnsupported) // it has no disk
	}
	var all struct{ off, length uint64 }
	var stat struct{ cached, dirty, writeback, evicted, recent uint64 }
	if _, _, err := unix.Syscall6(unix.SYS_CACHESTAT, f.Fd(), uintptr(unsafe.Pointer(&all)),
		uintptr(unsafe.Pointer(&stat)), 0, 0, 0); err != 0 {
		return 0, err
	}
	return stat.dirty + stat.writeback, nil
}
