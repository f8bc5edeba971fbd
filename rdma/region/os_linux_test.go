package region_test

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/rdma/region"
)

// TestReserveErrors: a full disk is ErrNoMemory, in words that name the file.
func TestReserveErrors(t *testing.T) {
	for _, full := range []error{unix.ENOSPC, unix.EDQUOT} {
		if err := region.ReserveError("/some/blade", full); !errors.Is(err, rdma.ErrNoMemory) ||
			!errors.Is(err, full) || !strings.Contains(err.Error(), "/some/blade") {
			t.Errorf("%v: %v", full, err)
		}
	}
	for _, fine := range []error{nil, unix.EOPNOTSUPP} {
		if err := region.ReserveError("", fine); err != nil {
			t.Errorf("%v: %v", fine, err)
		}
	}
	if err := region.ReserveError("/some/blade", unix.EIO); errors.Is(err, rdma.ErrNoMemory) ||
		!errors.Is(err, unix.EIO) {
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
	restore := region.SetMsync(func(p []byte, flags int) error {
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

// TestFlushAsksItself: of two flushes at the same time, the system tells one that the
// disk has failed, which may be the wrong one. Each asks by a handle of its own, so that the
// other one fails, too.
func TestFlushAsksItself(t *testing.T) {
	f := open(t, inproc.Options{Blades: blades(1, 1<<20, t.TempDir())})
	c, other := connect(t, f), connect(t, f)
	defer c.close()
	var asked []uintptr
	failed := false
	restore := region.SetWitnessed(func(f *os.File, _, _ uint64) error {
		asked = append(asked, f.Fd())
		if len(asked) == 1 { // which has not returned yet
			if err := other.write(0, 0, "eight by"); err != nil {
				t.Error(err)
			}
		}
		if failed {
			return unix.EIO
		}
		return nil
	})
	defer restore()
	for n := range 3 {
		failed = n == 1
		if err := c.write(0, 0, "eight by"); (err != nil) != (n > 0) || err != nil && !errors.Is(err, rdma.ErrVerb) {
			t.Errorf("the disk fails: %v, it has failed: %v: %v", failed, n > 1, err)
		}
		if err := c.Reconnect(0); err != nil {
			t.Fatal(err)
		}
	}
	other.Close()
	if len(asked) != 3 || asked[0] == asked[1] || asked[2] != asked[0] && asked[2] != asked[1] {
		t.Errorf("handles that were asked by: %v", asked)
	}
}

// TestFlushWithoutDescriptors: a process that can open no more files, as a server with too
// many clients, flushes one by one. It is not told that the disk has failed.
func TestFlushWithoutDescriptors(t *testing.T) {
	f := open(t, inproc.Options{Blades: blades(2, 1<<20, t.TempDir())})
	defer region.SetReopen(func(*os.File) (*os.File, error) { return nil, unix.EMFILE })()
	var clients sync.WaitGroup
	for range 8 {
		c := connect(t, f)
		clients.Go(func() {
			for i := range 20 {
				if err := c.write(rdma.BladeID(i%2), 0, "eight by"); err != nil {
					t.Error(err)
				}
			}
			c.Close()
		})
	}
	clients.Wait()
	_ = f.Close()

	dir := t.TempDir()
	if f, err := inproc.New(inproc.Options{Blades: blades(1, 1<<20, dir)}); !errors.Is(err, unix.EMFILE) ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("opened without a descriptor: %v, %v", f, err)
	}
}

// TestSettle: what the system has in memory of a file, and takes for written, is written
// again when the file is opened to be settled, and what it is asked for alone.
func TestSettle(t *testing.T) {
	dir := t.TempDir()
	c := connect(t, open(t, inproc.Options{Blades: blades(1, 1<<20, dir)}))
	for off := uint64(0); off < 1<<19; off += 1 << 12 {
		if err := c.write(0, off, "eight by"); err != nil { // and flushed
			t.Fatal(err)
		}
	}
	c.close()
	o := inproc.Options{Blades: blades(1, 1<<20, dir)}
	for _, settle := range []uint64{0, 1 << 18, 1 << 19, 1 << 40} {
		o.Blades[0].Settle = [][2]uint64{{0, settle / 2}, {settle / 2, settle - settle/2}}
		var again, flushed uint64
		restore := region.SetMsync(func(p []byte, flags int) error {
			again, flushed = again+dirty(t, o.Blades[0].Path), flushed+uint64(len(p))
			return unix.Msync(p, flags)
		})
		f := open(t, o)
		restore()
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if want := min(settle, 1<<20); flushed != want || again < min(want, 1<<19) || settle == 0 && again > 0 {
			t.Errorf("Settle %#x: %#x bytes were written again and %#x flushed", settle, again, flushed)
		}
	}
	restore := region.SetMsync(func([]byte, int) error { return unix.EIO })
	defer restore()
	if _, err := inproc.New(o); !errors.Is(err, unix.EIO) {
		t.Errorf("the disk fails: %v", err)
	}
}

// TestSync: what was written and not flushed is written to the disk, and a disk that has failed
// once is not believed.
func TestSync(t *testing.T) {
	dir := t.TempDir()
	f := open(t, inproc.Options{Blades: blades(1, 1<<20, dir)})
	c := connect(t, f)
	if err := c.write(0, 1<<12, "eight by"); err != nil {
		t.Fatal(err)
	}
	synced := 0
	restore := region.SetMsync(func(p []byte, flags int) error {
		synced += len(p)
		return unix.Msync(p, flags)
	})
	if err := f.Sync(0); err != nil || synced != 1<<20 {
		t.Errorf("%d bytes were written: %v", synced, err)
	}
	restore()
	if n := dirty(t, blades(1, 1<<20, dir)[0].Path); n != 0 {
		t.Errorf("%d bytes are not on the disk", n)
	}
	restore = region.SetMsync(func([]byte, int) error { return unix.EIO })
	if err := f.Sync(0); !errors.Is(err, unix.EIO) {
		t.Errorf("the disk fails: %v", err)
	}
	restore()
	if err := f.Sync(0); err == nil {
		t.Error("it has failed before")
	}
	if err := f.Sync(1); !errors.Is(err, rdma.ErrBladeDown) {
		t.Errorf("a blade that is not there: %v", err)
	}
	c.close()
	if err := f.Sync(0); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// dirty is how many bytes of a mapped file the system has to write.
func dirty(t *testing.T, path string) (n uint64) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	_, text, ok := strings.Cut(string(b), path+"\n")
	if !ok {
		t.Fatalf("%s is not mapped", path)
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 3 && (f[0] == "Shared_Dirty:" || f[0] == "Private_Dirty:") {
			k, err := strconv.ParseUint(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if n += k << 10; f[0] == "Private_Dirty:" {
				break
			}
		}
	}
	return n
}

// TestSmallPages: memory that is used here and there takes the pages that are used, and no huge
// ones.
func TestSmallPages(t *testing.T) {
	const huge, n = 2 << 20, 16
	f, err := inproc.New(inproc.Options{Blades: []inproc.BladeOptions{{Size: 2 * n * huge}}})
	if err != nil {
		t.Fatal(err)
	}
	f.AdviseSmall(0, n*huge, n*huge)
	f.AdviseSmall(0, 2*n*huge, huge) // it has no such part, nor such a blade
	f.AdviseSmall(1, 0, huge)
	port, err := f.NewPort(rdma.PortConfig{Arena: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	m := port.(rdma.Mapped).Mappings()[0]
	mem := unsafe.Slice((*byte)(m.Base), m.Size)[n*huge:]
	for at := 0; at < len(mem); at += huge {
		mem[at] = 1
	}
	pages := make([]byte, len(mem)/os.Getpagesize())
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)),
		uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		t.Fatal(errno)
	}
	if there := len(pages) - bytes.Count(pages, []byte{0}); there > 2*n {
		t.Errorf("%d pages were touched, and %d are there", n, there)
	}
	if err := errors.Join(port.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}
