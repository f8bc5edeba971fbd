package catalog_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/catalog/catalogtest"
	"txnode/memory/layout"
)

func openBolt(t *testing.T, path string) *catalog.Bolt {
	t.Helper()
	c, err := catalog.OpenBolt(path, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestBolt(t *testing.T) {
	catalogtest.Test(t,
		func(t *testing.T) layout.Catalog { return openBolt(t, filepath.Join(t.TempDir(), "c.db")) },
		func(t *testing.T, c layout.Catalog) layout.Catalog {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			return openBolt(t, c.Name())
		})
}

func TestMem(t *testing.T) {
	catalogtest.Test(t,
		func(t *testing.T) layout.Catalog { return &catalog.Mem{} },
		func(t *testing.T, c layout.Catalog) layout.Catalog {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			return c
		})
}

// TestLocked: whoever comes second is told at once; two readers share.
func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	c := openBolt(t, path)
	waiting := make(chan error, 1)
	go func() {
		_, err := c.Await(context.Background(), 100)
		waiting <- err
	}()
	defer func() {
		if err := <-waiting; !errors.Is(err, memory.ErrClosed) {
			t.Errorf("closed while it is waited for: %v", err)
		}
	}()
	for _, ro := range []bool{false, true} {
		done := make(chan error, 1)
		go func() {
			_, err := catalog.OpenBolt(path, ro)
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, catalog.ErrLocked) || !strings.Contains(err.Error(), path) {
				t.Errorf("readOnly %v: %v", ro, err)
			}
		case <-time.After(5 * time.Minute):
			t.Fatal("it waits for the lock")
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if rev, err := c.Await(context.Background(), 7); rev != 0 || !errors.Is(err, memory.ErrClosed) {
		t.Errorf("Await after Close: %d, %v", rev, err)
	}
	if _, _, err := c.Load(); !errors.Is(err, memory.ErrClosed) {
		t.Errorf("Load after Close: %v", err)
	}
	if _, err := c.Apply(0, nil); !errors.Is(err, memory.ErrClosed) {
		t.Errorf("Apply after Close: %v", err)
	}
	var readers []*catalog.Bolt
	for range 2 {
		r, err := catalog.OpenBolt(path, true)
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	_, rev, err := readers[0].Load()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readers[0].Apply(rev, []layout.Entry{{Key: "a", Value: []byte("b")}}); err == nil {
		t.Error("a read-only catalog was changed")
	}
	if _, err := catalog.OpenBolt(path, false); !errors.Is(err, catalog.ErrLocked) {
		t.Errorf("a writer beside readers: %v", err)
	}
	for _, r := range readers {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestNotACatalog(t *testing.T) {
	dir := t.TempDir()
	if _, err := catalog.OpenBolt(filepath.Join(dir, "none.db"), true); !errors.Is(err, catalog.ErrNotFound) {
		t.Errorf("nothing, read-only: %v", err)
	}
	for name, content := range map[string][]byte{
		"empty": {}, "short": []byte("hello"), "text": bytes.Repeat([]byte("hello "), 20_000),
		"zeroes": make([]byte, 1<<16),
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := catalog.OpenBolt(path, false)
		if err == nil {
			_, _, err = c.Load()
			_ = c.Close()
		}
		if !errors.Is(err, catalog.ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := filepath.Join(dir, "other.db")
	db, err := bolt.Open(other, 0o644, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(func(tx *bolt.Tx) error {
		_,
			err := tx.CreateBucket([]byte("theirs"))
		return err
	}), db.Close()); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{false, true} {
		if _, err := catalog.OpenBolt(other, readOnly); !errors.Is(err, catalog.ErrDamaged) ||
			!strings.Contains(err.Error(), "something else") {
			t.Errorf("another program's: %v", err)
		}
	}
}

// TestIdentity: a file has an identity of its own, and its revisions go on where they were. One
// of an earlier release has none until it is opened for writing, and keeps what it has; a
// damaged one is an error.
func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	old, other := filepath.Join(dir, "old.db"), openBolt(t, filepath.Join(dir, "other.db"))
	db, err := bolt.Open(old, 0o644, nil)
	if err != nil {
		t.Fatal(err)
	}
	entries := []byte("txnode catalog")
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket(entries)
		return errors.Join(err, b.Put([]byte("a"), []byte("1")))
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	type state struct {
		id      layout.Identity
		rev     layout.Revision
		entries string
	}
	look := func(c *catalog.Bolt) (s state) {
		t.Helper()
		entries, rev, err := c.Load()
		id, e := c.Identity()
		now, e2 := c.Revision()
		if err := errors.Join(err, e, e2); err != nil || now != rev {
			t.Fatalf("%d and %d: %v", rev, now, err)
		}
		return state{id, rev, fmt.Sprint(entries)}
	}
	reader, err := catalog.OpenBolt(old, true)
	if err != nil {
		t.Fatal(err)
	}
	before := look(reader)
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	c := openBolt(t, old)
	first := look(c)
	if none := (layout.Identity{}); before.id != none || first.id == none || first.id == look(other).id ||
		first.entries != before.entries || first.rev < before.rev {
		t.Errorf("%v, opened for writing %v, and another one has %v", before, first, look(other))
	}
	next, err := c.Apply(first.rev, []layout.Entry{{Key: "b", Value: []byte("2")}})
	if err = errors.Join(err, c.Close()); err != nil || next <= first.rev {
		t.Fatalf("%d after %d, %v", next, first.rev, err)
	}
	for _, readOnly := range []bool{true, false} {
		if c, err = catalog.OpenBolt(old, readOnly); err != nil {
			t.Fatal(err)
		}
		if again := look(c); again.id != first.id || again.rev != next {
			t.Errorf("opened again: %v", again)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if db, err = bolt.Open(old, 0o644, nil); err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("txnode about")).Put([]byte("identity"), make([]byte, 20))
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.OpenBolt(old, false); !errors.Is(err, catalog.ErrDamaged) ||
		!strings.Contains(err.Error(), "identity") {
		t.Errorf("a damaged identity: %v", err)
	}
}

// TestLeftover: a catalog that was being created when the process was killed is
// created anew.
func TestLeftover(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	if err := os.WriteFile(path+".new", []byte("half a catalog"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := openBolt(t, path)
	if e, _, err := c.Load(); len(e) != 0 || err != nil {
		t.Errorf("%v, %v", e, err)
	}
}

// TestDamage flips bits all over the part that a small catalog uses, and cuts the
// file off at every page: opening and reading it is an error or gives what was
// there, or less of it, and so is changing it; it never panics, hangs or keeps
// the file locked.
func TestDamage(t *testing.T) {
	raced.Skip(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "c.db")
	c := openBolt(t, path)
	_, rev, _ := c.Load()
	for round := range 3 {
		var changes []layout.Entry
		for i := range 120 {
			changes = append(changes, layout.Entry{
				Key: fmt.Sprintf("key/%04d", i), Value: bytes.Repeat([]byte{byte(round)}, 90),
			})
		}
		var err error
		if rev, err = c.Apply(rev, changes); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad.db")
	harmless, noticed := 0, 0
	try := func(what string, content []byte) {
		t.Helper()
		if err := os.WriteFile(bad, content, 0o644); err != nil {
			t.Fatal(err)
		}
		writing := (harmless+noticed)%16 == 0 // it costs an fsync
		c, err := catalog.OpenBolt(bad, !writing)
		if err == nil {
			var rev layout.Revision
			_, rev, err = c.Load()
			if err == nil && writing {
				_, err = c.Apply(rev, []layout.Entry{{Key: "key/0007"}, {Key: "more", Value: make([]byte, 5000)}})
			}
			if e := c.Close(); err == nil {
				err = e
			}
		}
		switch {
		case err == nil:
			harmless++
		case errors.Is(err, catalog.ErrDamaged) && strings.Contains(err.Error(), bad):
			noticed++
		default:
			t.Errorf("%s: %v", what, err)
		}
	}
	step := 5
	if testing.Short() {
		step = 29
	}
	for at := 0; at < len(good); at += step {
		if good[at] == 0 && at%16 != 3 {
			continue // most of a page is blank
		}
		content := bytes.Clone(good)
		content[at] ^= 1 << (at % 8)
		try(fmt.Sprintf("a bit at %#x", at), content)
	}
	for n := 0; n < len(good); n += 1024 {
		try(fmt.Sprintf("%d bytes of %d", n, len(good)), good[:n])
	}
	if noticed == 0 || harmless == 0 {
		t.Errorf("%d harmless, %d noticed", harmless, noticed)
	}
	t.Logf("%d harmless, %d noticed, of a file of %d bytes", harmless, noticed, len(good))
}

// TestDamagedStructure changes each bit of what bbolt believes without looking: a
// damaged meta page, in whose place it takes the one of the commit before, and the list
// of free pages. Entries have checksums of their own.
func TestDamagedStructure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.db")
	c := openBolt(t, path)
	_, rev, _ := c.Load()
	for round := range 4 {
		var err error
		if rev, err = c.Apply(rev, []layout.Entry{{Key: "key", Value: make([]byte, 9000*round+1)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	word := func(at int) int { return int(binary.NativeEndian.Uint64(good[at:])) }
	size := int(binary.NativeEndian.Uint32(good[16+8:]))
	newest := 16
	if word(16+size+48) > word(16+48) {
		newest += size
	}
	list := word(newest+32) * size
	free := int(binary.NativeEndian.Uint16(good[list+10:]))
	if free == 0 {
		t.Fatal("no page is free")
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, part := range []struct{ from, to int }{
		{16, 16 + 64}, {size + 16, size + 16 + 64}, {list, list + 16 + free*8},
	} {
		for bit := part.from * 8; bit < part.to*8; bit++ {
			at := bit / 8
			if _, err := f.WriteAt([]byte{good[at] ^ 1<<(bit%8)}, int64(at)); err != nil {
				t.Fatal(err)
			}
			c, err := catalog.OpenBolt(path, true)
			if err == nil {
				err = c.Close()
			}
			if !errors.Is(err, catalog.ErrDamaged) {
				t.Errorf("bit %d of byte %#x: %v", bit%8, at, err)
			}
			if _, err := f.WriteAt(good[at:at+1], int64(at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	c = openBolt(t, path) // as it was
	if entries, _, err := c.Load(); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
