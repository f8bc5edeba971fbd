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
	"txnode/internal/owndir"
)

const lockName = "LOCK"

// dirLock is the lock on a directory. It is released with the process, too.
type dirLock struct {
	file  *os.File
	named bool // the name of this process is in it
}

// lockDir locks the directory without waiting. A process that has the directory to itself writes
// its name into the file, and takes it out again; the name of one that has died may stay. A
// process that shares the directory makes and changes nothing. Where there is no LOCK it goes
// without (nil): the catalog is locked in the same way, by every process that has the database
// open, and for as long.
func lockDir(dir string, shared bool) (*dirLock, error) {
	path := filepath.Join(dir, lockName)
	if shared {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil //nolint:nilnil // it is unlocked
		}
		if err != nil {
			return nil, fmt.Errorf("memory: lock: %w", err)
		}
		return lock(f, dir, unix.LOCK_SH)
	}
	f, err := makeLock(path, os.O_RDWR|os.O_CREATE, owndir.FileMode)
	named := err == nil
	if errors.Is(err, fs.ErrPermission) { // another user has made it, as root; what can be read can be locked
		if r, e := os.Open(path); e == nil {
			f, err = r, nil
		}
	}
	if errors.Is(err, unix.EROFS) {
		return nil, fmt.Errorf("memory: lock: %w; there it can be opened with ReadOnly", err)
	}
	if err != nil {
		return nil, fmt.Errorf("memory: lock: %w", err)
	}
	l, err := lock(f, dir, unix.LOCK_EX)
	if err != nil || !named {
		return l, err
	}
	l.named = true
	if err = f.Truncate(0); err == nil {
		err = writeOwner(f)
	}
	// on a full disk, where something is to be deleted, it has no name
	if err != nil && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		_ = f.Close()
		return nil, fmt.Errorf("memory: lock %s: %w", path, err)
	}
	return l, nil
}

// lock locks LOCK of a directory, or closes it.
func lock(f *os.File, dir string, how int) (*dirLock, error) {
	flock := func(how int) error {
		return eintr.Repeat(func() error { return unix.Flock(int(f.Fd()), how|unix.LOCK_NB) })
	}
	err := flock(how)
	if errors.Is(err, unix.EWOULDBLOCK) {
		var owner []byte
		// else readers share it, and the name is that of a process that has died
		if how == unix.LOCK_SH || flock(unix.LOCK_SH) != nil {
			owner, _ = io.ReadAll(io.LimitReader(f, 64))
		}
		_ = f.Close()
		return nil, fmt.Errorf("%w: %s is open%s; close it there first", ErrLocked, dir, by(owner))
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("memory: lock %s: %w", f.Name(), err)
	}
	return &dirLock{file: f}, nil
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
	if l.named {
		err = l.file.Truncate(0)
	}
	return errors.Join(err, l.file.Close())
}

// by says what has the lock, if that has written its name.
func by(owner []byte) string {
	if s := strings.TrimSpace(string(owner)); strings.HasPrefix(s, "process ") {
		return " in " + s
	}
	return " elsewhere, perhaps by several that read it"
}
