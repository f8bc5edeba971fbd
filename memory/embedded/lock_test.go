package embedded

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLockOnFullDisk: a database on a full disk can be opened, though nobody can be told by
// whom. Other errors are errors.
func TestLockOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	was := writeOwner
	defer func() { writeOwner = was }()
	writeOwner = func(*os.File) error { return unix.ENOSPC }
	l, err := lockDir(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(dir, false); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("twice: %v", err)
	}
	if err := l.release(); err != nil {
		t.Fatal(err)
	}
	writeOwner = func(*os.File) error { return unix.EIO }
	if _, err := lockDir(dir, false); !errors.Is(err, unix.EIO) {
		t.Errorf("a disk that fails: %v", err)
	}
}
