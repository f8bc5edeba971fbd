package embedded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
	for _, full := range []error{unix.ENOSPC, unix.EDQUOT} {
		writeOwner = func(*os.File) error { return full }
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
	}
	writeOwner = func(*os.File) error { return unix.EIO }
	if _, err := lockDir(dir, false); !errors.Is(err, unix.EIO) {
		t.Errorf("a disk that fails: %v", err)
	}
}

// TestLockOfAnotherUser: a directory whose LOCK can only be read, since root has made it, is locked
// for writing. The file stays as it is.
func TestLockOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, lockName)
	if err := os.WriteFile(path, []byte("process 7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	defer func() { makeLock = os.OpenFile }()
	makeLock = func(name string, _ int, _ fs.FileMode) (*os.File, error) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: unix.EACCES}
	}
	l, err := lockDir(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, shared := range []bool{false, true} {
		if _, err := lockDir(dir, shared); !errors.Is(err, ErrLocked) {
			t.Errorf("shared %v, beside a writer: %v", shared, err)
		}
	}
	if err := l.release(); err != nil {
		t.Fatal(err)
	}
	if p, err := os.ReadFile(path); err != nil || string(p) != "process 7\n" {
		t.Errorf("LOCK is %q, %v", p, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(dir, false); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a directory that cannot be written to: %v", err)
	}
}

// TestReadOnlyWithoutLock: a copy of a database without its LOCK, on a file system that is
// read-only, can be read, by several, and by nobody beside a writer.
func TestReadOnlyWithoutLock(t *testing.T) {
	o := Options{Dir: t.TempDir(), BladeSize: 4 << 20, SegmentSize: 256 << 10, LogArea: 64 << 10}
	mustOpen := func(o Options) *Database {
		t.Helper()
		d, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	mustClose := func(d *Database) {
		t.Helper()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	noLock := func() {
		t.Helper()
		if err := os.Remove(filepath.Join(o.Dir, lockName)); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(mustOpen(o))
	noLock()
	defer func() { makeLock = os.OpenFile }()
	makeLock = func(name string, _ int, _ fs.FileMode) (*os.File, error) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: unix.EROFS}
	}
	ro := Options{Dir: o.Dir, ReadOnly: true}
	if _, err := Open(o); !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "opened with ReadOnly") {
		t.Errorf("for writing: %v", err)
	}
	first, second := mustOpen(ro), mustOpen(ro)
	mustClose(second)
	makeLock = os.OpenFile // it is mounted for writing, too
	if _, err := Open(o); !errors.Is(err, ErrLocked) {
		t.Errorf("a writer beside a reader: %v", err)
	}
	mustClose(first)
	d := mustOpen(o)
	noLock()
	if _, err := Open(ro); !errors.Is(err, ErrLocked) {
		t.Errorf("a reader beside a writer: %v", err)
	}
	mustClose(d)
}
