package catalog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"txnode/memory/layout"
)

// TestSettle: who opens a catalog for writing has the system write what it has of it in memory:
// a process that was killed had not flushed it yet, or its disk had failed. The pages of the
// tree come before those that lead to them, and nobody who reads writes anything.
func TestSettle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.db")
	b, err := OpenBolt(path, false)
	if err != nil {
		t.Fatal(err)
	}
	var entries []layout.Entry
	for i := range 200 {
		entries = append(entries, layout.Entry{Key: string(rune('a' + i)), Value: make([]byte, 100)})
	}
	if _, err := b.Apply(b.rev, entries); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	// Its pages are dirty when it is flushed, and again when it is flushed for the second time.
	var written []uint64
	fsync = func(f *os.File) error {
		n, err := dirtyPages(f)
		if err != nil { // it cannot be told here
			n = 1 << 20
		}
		written = append(written, n)
		return f.Sync()
	}
	defer func() { fsync = (*os.File).Sync }()
	for _, readOnly := range []bool{false, true} {
		written = nil
		if b, err = OpenBolt(path, readOnly); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if least := uint64(len(entries) * 100 / os.Getpagesize()); readOnly != (len(written) == 0) || !readOnly &&
			(len(written) != 2 || written[0] < least || written[1] == 0) {
			t.Errorf("read-only %v: pages to be written, by flushes: %d", readOnly, written)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("it is another one: %v", err)
	}

	for n := range 2 {
		fsync = func(f *os.File) error {
			if n--; n < 0 {
				return unix.EIO
			}
			return f.Sync()
		}
		if _, err := OpenBolt(path, false); !errors.Is(err, unix.EIO) || errors.Is(err, ErrDamaged) {
			t.Errorf("the disk fails: %v", err)
		}
	}
	fsync = (*os.File).Sync
	if b, err = OpenBolt(path, false); err != nil {
		t.Fatal(err)
	}
	if got, _, err := b.Load(); err != nil || len(got) != len(entries) {
		t.Errorf("opened again: %d entries, %v", len(got), err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNoFile: what has the name of a catalog, and is none, is said to be none, and not waited for.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, pipe} {
		for _, readOnly := range []bool{false, true} {
			done := make(chan error, 1)
			go func() {
				_, err := OpenBolt(path, readOnly)
				done <- err
			}()
			select {
			case err := <-done:
				if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "is no file") {
					t.Errorf("%s: %v", path, err)
				}
			case <-time.After(5 * time.Minute):
				t.Fatalf("%s is waited for", path)
			}
		}
	}
}
