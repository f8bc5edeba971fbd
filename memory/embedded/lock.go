package embedded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const lockName = "LOCK"

// lockDir locks the directory without waiting. The lock is released when the
// file is closed, or the process ends.
func lockDir(dir string, shared bool) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil && shared {
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, fmt.Errorf("embedded: lock: %w", err)
	}
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	for {
		err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		owner, _ := io.ReadAll(io.LimitReader(f, 64))
		_ = f.Close()
		return nil, fmt.Errorf("%w: %s is open%s; close it there first", ErrLocked, dir, by(owner))
	}
	if err == nil && !shared {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt(fmt.Appendf(nil, "process %d\n", os.Getpid()), 0)
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("embedded: lock %s: %w", path, err)
	}
	return f, nil
}

// by says who has the lock: what the last exclusive owner wrote, if it is still
// that one.
func by(owner []byte) string {
	if s := strings.TrimSpace(string(owner)); strings.HasPrefix(s, "process ") {
		return " in " + s
	}
	return " elsewhere"
}
