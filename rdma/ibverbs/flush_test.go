package ibverbs

import (
	"testing"

	"txnode/rdma"
)

// TestFlush: a FLUSH is one of the device where both devices know it, and else a READ. Its key
// counts either way.
func TestFlush(t *testing.T) {
	for _, x := range []struct {
		server, client bool
	}{{true, true}, {true, false}, {false, true}} {
		n := newNetwork()
		server, client := n.device("fake0"), n.device("fake1")
		server.flush, client.flush = x.server, x.client
		h := serve(t, server, ServerOptions{Blades: sizes(1, 1<<16)})
		f := connect(t, client, Options{}, h.addr)
		thread, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		at := rdma.RemoteAddr{Key: f.Known()[0].Key, Off: 128}
		var b rdma.Batch
		b.Write(at, 0, 64)
		b.FAA(at, 1)
		b.Flush(at, 64)
		b.Read(at, 64, 64)
		b.Flush(at, 0)
		if err := thread.Plain().Do(&b); err != nil {
			t.Errorf("%+v: %v", x, err)
		}
		if want := x.server && x.client; (n.flushed == 1) != want {
			t.Errorf("%+v: devices have had %d FLUSHes", x, n.flushed)
		}
		b.Reset()
		at.Key ^= 2
		b.Flush(at, 64)
		if _ = thread.Plain().Do(&b); b.WR(0).Status != rdma.StatusKey {
			t.Errorf("%+v: a FLUSH by a wrong key ends with %v", x, b.WR(0).Status)
		}
		if err := thread.Close(); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
