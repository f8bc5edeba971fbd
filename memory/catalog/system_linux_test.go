package catalog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"txnode/memory"
	"txnode/memory/layout"
)

// TestSystemErrors: what the system refuses, since the disk is full or the process has too many
// files open, is not taken for damage: who is told that restores a backup.
func TestSystemErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	try := func(errno error, want bool) {
		t.Helper()
		b, err := OpenBolt(path, false)
		if err == nil {
			var rev layout.Revision
			if _, rev, err = b.Load(); err == nil {
				_, err = b.Apply(rev, []layout.Entry{{Key: "k", Value: []byte("v")}})
			}
			_ = b.Close()
		}
		if !errors.Is(err, errno) || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("%v: %v", errno, err)
		}
		if errors.Is(err, memory.ErrNoSpace) != want || want && !strings.Contains(err.Error(), "make room") {
			t.Errorf("a full disk: %v; %v", want, err)
		}
	}
	full := func(string, int, os.FileMode) (*os.File, error) { return os.OpenFile("/dev/full", os.O_RDWR, 0) }
	none := func(name string, _ int, _ os.FileMode) (*os.File, error) {
		return nil, &os.PathError{Op: "open", Path: name, Err: unix.EMFILE}
	}
	defer func() { openFile, update = os.OpenFile, (*bolt.DB).Update }()
	for range 2 { // when it is made, and when it is opened
		openFile = none
		try(unix.EMFILE, false)
		if _, err := os.Stat(path); err != nil {
			openFile = full
			try(unix.ENOSPC, true)
		}
		openFile = os.OpenFile
		update = func(*bolt.DB, func(*bolt.Tx) error) error {
			return &os.PathError{Op: "write", Path: path, Err: unix.EDQUOT}
		}
		try(unix.EDQUOT, true)
		update = (*bolt.DB).Update
	}
	b, err := OpenBolt(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Apply(b.rev, []layout.Entry{{Key: "k", Value: []byte("v")}}); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
