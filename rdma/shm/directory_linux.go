package shm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
	"txnode/rdma"
)

// checkDirectory returns an error for a directory that another user may put files into. A server's
// must be its user's. A client of root's may use that of any user.
func checkDirectory(dir string, server bool) error {
	var st unix.Stat_t
	err := eintr.Repeat(func() error { return unix.Stat(dir, &st) })
	me := uint32(os.Geteuid())
	switch {
	case errors.Is(err, unix.ENOENT) && !server:
		return fmt.Errorf("%w: %s: %w: %w", ErrDirectory, dir, err, rdma.ErrBladeDown)
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrDirectory, dir, err)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%w: %s is no directory", ErrDirectory, dir)
	case st.Uid != me && (server || me != 0):
		return fmt.Errorf("%w: %s belongs to user %d, and this process to user %d: give a directory of this user's",
			ErrDirectory, dir, st.Uid, me)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("%w: other users may write to %s (mode %04o): chmod 700 %s, or give another directory",
			ErrDirectory, dir, st.Mode&0o7777, dir)
	}
	return nil
}

// ownFile returns an error for an open file of a directory that is not of the directory's user, or
// is of another kind.
func ownFile(f *os.File, dir string) error {
	var st, of unix.Stat_t
	err := eintr.Repeat(func() error { return unix.Fstat(int(f.Fd()), &st) })
	if err == nil {
		err = eintr.Repeat(func() error { return unix.Stat(dir, &of) })
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrDirectory, f.Name(), err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return damaged(f.Name(), "it is no regular file")
	case st.Uid != of.Uid:
		return damaged(f.Name(), "it belongs to user %d, and the directory to user %d", st.Uid, of.Uid)
	case st.Mode&0o077 != 0:
		if err := f.Chmod(0o600); err != nil {
			return fmt.Errorf("%w: %w", ErrDirectory, err)
		}
	}
	return nil
}

// readHeader reads the header of a file into n bytes, and tells the file's size.
func readHeader(f *os.File, to unsafe.Pointer, n uintptr) (size int64, err error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	_, err = io.ReadFull(io.NewSectionReader(f, 0, headerSize), unsafe.Slice((*byte)(to), n))
	return st.Size(), err
}

// mapShared maps the first bytes of a file for all processes. A child that is forked does not have
// them: it would be no member.
func mapShared(f *os.File, size int) ([]byte, error) {
	p, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	if err := eintr.Repeat(func() error { return unix.Madvise(p, unix.MADV_DONTFORK) }); err != nil {
		_ = unix.Munmap(p) // the error is another
		return nil, err
	}
	return p, nil
}
