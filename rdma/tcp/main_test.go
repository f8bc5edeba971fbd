package tcp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"txnode/rdma"
	"txnode/rdma/region"
	"txnode/rdma/tcp"
)

// regions are n writable blades of size bytes.
func regions(n int, size uint64) []region.Options {
	all := make([]region.Options, n)
	for i := range all {
		all[i] = region.Options{Size: size, Key: rdma.Key(100 + i)}
	}
	return all
}

// host is a server in this process.
type host struct {
	*region.Set
	*tcp.Server
	addr   string
	served chan error
}

var hosts atomic.Int64

// listen makes a listener of a network on an address that is free, and tells its name.
func listen(tb testing.TB, network string) (net.Listener, string) {
	tb.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "tcp") //nolint:usetesting // tb.TempDir is too long for a socket
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { os.RemoveAll(dir) })
		address = filepath.Join(dir, fmt.Sprint(hosts.Add(1)))
	}
	l, err := net.Listen(network, address)
	if err != nil {
		tb.Fatal(err)
	}
	return l, network + ":" + l.Addr().String()
}

// serve serves regions until the test ends.
func serve(tb testing.TB, network string, all []region.Options, o tcp.ServerOptions) *host {
	tb.Helper()
	set, err := region.New(region.Config{Regions: all, Seed: 1})
	if err != nil {
		tb.Fatal(err)
	}
	s, err := tcp.NewServer(set, o)
	if err != nil {
		tb.Fatal(err)
	}
	l, addr := listen(tb, network)
	h := &host{Set: set, Server: s, addr: addr, served: make(chan error, 1)}
	go func() { h.served <- s.Serve(l) }()
	tb.Cleanup(h.stop)
	return h
}

// stop ends the server and closes the regions: nothing of it may be left.
func (h *host) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := errors.Join(h.Shutdown(ctx), <-h.served, h.Set.Close()); err != nil {
		panic(err)
	}
	h.served <- nil
}

// dial connects to servers.
func dial(tb testing.TB, o tcp.Options, addresses ...string) *tcp.Fabric {
	tb.Helper()
	f, err := tcp.Dial(tb.Context(), addresses, o)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// drilled is a fabric whose blades can be stopped, by way of their host.
type drilled struct {
	*tcp.Fabric
	set *region.Set
}

func (d drilled) StopBlade(b rdma.BladeID) error              { return d.set.StopBlade(b) }
func (d drilled) RestartBlade(b rdma.BladeID, mem bool) error { return d.set.RestartBlade(b, mem) }
