package inproc_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"txnode/rdma"
	"txnode/rdma/fabrictest"
	"txnode/rdma/inproc"
)

// client is a thread on a fabric.
type client struct {
	*rdma.Thread
	t testing.TB
	f *inproc.Fabric
	b rdma.Batch
}

func connect(t testing.TB, f *inproc.Fabric) *client {
	t.Helper()
	th, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return &client{Thread: th, t: t, f: f}
}

// close closes the thread and the fabric.
func (c *client) close() {
	c.t.Helper()
	if err := errors.Join(c.Thread.Close(), c.f.Close()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) at(b rdma.BladeID, off uint64) rdma.RemoteAddr {
	return rdma.RemoteAddr{Blade: b, Key: c.f.Blades()[b].Key, Off: off}
}

func (c *client) write(b rdma.BladeID, off uint64, p string) error {
	copy(c.Bytes(0, uint32(len(p))), p)
	c.b.Reset()
	c.b.Write(c.at(b, off), 0, uint32(len(p)))
	c.b.Flush(c.at(b, off), uint32(len(p)))
	return c.Plain().Do(&c.b)
}

func (c *client) read(b rdma.BladeID, off uint64, n uint32) string {
	c.t.Helper()
	c.b.Reset()
	c.b.Read(c.at(b, off), 4096, n)
	if err := c.Plain().Do(&c.b); err != nil {
		c.t.Fatal(err)
	}
	return string(c.Bytes(4096, n))
}

// TestFlushes: several FLUSHes of a batch are executed at once, and fail as if one came
// after the other.
func TestFlushes(t *testing.T) {
	c := connect(t, open(t, inproc.Options{Blades: blades(2, 1<<20, t.TempDir())}))
	defer c.close()
	for _, bad := range []int{-1, 0, 7, 39} {
		c.b.Reset()
		for i := range 40 {
			at := c.at(rdma.BladeID(i%2), uint64(i)*8192)
			c.b.Write(at, 0, 8)
			if i == bad {
				at.Off = 1 << 20
			}
			c.b.Flush(at, 8)
		}
		for i := range 40 {
			at := c.at(rdma.BladeID(i%2), uint64(i)*8192)
			if i == bad {
				at.Off = 1 << 20
			}
			c.b.Flush(at, 100)
		}
		err := c.Plain().Do(&c.b)
		if (err == nil) != (bad < 0) {
			t.Errorf("bad %d: %v", bad, err)
		}
		for i := range c.b.Len() {
			w, want := c.b.WR(i), rdma.StatusOK
			switch first := 2*bad + 1; {
			case bad < 0 || int(w.Blade) != bad%2 || i < first:
			case i == first:
				want = rdma.StatusBounds
			default:
				want = rdma.StatusFlushed
			}
			if w.Status != want {
				t.Errorf("bad %d: request %d is %v, want %v", bad, i, w.Status, want)
			}
		}
		if err := c.Reconnect(rdma.BladeID(max(bad, 0) % 2)); err != nil {
			t.Fatal(err)
		}
		// A run of them, in which the first is good.
		c.b.Reset()
		for i := range 20 {
			at := c.at(rdma.BladeID(i%2), 0)
			if i == bad {
				at.Off = 1 << 20
			}
			c.b.Flush(at, 8)
		}
		_ = c.Plain().Do(&c.b)
		for i := range 20 {
			want := rdma.StatusOK
			switch {
			case bad < 0 || i%2 != bad%2 || i < bad:
			case i == bad:
				want = rdma.StatusBounds
			default:
				want = rdma.StatusFlushed
			}
			if got := c.b.WR(i).Status; got != want {
				t.Errorf("bad %d: FLUSH %d is %v, want %v", bad, i, got, want)
			}
		}
		if err := c.Reconnect(rdma.BladeID(max(bad, 0) % 2)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFilesPersist: a fabric on files has its data again, also in larger regions.
func TestFilesPersist(t *testing.T) {
	dir := t.TempDir()
	c := connect(t, open(t, inproc.Options{Blades: blades(2, 1<<20, dir)}))
	if !c.Caps().Durable {
		t.Error("a fabric on files is not durable")
	}
	for b := range rdma.BladeID(2) {
		if got := c.read(b, 1<<20-8, 8); got != strings.Repeat("\x00", 8) {
			t.Errorf("a new file begins with %q", got)
		}
		if err := c.write(b, 1<<20-8, "blade-"+string('0'+rune(b))+"!"); err != nil {
			t.Fatal(err)
		}
	}
	c.close()

	c = connect(t, open(t, inproc.Options{Blades: blades(2, 1<<21, dir)}))
	for b := range rdma.BladeID(2) {
		if got, want := c.read(b, 1<<20-8, 9), "blade-"+string('0'+rune(b))+"!\x00"; got != want {
			t.Errorf("blade %d has %q; want %q", b, got, want)
		}
	}
	c.close()
	if st, err := os.Stat(filepath.Join(dir, "1")); err != nil || st.Size() != 1<<21 {
		t.Errorf("the file of an extended blade: %v, %v", st.Size(), err)
	}
}

// TestFilesAreSparse: disk is used as it is provisioned.
func TestFilesAreSparse(t *testing.T) {
	dir := t.TempDir()
	f := open(t, inproc.Options{Blades: blades(1, 1<<30, dir)})
	used := func() int64 {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, "0"), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	if n := used(); n > 1<<20 {
		t.Skipf("the file system gives a sparse file %d bytes", n)
	}
	before := used()
	if err := f.Provision(0, 1<<29, 1<<20); err != nil {
		t.Fatal(err)
	}
	if n := used() - before; n < 1<<20 {
		t.Errorf("after provisioning a megabyte the file has %d bytes more", n)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestReadOnlyFile: a read-only blade needs no more than permission to read.
func TestReadOnlyFile(t *testing.T) {
	dir := t.TempDir()
	c := connect(t, open(t, inproc.Options{Blades: blades(1, 1<<16, dir)}))
	if err := c.write(0, 64, "written before"); err != nil {
		t.Fatal(err)
	}
	c.close()
	path := filepath.Join(dir, "0")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}

	o := blades(1, 1<<16, dir)
	o[0].ReadOnly = true
	c = connect(t, open(t, inproc.Options{Blades: o}))
	if got := c.read(0, 64, 14); got != "written before" {
		t.Errorf("read %q", got)
	}
	var v *rdma.VerbError
	if err := c.write(0, 64, "after"); !errors.As(err, &v) || v.Status != rdma.StatusAccess {
		t.Errorf("WRITE: %v", err)
	}
	if err := c.f.Provision(0, 0, 1<<16); err != nil {
		t.Errorf("Provision: %v", err)
	}
	c.close()
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file changed, or %v", err)
	}

	o[0].Size = 1 << 17
	if _, err := inproc.New(inproc.Options{Blades: o}); err == nil ||
		!strings.Contains(err.Error(), "fewer than the read-only blade's") {
		t.Errorf("read-only, the file too small: %v", err)
	}
	o[0].Path = filepath.Join(dir, "none")
	if _, err := inproc.New(inproc.Options{Blades: o}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("read-only, without a file: %v", err)
	}
	if _, err := os.Stat(o[0].Path); !errors.Is(err, os.ErrNotExist) {
		t.Error("opening a read-only blade made a file")
	}
}

func TestNewErrors(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, "long")
	if err := os.WriteFile(long, make([]byte, 1<<17), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name   string
		blades []inproc.BladeOptions
		say    string
	}{
		{"no blades", nil, "0 blades"},
		{"too many blades", make([]inproc.BladeOptions, 4097), "4097 blades"},
		{"no size", []inproc.BladeOptions{{}}, "multiple of 64 KiB"},
		{"odd size", []inproc.BladeOptions{{Size: 1<<16 + 64}}, "multiple of 64 KiB"},
		{"too large", []inproc.BladeOptions{{Size: 1 << 47}}, "64 TiB"},
		{
			"a larger file", []inproc.BladeOptions{{Size: 1 << 16, Path: long}},
			"has 131072 bytes, more than the blade's 65536",
		},
		{"a directory", []inproc.BladeOptions{{Size: 1 << 16, Path: dir}}, dir},
		{
			"a path that is not", []inproc.BladeOptions{{Size: 1 << 16, Path: filepath.Join(dir, "a", "b")}},
			"no such file",
		},
		{
			"a file on huge pages", []inproc.BladeOptions{{Size: 1 << 21, Path: long, HugePages: true}},
			"cannot be on huge pages",
		},
		{"the second blade", []inproc.BladeOptions{{Size: 1 << 16}, {Size: 1}}, "blade 1: "},
		{"half a huge page", []inproc.BladeOptions{{Size: 1 << 20, HugePages: true}}, "huge pages"},
		{"more huge pages than anyone has", []inproc.BladeOptions{{Size: 1 << 45, HugePages: true}}, "huge pages"},
	} {
		if f, err := inproc.New(inproc.Options{Blades: x.blades}); err == nil || !strings.Contains(err.Error(), x.say) {
			t.Errorf("%s: %v; want an error that says %q", x.name, err, x.say)
			if f != nil {
				f.Close()
			}
		}
	}
	if st, err := os.Stat(long); err != nil || st.Size() != 1<<17 {
		t.Errorf("the larger file was changed: %v", err)
	}
}

// TestClosed: a closed fabric says so; a thread that was closed posts nothing.
func TestClosed(t *testing.T) {
	f := open(t, inproc.Options{Blades: blades(2, 1<<16, "")})
	c := connect(t, f)
	if err := f.Close(); err == nil || !strings.Contains(err.Error(), "1 ports are still open") {
		t.Errorf("Close with a port open: %v", err)
	}
	if err := c.Thread.Close(); err != nil {
		t.Fatal(err)
	}
	c.b.Read(c.at(1, 0), 0, 8)
	if err := c.Plain().Do(&c.b); !errors.Is(err, rdma.ErrBladeDown) {
		t.Errorf("a verb on a closed thread: %v; want ErrBladeDown", err)
	}
	if err := c.Reconnect(1); !errors.Is(err, rdma.ErrBladeDown) {
		t.Errorf("Reconnect on a closed thread: %v; want ErrBladeDown", err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := rdma.NewThread(f, rdma.ThreadOptions{}); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("NewThread: %v; want ErrClosed", err)
	}
	if err := f.Provision(0, 0, 64); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("Provision: %v; want ErrClosed", err)
	}
	if _, err := f.Grant(0); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("Grant: %v; want ErrClosed", err)
	}
	if err := f.Revoke(0, 100); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("Revoke: %v; want ErrClosed", err)
	}
}

func TestArenaLimits(t *testing.T) {
	f := open(t, inproc.Options{Blades: blades(1, 1<<16, "")})
	for _, n := range []int{0, -1, 1 << 31, 1 << 40} {
		if _, err := f.NewPort(rdma.PortConfig{Arena: n}); err == nil {
			t.Errorf("an arena of %d bytes: no error", n)
		}
	}
	p, err := f.NewPort(rdma.PortConfig{Arena: 1<<31 - 1<<16})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Close(), p.Close(), f.Close()); err != nil {
		t.Error(err)
	}
}

// TestRevokeIsPrompt: Revoke does not wait for ports that are idle, whatever they
// did before.
func TestRevokeIsPrompt(t *testing.T) {
	f := open(t, inproc.Options{Blades: blades(1, 1<<16, "")})
	c := connect(t, f)
	for i := range 100 {
		c.b.Reset()
		for range i {
			c.b.Read(c.at(0, 1), 1, 3) // one at a time
			c.b.Read(c.at(0, 0), 0, 64)
			c.b.Write(c.at(0, uint64(i*1000)), 0, 8) // fails in the end
		}
		_ = c.Plain().Do(&c.b)
		if _, err := fabrictest.Rekey(f, 0); err != nil { // hangs if a port seems busy
			t.Fatal(err)
		}
		if err := c.Reconnect(0); err != nil {
			t.Fatal(err)
		}
	}
	c.close()
}
