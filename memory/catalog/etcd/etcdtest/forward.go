package etcdtest

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

// forward forwards connections to a port of loopback to a unix socket until the test ends, and
// returns the address. The port stays the same while the server behind the socket is away, which a
// port of its own would not.
func forward(t *testing.T, path string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() {
		end()
		_ = l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { join(ctx, in, path) })
		}
	})
	return l.Addr().String()
}

// join forwards one connection until one of its sides closes it, or ctx ends.
func join(ctx context.Context, in net.Conn, path string) {
	out, err := net.Dial("unix", path)
	if err != nil {
		_ = in.Close()
		return
	}
	var one sync.WaitGroup
	closed := func() { _, _ = in.Close(), out.Close() }
	stop := context.AfterFunc(ctx, closed)
	defer stop()
	for _, c := range [][2]net.Conn{{in, out}, {out, in}} {
		one.Go(func() {
			defer closed()
			_, _ = io.Copy(c[0], c[1]) // until one is closed
		})
	}
	one.Wait()
}
