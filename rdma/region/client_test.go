package region_test

import (
	"errors"
	"path/filepath"
	"strconv"
	"testing"

	"txnode/rdma"
	"txnode/rdma/fabrictest"
	"txnode/rdma/inproc"
)

// client is a thread on the in-process fabric, which is a set with a clock.
type client struct {
	*rdma.Thread
	t testing.TB
	f *inproc.Fabric
	b rdma.Batch
}

func blades(n int, size uint64, dir string) []inproc.BladeOptions {
	all := make([]inproc.BladeOptions, n)
	for i := range all {
		all[i] = inproc.BladeOptions{Size: size, Key: rdma.Key(100 + i)}
		if dir != "" {
			all[i].Path = filepath.Join(dir, strconv.Itoa(i))
		}
	}
	return all
}

func open(tb testing.TB, o inproc.Options) *inproc.Fabric {
	tb.Helper()
	f, err := inproc.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return f
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

// TestWithoutMembarrier: lanes that fence keep the contract of fabrics, all of it in the
// twin of exec. The in-process fabric runs the suite on exec.
func TestWithoutMembarrier(t *testing.T) {
	fabrictest.Run(t, func(tb testing.TB, n int, size uint64) rdma.Fabric {
		f := open(tb, inproc.Options{Blades: blades(n, size, ""), Seed: 3})
		f.Fence()
		return f
	})
	fabrictest.ReadOnly(t, func(tb testing.TB, size uint64) rdma.Fabric {
		b := blades(1, size, "")
		b[0].ReadOnly = true
		f := open(tb, inproc.Options{Blades: b})
		f.Fence()
		return f
	})
}
