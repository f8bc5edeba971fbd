package ibverbs

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"txnode/rdma"
	"txnode/rdma/fabrictest"
	"txnode/rdma/tcp"
)

// host is a server in this process, with its control path.
type host struct {
	*Server
	control *tcp.Server
	addr    string
	served  chan error
}

// serve serves blades on a device until the test ends.
func serve(tb testing.TB, dev device, o ServerOptions) *host {
	tb.Helper()
	return serveAt(tb, "127.0.0.1:0", dev, o)
}

func serveAt(tb testing.TB, at string, dev device, o ServerOptions) *host {
	tb.Helper()
	s, err := newServer(dev, o)
	if err != nil {
		tb.Fatal(err)
	}
	so := tcp.ServerOptions{Elsewhere: s, Services: map[string]tcp.Service{ServiceName: s.Answer}}
	if f := EnvFiles(tb); f != nil {
		so.Credentials = f.Server
	}
	control, err := tcp.NewServer(nil, so)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		tb.Fatal(err)
	}
	h := &host{Server: s, control: control, addr: "rdma:" + l.Addr().String(), served: make(chan error, 1)}
	go func() { h.served <- control.Serve(l) }()
	tb.Cleanup(h.stop)
	return h
}

// stop ends the server: nothing of it may be left.
func (h *host) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := errors.Join(h.control.Shutdown(ctx), <-h.served, h.Server.Close()); err != nil {
		panic(err)
	}
	h.served <- nil
}

func sizes(n int, size uint64) []uint64 {
	all := make([]uint64, n)
	for i := range all {
		all[i] = size
	}
	return all
}

// connect connects to servers over a device.
func connect(tb testing.TB, dev device, o Options, addresses ...string) *Fabric {
	tb.Helper()
	f, err := dial(tb.Context(), dev, addresses, o)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// drilled is a fabric whose blades can be stopped, by way of their host.
type drilled struct {
	*Fabric
	s *Server
}

func (d drilled) StopBlade(b rdma.BladeID) error              { return d.s.StopBlade(b) }
func (d drilled) RestartBlade(b rdma.BladeID, mem bool) error { return d.s.RestartBlade(b, mem) }

// TestConformance runs the suite on devices in software. TestDevice does on one of the kernel.
func TestConformance(t *testing.T) {
	conform(t, func(testing.TB) (server, client device) {
		n := newNetwork()
		a, b := n.device("fake0"), n.device("fake1")
		a.flush, b.flush = true, true
		return a, b
	})
}

// patient is for a device in an emulator, which may stand still for seconds on a busy host.
var patient = tcp.Options{Seed: 1, Verb: time.Minute}

func conform(t *testing.T, devices func(tb testing.TB) (server, client device)) {
	fabrictest.Run(t, func(tb testing.TB, n int, size uint64) rdma.Fabric {
		server, client := devices(tb)
		h := serve(tb, server, ServerOptions{Blades: sizes(n, size)})
		return drilled{connect(tb, client, Options{TCP: patient}, h.addr), h.Server}
	})
	t.Run("read-only", func(t *testing.T) {
		fabrictest.ReadOnly(t, func(tb testing.TB, size uint64) rdma.Fabric {
			server, client := devices(tb)
			h := serve(tb, server, ServerOptions{Blades: sizes(1, size), ReadOnly: true})
			return connect(tb, client, Options{TCP: patient}, h.addr)
		})
	})
}
