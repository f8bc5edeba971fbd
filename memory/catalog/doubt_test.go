package catalog

import (
	"errors"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"txnode/memory/layout"
)

// TestDoubtfulCommit: the disk fails behind the last write of a change, which whoever reads
// the file sees, and which is on no disk. It does not count as made, and the catalog is of
// no use until it is opened again. A change that has failed before that does no harm.
func TestDoubtfulCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.db")
	b, err := OpenBolt(path, false)
	if err != nil {
		t.Fatal(err)
	}
	rev, err := b.Apply(b.rev, []layout.Entry{{Key: "a", Value: []byte("1")}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { update = (*bolt.DB).Update }()
	two := []layout.Entry{{Key: "a", Value: []byte("2")}}
	update = func(db *bolt.DB, fn func(*bolt.Tx) error) error {
		return db.Update(func(tx *bolt.Tx) error { return errors.Join(fn(tx), unix.ENOSPC) })
	}
	if _, err := b.Apply(rev, two); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is full: %v", err)
	}
	if entries, now, err := b.Load(); err != nil || now != rev || len(entries) != 1 || string(entries[0].Value) != "1" {
		t.Fatalf("after that: %q, %d, %v", entries, now, err)
	}
	update = func(db *bolt.DB, fn func(*bolt.Tx) error) error { return errors.Join(db.Update(fn), unix.EIO) }
	if _, err := b.Apply(rev, two); !errors.Is(err, unix.EIO) {
		t.Fatalf("the disk fails: %v", err)
	}
	update = (*bolt.DB).Update
	if entries, _, err := b.Load(); !errors.Is(err, unix.EIO) {
		t.Errorf("then it says that it has %q, %v", entries, err)
	}
	if _, err := b.Apply(rev, two); !errors.Is(err, unix.EIO) {
		t.Errorf("then it takes changes: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err = OpenBolt(path, false); err != nil {
		t.Fatal(err)
	}
	if entries, _, err := b.Load(); err != nil || len(entries) != 1 || string(entries[0].Value) != "2" {
		t.Errorf("opened again: %q, %v", entries, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestInterrupted: a signal interrupts a change before it is in the file. The change is made again.
func TestInterrupted(t *testing.T) {
	b, err := OpenBolt(filepath.Join(t.TempDir(), "catalog.db"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	defer func() { update = (*bolt.DB).Update }()
	left := 3
	update = func(db *bolt.DB, fn func(*bolt.Tx) error) error {
		return db.Update(func(tx *bolt.Tx) error {
			if err := fn(tx); err != nil || left == 0 {
				return err
			}
			left--
			return unix.EINTR
		})
	}
	_, rev, err := b.Load()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Apply(rev, []layout.Entry{{Key: "k", Value: []byte("v")}}); err != nil || left != 0 {
		t.Fatalf("%v, with %d interruptions left", err, left)
	}
	if got, _, err := b.Load(); err != nil || len(got) != 1 || got[0].Key != "k" {
		t.Errorf("%v, %v; want the one entry", got, err)
	}
}
