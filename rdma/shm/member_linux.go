package shm

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
)

// nameOffset is the offset of the lock of a server's name.
func nameOffset(name string) int64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name) // a hash returns no error
	return nameLock | int64(h.Sum64()&(nameLock-1))
}

// take takes a lock of one byte of an open file, unix.F_RDLCK or unix.F_WRLCK, and reports
// whether it has it: not if another open file has one that excludes it. What this one had of
// that byte is replaced.
func take(f *os.File, kind int16, at int64) (bool, error) {
	x := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: at, Len: 1}
	err := eintr.Repeat(func() error { return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &x) })
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("locking byte %#x of %s: %w", at, f.Name(), err)
	}
	return true, nil
}

// lives reports whether another open file than f has a lock of a byte.
func lives(f *os.File, at int64) (bool, error) {
	x := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: at, Len: 1}
	if err := eintr.Repeat(func() error { return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &x) }); err != nil {
		return false, fmt.Errorf("asking for the lock of byte %#x of %s: %w", at, f.Name(), err)
	}
	return x.Type != unix.F_UNLCK, nil
}
