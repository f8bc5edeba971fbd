package tcp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"txnode/rdma"
	"txnode/rdma/tcp"
)

// services of the tests: echo replies with the request, and others do what they are called.
func services() map[string]tcp.Service {
	return map[string]tcp.Service{
		"echo": func(_ context.Context, p []byte) ([]byte, error) { return p, nil },
		"fail": func(_ context.Context, p []byte) ([]byte, error) { return nil, errors.New(string(p)) },
		"code": func(context.Context, []byte) ([]byte, error) {
			return nil, fmt.Errorf("wrapped: %w", &tcp.CallError{Code: 7, Text: "seven"})
		},
		"much": func(context.Context, []byte) ([]byte, error) { return make([]byte, tcp.MaxMessage+1), nil },
		"wait": func(ctx context.Context, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return []byte("over"), nil
		},
	}
}

// serveServices serves services without blades until the test ends.
func serveServices(tb testing.TB, network string, o tcp.ServerOptions) *host {
	tb.Helper()
	s, err := tcp.NewServer(nil, o)
	if err != nil {
		tb.Fatal(err)
	}
	l, addr := listen(tb, network)
	h := &host{Server: s, addr: addr, served: make(chan error, 1)}
	go func() { h.served <- s.Serve(l) }()
	tb.Cleanup(h.shutdown)
	return h
}

// shutdown ends a server without blades.
func (h *host) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := errors.Join(h.Shutdown(ctx), <-h.served); err != nil {
		panic(err)
	}
	h.served <- nil
}

// caller connects to a service until the test ends.
func caller(tb testing.TB, addr, service string, o tcp.Options) *tcp.Caller {
	tb.Helper()
	c, err := tcp.DialService(tb.Context(), addr, service, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// TestService: requests of all sizes are answered, over all kinds of connections, beside
// blades and without.
func TestService(t *testing.T) {
	a := newAuthority(t)
	for _, x := range []struct {
		name, network string
		so            tcp.ServerOptions
		o             tcp.Options
	}{
		{"unix", "unix", tcp.ServerOptions{}, tcp.Options{}},
		{
			"tcp", "tcp", tcp.ServerOptions{Secret: []byte("correct horse battery staple")},
			tcp.Options{Secret: []byte("correct horse battery staple")},
		},
		{"TLS", "tcp", tcp.ServerOptions{TLS: a.server(t)}, tcp.Options{TLS: a.client(t)}},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.so.Services = services()
			alone := serveServices(t, x.network, x.so)
			beside := serve(t, x.network, regions(1, 1<<16), x.so)
			for _, h := range []*host{alone, beside} {
				c := caller(t, h.addr, "echo", x.o)
				if c.Address() != h.addr {
					t.Errorf("its address is %q", c.Address())
				}
				sizes := []int{0, 1, 15, 64 << 10, 64<<10 + 1, 3 << 20, 1}
				if h == alone && !testing.Short() {
					sizes = append(sizes, tcp.MaxMessage)
				}
				for _, n := range sizes {
					sent := bytes.Repeat([]byte{byte(n), 1, 2}, n/3+1)[:n]
					got, err := c.Call(t.Context(), sent)
					if err != nil || !bytes.Equal(got, sent) {
						t.Fatalf("%d bytes: %d, %v", n, len(got), err)
					}
				}
			}
			th := thread(t, dial(t, x.o, beside.addr))
			th.mustAdd(th.at(0, 0))
			th.close()
			if _, err := tcp.Dial(t.Context(), []string{alone.addr}, x.o); !errors.Is(err, tcp.ErrRefused) ||
				!strings.Contains(err.Error(), "blades") {
				t.Errorf("blades of a server that has none: %v", err)
			}
		})
	}
}

// TestServiceErrors: what a service says arrives as a text and a code, and the connection goes on.
func TestServiceErrors(t *testing.T) {
	h := serveServices(t, "unix", tcp.ServerOptions{Services: services()})
	for _, x := range []struct {
		service, request string
		code             uint32
		say              string
	}{
		{"code", "", 7, "wrapped: seven"},
		{"fail", "no reason", tcp.CodeFailed, "no reason"},
		{"fail", "", tcp.CodeFailed, ""},
		{"fail", strings.Repeat("long ", 1000), tcp.CodeFailed, strings.Repeat("long ", 1000)[:1024]},
		{"much", "", tcp.CodeFailed, fmt.Sprintf("the reply has %d bytes, more than %d",
			tcp.MaxMessage+1, tcp.MaxMessage)},
	} {
		c := caller(t, h.addr, x.service, tcp.Options{})
		for range 2 {
			var e *tcp.CallError
			if _, err := c.Call(t.Context(), []byte(x.request)); !errors.As(err, &e) || e.Code != x.code ||
				e.Error() != x.say {
				t.Errorf("%s %.20q: %v", x.service, x.request, err)
			}
		}
	}
	c := caller(t, h.addr, "echo", tcp.Options{})
	if _, err := c.Call(t.Context(), make([]byte, tcp.MaxMessage+1)); !errors.Is(err, tcp.ErrTooLong) {
		t.Errorf("a request too long: %v", err)
	}
	if _, err := c.Call(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if n := h.Connections(); n < 1 {
		t.Errorf("%d connections", n)
	}
}

// TestServiceRefused: whatever is wrong about a connection to a service is one error that says it.
func TestServiceRefused(t *testing.T) {
	var r reports
	one, two := []byte("the first secret of the two"), []byte("the second secret of the two")
	open := serveServices(t, "unix", tcp.ServerOptions{Services: services(), Report: r.add})
	with := serveServices(t, "unix", tcp.ServerOptions{Services: services(), Secret: one, Report: r.add})
	blades := serve(t, "unix", regions(1, 1<<16), tcp.ServerOptions{Report: r.add})
	for _, x := range []struct {
		name, addr, service string
		secret              []byte
		target              error
		say                 string
	}{
		{"no such service", open.addr, "ech", nil, tcp.ErrRefused, `"ech"`},
		{"no services", blades.addr, "echo", nil, tcp.ErrRefused, "no such service"},
		{"another secret", with.addr, "echo", two, tcp.ErrRefused, "secret"},
		{"no secret", with.addr, "echo", nil, tcp.ErrRefused, "secret"},
		{"a secret too many", open.addr, "echo", two, tcp.ErrRefused, "secret"},
		{"no name", open.addr, "", nil, tcp.ErrOptions, "1 to 16"},
		{"a long name", open.addr, strings.Repeat("x", 17), nil, tcp.ErrOptions, "1 to 16"},
		{"a name with a space", open.addr, "a b", nil, tcp.ErrOptions, "spaces"},
		{"no address", "here", "echo", nil, tcp.ErrOptions, "unix:PATH"},
	} {
		_, err := tcp.DialService(t.Context(), x.addr, x.service, tcp.Options{Secret: x.secret})
		if !errors.Is(err, x.target) || !strings.Contains(err.Error(), x.say) || strings.Contains(err.Error(), "\n") ||
			errors.Is(err, tcp.ErrNoAnswer) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
	r.await(4, tcp.ErrRefused)
	a := newAuthority(t)
	trusted, plain := serveServices(t, "tcp", tcp.ServerOptions{Services: services(), TLS: a.server(t)}),
		serveServices(t, "tcp", tcp.ServerOptions{Services: services()})
	stranger := a.client(t)
	stranger.RootCAs = newAuthority(t).pool
	unknown := a.client(t)
	unknown.Certificates = newAuthority(t).client(t).Certificates
	for _, x := range []struct {
		name, addr string
		conf       *tls.Config
		say        string
	}{
		{"a server of another authority", trusted.addr, stranger, "unknown authority"},
		{"a client of another authority", trusted.addr, unknown, "tls"},
		{"a client without TLS", trusted.addr, nil, trusted.addr},
		{"a server without TLS", plain.addr, a.client(t), "TLS"},
	} {
		_, err := tcp.DialService(t.Context(), x.addr, "echo", tcp.Options{TLS: x.conf, Connect: 10 * time.Second})
		if err == nil || !strings.Contains(err.Error(), x.say) || !strings.Contains(err.Error(), x.addr) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", x.name, err)
		}
	}
	if _, err := tcp.DialService(t.Context(), open.addr, "echo", tcp.Options{Control: -1}); !errors.Is(err,
		tcp.ErrOptions) {
		t.Errorf("wrong options: %v", err)
	}
	for name, o := range map[string]tcp.ServerOptions{
		"no services":  {},
		"a wrong name": {Services: map[string]tcp.Service{"a b": services()["echo"]}},
		"no function":  {Services: map[string]tcp.Service{"a": nil}},
	} {
		if _, err := tcp.NewServer(nil, o); !errors.Is(err, tcp.ErrOptions) {
			t.Errorf("a server without blades, %s: %v", name, err)
		}
	}
}

// TestServiceComesBack: a call whose server goes away has no answer and is not repeated, and the
// next one reaches the server that has come back.
func TestServiceComesBack(t *testing.T) {
	var calls atomic.Int64
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	o := tcp.ServerOptions{Services: map[string]tcp.Service{"count": func(ctx context.Context,
		p []byte) ([]byte, error) {
		if len(p) > 0 {
			arrived <- struct{}{}
			<-release
		}
		return fmt.Append(nil, calls.Add(1)), nil
	}}}
	h := serveServices(t, "unix", o)
	c := caller(t, h.addr, "count", tcp.Options{})
	if got, err := c.Call(t.Context(), nil); err != nil || string(got) != "1" {
		t.Fatalf("%q, %v", got, err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := c.Call(context.Background(), []byte("x"))
		failed <- err
	}()
	<-arrived
	now, cancel := context.WithCancel(t.Context())
	cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- h.Shutdown(now) }()
	if err := <-failed; !errors.Is(err, tcp.ErrNoAnswer) || !strings.Contains(err.Error(), h.addr) {
		t.Errorf("a call whose server is gone: %v", err)
	}
	close(release)
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := c.Call(t.Context(), nil); !errors.Is(err, tcp.ErrNoAnswer) || !strings.Contains(err.Error(), h.addr) {
		t.Errorf("without a server: %v", err)
	}
	s, err := tcp.NewServer(nil, o)
	if err != nil {
		t.Fatal(err)
	}
	network, address, _ := strings.Cut(h.addr, ":")
	for range 2 {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		again := &host{Server: s, served: make(chan error, 1)}
		go func() { again.served <- s.Serve(l) }()
		was := calls.Load()
		got, err := c.Call(t.Context(), nil)
		for errors.Is(err, tcp.ErrNoAnswer) { // the end of the connection arrives behind the server's
			got, err = c.Call(t.Context(), nil)
		}
		if err != nil || string(got) != fmt.Sprint(was+1) {
			t.Fatalf("%q, %v", got, err)
		}
		again.shutdown()
		if s, err = tcp.NewServer(nil, o); err != nil {
			t.Fatal(err)
		}
	}
	if n := calls.Load(); n != 4 {
		t.Errorf("%d requests were executed", n)
	}
}

// TestCallEnds: a context that ends, and Close, end a call; the service learns that its client is
// gone.
func TestCallEnds(t *testing.T) {
	left := make(chan struct{}, 8)
	arrived := make(chan struct{}, 8)
	h := serveServices(t, "unix",
		tcp.ServerOptions{Services: map[string]tcp.Service{"wait": func(ctx context.Context, p []byte) ([]byte, error) {
			if len(p) == 0 {
				return nil, nil
			}
			arrived <- struct{}{}
			<-ctx.Done()
			left <- struct{}{}
			return nil, nil
		}}})
	c := caller(t, h.addr, "wait", tcp.Options{Control: 50 * time.Millisecond})
	if _, err := c.Call(t.Context(), []byte("x")); !errors.Is(err, context.DeadlineExceeded) ||
		!errors.Is(err, tcp.ErrNoAnswer) {
		t.Errorf("a service that is silent: %v", err)
	}
	<-arrived
	<-left
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	limited, stop := context.WithTimeout(ctx, time.Hour)
	defer stop()
	if _, err := c.Call(limited, []byte("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is canceled: %v", err)
	}
	<-left
	if _, err := c.Call(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended before: %v", err)
	}
	if _, err := c.Call(t.Context(), nil); err != nil {
		t.Errorf("after canceled calls: %v", err)
	}

	// Close ends a call under way, and one that waits for its turn.
	failed := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := c.Call(unending(t), []byte("x"))
			failed <- err
		}()
	}
	<-arrived
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-failed; !errors.Is(err, rdma.ErrClosed) {
			t.Errorf("a call that Close has ended: %v", err)
		}
	}
	if _, err := c.Call(t.Context(), nil); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("a call after Close: %v", err)
	}
	ended(t, "tcp.(*line)")
}

// unending is a context with a deadline that does not come.
func unending(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	return ctx
}

// ended waits until no goroutine is in a function: one that has done its work, like
// context.AfterFunc's, may take a moment more to return.
func ended(t *testing.T, function string) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s := stacks()
		if !strings.Contains(s, function) {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("a goroutine is left:\n%s", s)
		}
	}
}

// stacks are those of all goroutines.
func stacks() string {
	p := make([]byte, 1<<20)
	return string(p[:runtime.Stack(p, true)])
}

// TestServiceShutdown: a service that waits is told, and its reply still arrives; nothing of
// the server is left.
func TestServiceShutdown(t *testing.T) {
	h := serveServices(t, "tcp", tcp.ServerOptions{Services: services()})
	c := caller(t, h.addr, "wait", tcp.Options{})
	idle := caller(t, h.addr, "echo", tcp.Options{})
	type answer struct {
		p   []byte
		err error
	}
	got := make(chan answer, 1)
	go func() {
		p, err := c.Call(context.Background(), []byte("x"))
		got <- answer{p, err}
	}()
	for !strings.Contains(stacks(), "tcp_test.services.func5") {
		time.Sleep(time.Millisecond)
	}
	if err := h.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if a := <-got; a.err != nil || string(a.p) != "over" {
		t.Errorf("%q, %v", a.p, a.err)
	}
	if n := h.Connections(); n != 0 {
		t.Errorf("%d connections after Shutdown", n)
	}
	ended(t, "tcp.(*Server).requests")
	if _, err := idle.Call(t.Context(), nil); !errors.Is(err, tcp.ErrNoAnswer) {
		t.Errorf("a call after Shutdown: %v", err)
	}
}

// TestServiceGarbage: clients that send something else than requests lose their
// connections; others go on.
func TestServiceGarbage(t *testing.T) {
	var r reports
	h := serveServices(t, "unix", tcp.ServerOptions{
		Services: services(), Report: r.add, Timeout: 50 * time.Millisecond,
	})
	honest := caller(t, h.addr, "echo", tcp.Options{})
	hello := tcp.ServiceFrame("echo")
	greet := func(sends ...[]byte) net.Conn {
		for { // a machine that is busy may be late with the hello
			c := raw(t, h.addr, append([][]byte{hello, make([]byte, tcp.ProofSize)}, sends...)...)
			if _, err := io.ReadFull(c, make([]byte, tcp.ChallengeSize+tcp.WelcomeSize)); err == nil {
				return c
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	wrong := bytes.Clone(hello)
	wrong[60] = 'x' // behind the end of the name
	conns := []net.Conn{
		raw(t, h.addr, wrong),
		greet(tcp.MessageFrame(1, 0, tcp.MaxMessage+1, "")),
		greet(tcp.MessageFrame(1, 1, 1, "x")),
		greet(tcp.MessageFrame(2, 0, 1, "x")),
		greet(bytes.Repeat([]byte{0x88}, 1<<20)),
	}
	r.await(len(conns), tcp.ErrProtocol)
	late := []net.Conn{
		raw(t, h.addr, hello),                                 // no proof
		greet(tcp.MessageFrame(1, 0, 5, "")[:7]),              // a part of a head
		greet(tcp.MessageFrame(1, 0, 5, "hell")),              // a part of a body
		greet(tcp.MessageFrame(1, 0, tcp.MaxMessage, "hell")), // hardly any of a body
	}
	for _, c := range append(conns, late...) {
		_, _ = io.Copy(io.Discard, c) // its error may be a reset
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if got, err := honest.Call(t.Context(), []byte("x")); err != nil || string(got) != "x" {
		t.Errorf("an honest client: %q, %v", got, err)
	}
	// A client that does not take a long reply loses its connection; what follows a request waits.
	mute := greet(tcp.MessageFrame(1, 0, 4<<20, string(make([]byte, 4<<20))), tcp.MessageFrame(2, 0, 1, "x"))
	for h.Connections() > 1 {
		time.Sleep(time.Millisecond)
	}
	if err := mute.Close(); err != nil {
		t.Error(err)
	}
}

// TestServiceSilent: a server that is stopped does not answer, and the call ends in time.
func TestServiceSilent(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		p := spawn(t, "service", network)
		c := caller(t, p.addr, "echo", tcp.Options{Control: 200 * time.Millisecond, Connect: 200 * time.Millisecond})
		if err := p.cmd.Process.Signal(unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		for { // the signal takes its time
			if _, err := c.Call(t.Context(), nil); err != nil {
				if !errors.Is(err, tcp.ErrNoAnswer) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", network, err)
				}
				break
			}
		}
		if _, err := tcp.DialService(t.Context(), p.addr, "echo",
			tcp.Options{Connect: 50 * time.Millisecond}); !errors.Is(err, tcp.ErrNoAnswer) {
			t.Errorf("%s: %v", network, err)
		}
		if err := p.cmd.Process.Signal(unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := c.Call(t.Context(), nil); err == nil {
				break
			}
		}
		p.kill(t)
		for {
			if _, err := c.Call(t.Context(), nil); err != nil {
				if !errors.Is(err, tcp.ErrNoAnswer) {
					t.Errorf("%s: a killed server: %v", network, err)
				}
				break
			}
		}
	}
}

// TestServicesBound: the connections of services count like those of blades.
func TestServicesBound(t *testing.T) {
	h := serve(t, "unix", regions(1, 1<<16), tcp.ServerOptions{Connections: 2, Services: services()})
	one := caller(t, h.addr, "echo", tcp.Options{})
	two := caller(t, h.addr, "echo", tcp.Options{})
	if _, err := tcp.DialService(t.Context(), h.addr, "echo", tcp.Options{}); !errors.Is(err, tcp.ErrRefused) ||
		!strings.Contains(err.Error(), "connections") {
		t.Errorf("one more than there may be: %v", err)
	}
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	for {
		three, err := tcp.DialService(t.Context(), h.addr, "echo", tcp.Options{})
		if err == nil {
			if err := three.Close(); err != nil {
				t.Error(err)
			}
			break
		}
	}
	if _, err := one.Call(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
