package inproc_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"txnode/rdma"
	"txnode/rdma/inproc"
)

// TestReserveErrors: a full disk is ErrNoMemory, in words that name the file.
func TestReserveErrors(t *testing.T) {
	for _, full := range []error{unix.ENOSPC, unix.EDQUOT} {
		if err := inproc.ReserveError("/some/blade", full); !errors.Is(err, rdma.ErrNoMemory) || !errors.Is(err, full) || !strings.Contains(err.Error(), "/some/blade") {
			t.Errorf("%v: %v", full, err)
		}
	}
	for _, fine := range []error{nil, unix.EOPNOTSUPP} {
		if err := inproc.ReserveError("", fine); err != nil {
			t.Errorf("%v: %v", fine, err)
		}
	}
	if err := inproc.ReserveError("/some/blade", unix.EIO); errors.Is(err, rdma.ErrNoMemory) || !errors.Is(err, unix.EIO) {
		t.Errorf("EIO: %v", err)
	}
}

// TestFlushFailsForGood: the disk fails once. What the system could not write is forgotten,
// and it says of the next flush that all is well: so does not FLUSH, of anything on that
// blade, until its file is opened again.
func TestFlushFailsForGood(t *testing.T) {
	dir := t.TempDir()
	c := connect(t, open(t, inproc.Options{Blades: blades(2, 1<<20, dir)}))
	broken := false
	restore := inproc.SetMsync(func(p []byte, flags int) error {
		if broken {
			broken = false
			return unix.EIO
		}
		return unix.Msync(p, flags)
	})
	defer restore()
	if err := c.write(0, 0, "eight by"); err != nil {
		t.Fatal(err)
	}
	broken = true
	for _, off := range []uint64{0, 0, 1 << 19} {
		if err := c.write(0, off, "eight by"); !errors.Is(err, rdma.ErrVerb) {
			t.Errorf("a flush at %#x, the disk has failed: %v", off, err)
		}
		if err := c.Reconnect(0); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.write(1, 0, "eight by"); err != nil {
		t.Errorf("of the other blade: %v", err)
	}
	if got := c.read(0, 1<<19, 8); got != "eight by" {
		t.Errorf("a READ behind it: %q", got)
	}
	c.close()
	c = connect(t, open(t, inproc.Options{Blades: blades(2, 1<<20, dir)}))
	defer c.close()
	if err := c.write(0, 0, "eight by"); err != nil {
		t.Errorf("opened again: %v", err)
	}
}
