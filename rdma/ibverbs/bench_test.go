package ibverbs

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"txnode/rdma"
)

// idle is a thread on a device that does nothing, and says that all has succeeded.
func idle(tb testing.TB) (*rdma.Thread, rdma.RemoteAddr) {
	tb.Helper()
	n := newNetwork()
	h := serve(tb, n.device("fake0"), ServerOptions{Blades: sizes(1, 1<<16)})
	client := n.device("fake1")
	client.idle = true
	f := connect(tb, client, Options{}, h.addr)
	t, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 1 << 16})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := t.Close(); err != nil {
			tb.Error(err)
		}
		if err := f.Close(); err != nil {
			tb.Error(err)
		}
	})
	return t, rdma.RemoteAddr{Key: f.Known()[0].Key}
}

// mixed has n requests: what a transaction posts.
func mixed(b *rdma.Batch, at rdma.RemoteAddr, n int) {
	b.Reset()
	for i := range n {
		at.Off = uint64(i) * 64
		switch i % 4 {
		case 0:
			b.CAS(at, 0, 1)
		case 1, 2:
			b.Read(at, uint32(i)*64, 64)
		case 3:
			b.Write(at, uint32(i)*64, 64)
		}
	}
}

// processor is the time of the processor that this process has used, in nanoseconds.
func processor() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkParts is what parts of that cost in batches of 16: appending requests, all that Thread
// does, on a port that takes no time, and the calls of the device.
func BenchmarkParts(b *testing.B) {
	const n = 16
	t, at := idle(b)
	var batch rdma.Batch
	measure := func(name string, fn func()) {
		b.Run(name, func(b *testing.B) {
			began := processor()
			for b.Loop() {
				fn()
			}
			b.ReportMetric(float64(processor()-began)/float64(b.N)/n, "cpu-ns/request")
		})
	}
	measure("append", func() { mixed(&batch, at, n) })
	z, err := rdma.NewThread(atOnce{t.Fabric()}, rdma.ThreadOptions{Arena: 1 << 16})
	if err != nil {
		b.Fatal(err)
	}
	c := z.Plain()
	measure("thread", func() {
		mixed(&batch, at, n)
		if err := c.Do(&batch); err != nil {
			b.Fatal(err)
		}
	})
	measure("all", func() {
		mixed(&batch, at, n)
		if err := t.Plain().Do(&batch); err != nil {
			b.Fatal(err)
		}
	})
	if err := z.Close(); err != nil {
		b.Fatal(err)
	}
}

// atOnce is a fabric whose ports complete everything at once, and do nothing.
type atOnce struct{ rdma.Fabric }

func (atOnce) NewPort(c rdma.PortConfig) (rdma.Port, error) {
	return atOncePort(make([]byte, c.Arena)), nil
}

type atOncePort []byte

func (p atOncePort) Arena() []byte                 { return p }
func (p atOncePort) Post(b *rdma.Batch, first int) { b.CompleteRun(first, b.Len()-1, b.Len()-first) }
func (p atOncePort) Poll()                         {}
func (p atOncePort) Wait(int64)                    {}
func (p atOncePort) Now() int64                    { return 0 }
func (p atOncePort) Reset(rdma.BladeID) error      { return nil }
func (p atOncePort) Close() error                  { return nil }

// BenchmarkPost is what a request costs here: appended, encoded, posted in a batch and completed.
// The device takes no time, and is no call of C.
func BenchmarkPost(b *testing.B) {
	for _, n := range []int{1, 4, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			t, at := idle(b)
			c := t.Plain()
			var batch rdma.Batch
			b.ReportAllocs()
			began := processor()
			for b.Loop() {
				mixed(&batch, at, n)
				if err := c.Do(&batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(processor()-began)/float64(b.N)/float64(n), "cpu-ns/request")
		})
	}
}

func TestPostAllocatesNothing(t *testing.T) {
	thread, at := idle(t)
	c := thread.Plain()
	var batch rdma.Batch
	if got := testing.AllocsPerRun(1000, func() {
		mixed(&batch, at, 16)
		if err := c.Do(&batch); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("a batch of 16 requests allocates %v times", got)
	}
}
