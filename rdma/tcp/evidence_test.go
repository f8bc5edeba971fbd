package tcp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"txnode/rdma"
	"txnode/rdma/tcp"
)

// TestEvidenceOfErrors is the inventory: each error that a connection can end with, each number of
// the system's, and what it says of the server.
func TestEvidenceOfErrors(t *testing.T) {
	silent := []syscall.Errno{
		syscall.EPIPE, syscall.ENOENT, syscall.EAGAIN, syscall.ECONNABORTED, syscall.ECONNRESET, syscall.ETIMEDOUT,
		syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN,
	}
	want := map[error]rdma.Evidence{
		context.DeadlineExceeded:     rdma.Silent,
		os.ErrDeadlineExceeded:       rdma.Silent,
		io.EOF:                       rdma.Silent,
		io.ErrUnexpectedEOF:          rdma.Silent,
		context.Canceled:             rdma.Own,
		net.ErrClosed:                rdma.Own,
		tcp.ErrOptions:               rdma.Own,
		tcp.ErrInsecure:              rdma.Own,
		errors.New("something else"): rdma.Own,
		tcp.ErrRefused:               rdma.Alive,
		tcp.ErrProtocol:              rdma.Alive,
		tls.RecordHeaderError{}:      rdma.Alive,
		&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}: rdma.Alive,
		&net.OpError{
			Op: "remote error", Err: errors.New("tls: bad certificate"),
		}: rdma.Alive,
		&net.OpError{
			Op: "local error", Err: errors.New("tls: internal error"),
		}: rdma.Own,
		&net.DNSError{
			Err: "no such host", Name: "blade.example", IsNotFound: true,
		}: rdma.Own,
		&net.DNSError{
			Err: "i/o timeout", Name: "blade.example", IsTimeout: true, UnwrapErr: context.DeadlineExceeded,
		}: rdma.Own,
		errors.Join(context.Canceled,
			os.ErrDeadlineExceeded): rdma.Own,
		errors.Join(context.DeadlineExceeded,
			io.EOF): rdma.Silent,
	}
	called := func(no syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", no)}
	}
	for no := syscall.Errno(1); no < 256; no++ {
		switch {
		case no == syscall.ECONNREFUSED:
			want[called(no)] = rdma.Refused
		case slices.Contains(silent, no):
			want[called(no)] = rdma.Silent
		default:
			want[called(no)] = rdma.Own
		}
	}
	for err, want := range want {
		err = fmt.Errorf("in the middle: %w", err)
		for _, x := range []error{tcp.Down(err), tcp.Unwanted(err)} {
			if got := rdma.EvidenceOf(fmt.Errorf("blade 0: %w", x)); got != want {
				t.Errorf("%v: %v; want %v", x, got, want)
			}
		}
		if x := tcp.Unwanted(err); errors.Is(x, rdma.ErrSilent) || errors.Is(x, rdma.ErrBladeDown) {
			t.Errorf("%v is an error of a blade that does not answer", x)
		}
	}
}

// acceptor is a server that says p to each client, and closes the connection, or waits for its end.
func acceptor(t *testing.T, p []byte, wait bool) string {
	t.Helper()
	l, addr := listen(t, "tcp")
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				hello := make([]byte, len(tcp.HelloFrame(true, 0)))
				if _, err := io.ReadFull(c, hello); err != nil {
					return
				}
				_, _ = c.Write(p) // the client finds out
				if wait {
					_, _ = c.Read(hello)
				}
			}()
		}
	}()
	return addr
}

// TestEvidence: what servers do, and what this process is short of, by what the errors of Dial say.
func TestEvidence(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	secret, wrong := []byte("sixteen bytes or more"), []byte("sixteen bytes, others")
	safe := serve(t, "tcp", regions(1, 1<<16), tcp.ServerOptions{TLS: a.server(t)})
	secrets := serve(t, "tcp", regions(1, 1<<16), tcp.ServerOptions{Secret: secret})
	open := serve(t, "tcp", regions(1, 1<<16), tcp.ServerOptions{})
	full := serve(t, "tcp", regions(1, 1<<16), tcp.ServerOptions{Connections: 1})
	defer dial(t, tcp.Options{}, full.addr).Close()
	l, nobody := listen(t, "tcp")
	left, leftAddr := listen(t, "unix")
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(l.Close(), left.Close()); err != nil {
		t.Fatal(err)
	}
	with := func(change func(c *tls.Config)) tcp.Options {
		c := a.client(t)
		change(c)
		return tcp.Options{TLS: c}
	}
	for name, x := range map[string]struct {
		addr string
		o    tcp.Options
		want rdma.Evidence
	}{
		"nothing listens":             {nobody, tcp.Options{}, rdma.Refused},
		"nothing listens on a socket": {leftAddr, tcp.Options{}, rdma.Refused},
		"no socket":                   {"unix:" + filepath.Join(t.TempDir(), "s"), tcp.Options{}, rdma.Silent},
		"no answer": {
			acceptor(t, nil, true), tcp.Options{Connect: 20 * time.Millisecond}, rdma.Silent,
		},
		"an answer of something else": {
			acceptor(t, []byte(strings.Repeat("220 mail.example ", 8)), true), tcp.Options{}, rdma.Alive,
		},
		"too many connections":           {full.addr, tcp.Options{}, rdma.Alive},
		"another secret":                 {secrets.addr, tcp.Options{Secret: wrong}, rdma.Alive},
		"no secret":                      {secrets.addr, tcp.Options{}, rdma.Alive},
		"a secret that it does not have": {open.addr, tcp.Options{Secret: secret}, rdma.Alive},
		"its certificate is not accepted": {
			safe.addr, with(func(c *tls.Config) { c.RootCAs = other.pool }), rdma.Alive,
		},
		"its certificate has another name": {
			safe.addr, with(func(c *tls.Config) { c.ServerName = "blade.example" }), rdma.Alive,
		},
		"ours is of another authority": {
			safe.addr, with(func(c *tls.Config) { c.Certificates = other.client(t).Certificates }), rdma.Alive,
		},
		"ours has expired": {
			safe.addr,
			with(func(c *tls.Config) { c.Certificates = []tls.Certificate{a.leaf(t, -time.Hour)} }), rdma.Alive,
		},
		"ours cannot be had": {safe.addr, with(func(c *tls.Config) {
			c.Certificates = nil
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return nil, errors.New("no card in the reader")
			}
		}), rdma.Own},
	} {
		_, err := tcp.Dial(t.Context(), []string{x.addr}, x.o)
		if got := rdma.EvidenceOf(err); got != x.want {
			t.Errorf("%s: %v: %v; want %v", name, err, got, x.want)
		}
		if _, err := tcp.DialService(t.Context(), x.addr, "none", x.o); rdma.EvidenceOf(err) != x.want {
			t.Errorf("%s: a service: %v: %v; want %v", name, err, rdma.EvidenceOf(err), x.want)
		}
	}
	t.Run("end of the greeting", func(t *testing.T) {
		for n := range tcp.ChallengeSize {
			_, err := tcp.Dial(t.Context(), []string{acceptor(t, make([]byte, n), false)}, tcp.Options{})
			if got := rdma.EvidenceOf(err); got != rdma.Silent {
				t.Errorf("after %d bytes: %v: %v", n, err, got)
			}
		}
	})
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := tcp.Dial(ctx, []string{open.addr}, tcp.Options{}); rdma.EvidenceOf(err) != rdma.Own {
			t.Errorf("%v: %v", err, rdma.EvidenceOf(err))
		}
	})
	t.Run("no descriptors", func(t *testing.T) {
		var was unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: was.Max}); err != nil {
			t.Skip(err)
		}
		_, err := tcp.Dial(t.Context(), []string{open.addr}, tcp.Options{})
		if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); e != nil {
			t.Fatal(e)
		}
		if !errors.Is(err, unix.EMFILE) || rdma.EvidenceOf(err) != rdma.Own {
			t.Errorf("%v: %v", err, rdma.EvidenceOf(err))
		}
	})
}

// TestEvidenceOfNext: a server that answers with other blades than before is another
// incarnation, for a process that has heard of the one before. For one that has not it is a
// server that does not fit.
func TestEvidenceOfNext(t *testing.T) {
	first := serve(t, "unix", regions(2, 1<<16), tcp.ServerOptions{})
	beside := serve(t, "unix", regions(1, 1<<16), tcp.ServerOptions{})
	f := dial(t, tcp.Options{}, first.addr, beside.addr)
	defer f.Close()
	first.stop()
	_, err := f.Grant(0)
	if got := rdma.EvidenceOf(err); got != rdma.Silent { // its socket has gone with it
		t.Errorf("the server has ended: %v: %v", err, got)
	}
	absent := dial(t, tcp.Options{Absent: [][]uint64{{1 << 16, 1 << 16}, {1 << 16}}}, first.addr, beside.addr)
	defer absent.Close()
	l, err := net.Listen("unix", strings.TrimPrefix(first.addr, "unix:"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := tcp.NewServer(beside.Set, tcp.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	for f, want := range map[*tcp.Fabric]rdma.Evidence{f: rdma.Restarted, absent: rdma.Alive} {
		_, err := f.Grant(0)
		if got := rdma.EvidenceOf(err); got != want || !errors.Is(err, rdma.ErrBladeDown) {
			t.Errorf("another server: %v: %v; want %v", err, got, want)
		}
	}
	if err := errors.Join(s.Shutdown(t.Context()), <-served); err != nil {
		t.Error(err)
	}
}
