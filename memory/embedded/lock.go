package embedded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
)

const lockName = "LOCK"

// dirLock is the lock on a directory. It is released with the process, too.
type dirLock struct {
	file   *os.File
	shared bool
}

// lockDir locks the directory without waiting. Who has it to itself writes his
// name into the file, and takes it out again; so do those who share it with what a
// process has left that died. Who shares it where there is no LOCK and none can be made, as in a copy on a
// file system that is read-only, goes without (nil): the catalog is locked in the same way, by everybody
// who has the database open, and for as long.
func lockDir(dir string, shared bool) (*dirLock, error) {
	path := filepath.Join(dir, lockName)
	f, err := makeLock(path, os.O_RDWR|os.O_CREATE, 0o644)
	writable := err == nil
	if err != nil && shared {
		if f, err = os.Open(path); errors.Is(err, fs.ErrNotExist) {
			return nil, nil //nolint:nilnil // it is unlocked
		}
	}
	if errors.Is(err, unix.EROFS) {
		return nil, fmt.Errorf("memory: lock: %w; there it can be opened with ReadOnly", err)
	}
	if err != nil {
		return nil, fmt.Errorf("memory: lock: %w", err)
	}
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	err = eintr.Repeat(func() error { return unix.Flock(int(f.Fd()), how|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		owner, _ := io.ReadAll(io.LimitReader(f, 64))
		_ = f.Close()
		return nil, fmt.Errorf("%w: %s is open%s; close it there first", ErrLocked, dir, by(owner))
	}
	switch {
	case err != nil:
	case !shared:
		if err = f.Truncate(0); err == nil {
			err = writeOwner(f)
		}
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			err = nil // it is locked without a name: on a full disk somebody wants to delete something
		}
	case writable:
		err = f.Truncate(0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("memory: lock %s: %w", path, err)
	}
	return &dirLock{f, shared}, nil
}

// makeLock opens LOCK, or makes it, but in tests.
var makeLock = os.OpenFile

// writeOwner writes who has the lock, but in tests.
var writeOwner = func(f *os.File) error {
	_, err := f.WriteAt(fmt.Appendf(nil, "process %d\n", os.Getpid()), 0)
	return err
}

// release unlocks the directory.
func (l *dirLock) release() error {
	var err error
	if !l.shared {
		err = l.file.Truncate(0)
	}
	return errors.Join(err, l.file.Close())
}

// by says who has the lock, if he has written it.
func by(owner []byte) string {
	if s := strings.TrimSpace(string(owner)); strings.HasPrefix(s, "process ") {
		return " in " + s
	}
	return " elsewhere, perhaps by several who read it"
}
