package tcp_test

import (
	"reflect"
	"runtime"
	"testing"
	"time"

	"txnode/rdma"
	"txnode/rdma/tcp"
)

// TestStats: a server counts what each blade was asked for, by verb, also of connections that have
// ended; long requests count once, and refusals apart.
func TestStats(t *testing.T) {
	h := serve(t, "unix", regions(2, 1<<20), tcp.ServerOptions{
		Secret: []byte("correct horse battery staple"), Services: services(),
	})
	o := tcp.Options{Secret: []byte("correct horse battery staple")}
	c := thread(t, dial(t, o, h.addr))
	a := c.at(1, 0)
	for range 3 {
		c.b.Reset()
		c.b.Read(a, 4096, 64)
		c.b.Read(a, 4096, 13)
		c.b.Write(a, 4096, 200)
		c.b.CAS(a, 1, 2)
		c.b.FAA(a, 1)
		c.b.MaskedCAS(a, 1, 2, 0)
		c.b.Flush(a, 64)
		c.b.Read(a, 8192, 256<<10)
		c.b.Write(a, 8192, 200<<10)
		if err := c.Plain().Do(&c.b); err != nil {
			t.Fatal(err)
		}
	}
	var want tcp.BladeStats
	want.Verbs = [rdma.NumOps]uint64{
		rdma.OpRead: 9, rdma.OpWrite: 6, rdma.OpCAS: 3, rdma.OpFAA: 3, rdma.OpMaskedCAS: 3, rdma.OpFlush: 3,
	}
	want.BytesRead, want.BytesWritten = 3*(64+13+(256<<10)), 3*(200+(200<<10))
	want.Connections = 1
	if got := h.Server.Stats().Blades[1]; got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
	// One that fails takes the one behind it along.
	c.b.Reset()
	c.b.FAA(rdma.RemoteAddr{Blade: 1, Key: a.Key + 77, Off: 8}, 1)
	c.b.FAA(a, 1)
	if err := c.Plain().Do(&c.b); err == nil {
		t.Error("a wrong key has opened the blade")
	}
	if got := h.Server.Stats().Blades[1]; got.Failed != 2 || got.Verbs[rdma.OpFAA] != 5 {
		t.Errorf("%+v", got)
	}
	if s := h.Server.Stats(); s.Connections < 2 || int(s.Accepted) < s.Connections || s.Refused != 0 || s.Failed != 0 ||
		len(s.Blades) != 2 || s.Blades[0].Verbs != [rdma.NumOps]uint64{} {
		t.Errorf("%+v", s)
	}
	if _, err := tcp.Dial(t.Context(), []string{h.addr},
		tcp.Options{Secret: []byte("another secret, as long")}); err == nil {
		t.Error("a wrong secret is accepted")
	}
	k := caller(t, h.addr, "echo", o)
	if _, err := k.Call(t.Context(), []byte("x")); err != nil {
		t.Error(err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	c.close()
	// The server counts a connection when it has ended it, which is behind what the
	// client hears of it.
	s := h.Server.Stats()
	for end := time.Now().Add(10 * time.Second); (s.Connections > 0 || s.Refused == 0) &&
		time.Now().Before(end); s = h.Server.Stats() {
		runtime.Gosched()
	}
	want.Connections, want.Failed = 0, 2
	want.Verbs[rdma.OpFAA] = 5
	if s.Refused != 1 || s.Calls != 1 || !reflect.DeepEqual(s.Blades[1], want) {
		t.Errorf("behind the end of all connections: %+v; want %+v", s, want)
	}
}
