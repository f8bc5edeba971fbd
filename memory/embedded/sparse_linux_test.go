package embedded_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"txnode/memory/layout"
)

// TestSparseCopy: a copy of a database that was made sparse gets the disk blocks of its segments
// when it is opened for writing, and not one by one when it is used, which would be a fault on
// a full disk.
func TestSparseCopy(t *testing.T) {
	o := small(t.TempDir())
	d := open(t, o)
	for range 3 {
		if _, err := d.Space().NewCoordinator(); err != nil {
			t.Fatal(err)
		}
	}
	l := d.Space().Layout()
	closeDB(t, d)
	path := filepath.Join(o.Dir, "blade-001.region")
	blocks := func() int64 {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	least := int64(layout.HeaderArea + l.Blades[1].Used*l.SegmentSize)
	if blocks() < least {
		t.Skip("this file system reserves nothing")
	}
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(p); at += 4096 {
		if page := p[at : at+4096]; !bytes.Equal(page, make([]byte, 4096)) {
			if _, err := f.WriteAt(page, int64(at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.Truncate(int64(len(p))); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if blocks() >= least {
		t.Fatal("it has no holes")
	}
	o.ReadOnly = true
	closeDB(t, open(t, o))
	if blocks() >= least {
		t.Error("who reads it writes")
	}
	o.ReadOnly = false
	closeDB(t, open(t, o))
	if n := blocks(); n < least {
		t.Errorf("%d bytes have disk blocks, of %d", n, least)
	}
}
