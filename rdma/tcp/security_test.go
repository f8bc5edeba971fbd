package tcp_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"txnode/internal/peercred"
	"txnode/rdma"
	"txnode/rdma/fabrictest"
	"txnode/rdma/region"
	"txnode/rdma/tcp"
)

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	a := &authority{pool: x509.NewCertPool()}
	a.cert, a.key = a.issue(tb, &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, time.Hour)
	a.pool.AddCert(a.cert)
	return a
}

// issue makes a certificate that is valid for so long from now on.
func (a *authority) issue(tb testing.TB, c *x509.Certificate, valid time.Duration) (*x509.Certificate,
	*ecdsa.PrivateKey) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	c.SerialNumber, c.Subject = serial, pkix.Name{CommonName: "txnode test"}
	c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(valid)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return cert, key
}

// leaf is a certificate for both sides of a connection.
func (a *authority) leaf(tb testing.TB, valid time.Duration) tls.Certificate {
	tb.Helper()
	c, key := a.issue(tb, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, valid)
	return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key}
}

func (a *authority) server(tb testing.TB) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{a.leaf(tb, time.Hour)},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: a.pool,
	}
}

func (a *authority) client(tb testing.TB) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{a.leaf(tb, time.Hour)}, RootCAs: a.pool}
}

// TestConformanceTLS runs the suite over TLS.
func TestConformanceTLS(t *testing.T) {
	needsFull(t)
	a := newAuthority(t)
	fabrictest.Run(t, func(tb testing.TB, n int, size uint64) rdma.Fabric {
		h := serve(tb, "tcp", regions(n, size), tcp.ServerOptions{TLS: a.server(t)})
		return drilled{dial(tb, tcp.Options{Seed: 1, TLS: a.client(t)}, h.addr), h.Set}
	})
}

// TestTLS: each side wants a certificate of the other one's that its authority has issued, for this
// name, now, and no old version.
func TestTLS(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	good := serve(t, "tcp", regions(1, 1<<16), tcp.ServerOptions{TLS: a.server(t)})
	expired := a.server(t)
	expired.Certificates = []tls.Certificate{a.leaf(t, -time.Hour)}
	old := serve(t, "tcp", regions(1, 1<<16), tcp.ServerOptions{TLS: expired})
	plain := serve(t, "tcp", regions(1, 1<<16), tcp.ServerOptions{})

	f := dial(t, tcp.Options{TLS: a.client(t)}, good.addr)
	c := thread(t, f)
	c.mustAdd(c.at(0, 0))
	c.close()

	for name, x := range map[string]struct {
		addr   string
		change func(c *tls.Config)
		say    string
	}{
		"a client of another authority": {good.addr, func(c *tls.Config) {
			c.Certificates = other.client(t).Certificates
		}, "tls"},
		"a server of another authority": {
			good.addr, func(c *tls.Config) { c.RootCAs = other.pool }, "unknown authority",
		},
		"another name": {
			good.addr, func(c *tls.Config) { c.ServerName = "blade.example" }, "blade.example",
		},
		"an expired server": {old.addr, nil, "expired"},
		"an expired client": {good.addr, func(c *tls.Config) {
			c.Certificates = []tls.Certificate{a.leaf(t, -time.Hour)}
		}, "tls"},
		"a server without TLS": {plain.addr, nil, "TLS"},
	} {
		conf := a.client(t)
		if x.change != nil {
			x.change(conf)
		}
		_, err := tcp.Dial(t.Context(), []string{x.addr}, tcp.Options{TLS: conf, Connect: 10 * time.Second})
		if err == nil || !strings.Contains(err.Error(), x.say) || !strings.Contains(err.Error(), x.addr) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := tcp.Dial(t.Context(), []string{good.addr}, tcp.Options{Connect: 10 * time.Second}); err == nil {
		t.Error("a client without TLS has connected to a server with it")
	}
	_, address, _ := strings.Cut(good.addr, ":")
	conf := a.client(t)
	conf.MaxVersion = tls.VersionTLS12
	if c, err := tls.Dial("tcp", address, conf); err == nil {
		t.Error("TLS 1.2 is spoken")
		c.Close()
	}

	set := good.Set
	for name, o := range map[string]tcp.ServerOptions{
		"no client certificates": {TLS: &tls.Config{Certificates: a.server(t).Certificates}},
		"not verified": {TLS: &tls.Config{
			Certificates: a.server(t).Certificates, ClientAuth: tls.RequireAnyClientCert, ClientCAs: a.pool,
		}},
		"no authority": {TLS: &tls.Config{
			Certificates: a.server(t).Certificates, ClientAuth: tls.RequireAndVerifyClientCert,
		}},
		"no certificate": {TLS: &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool}},
		"a short secret": {Secret: []byte("secret")},
		"a depth":        {Depth: 1 << 20},
	} {
		if _, err := tcp.NewServer(set, o); !errors.Is(err, tcp.ErrOptions) {
			t.Errorf("a server with %s: %v", name, err)
		}
	}
	for name, o := range map[string]tcp.Options{
		"no certificate":  {TLS: &tls.Config{RootCAs: a.pool}},
		"no verification": {TLS: &tls.Config{Certificates: a.client(t).Certificates, InsecureSkipVerify: true}},
		"a short secret":  {Secret: []byte("secret")},
		"a duration":      {Verb: -1},
	} {
		if _, err := tcp.Dial(t.Context(), []string{good.addr}, o); !errors.Is(err, tcp.ErrOptions) {
			t.Errorf("a client with %s: %v", name, err)
		}
	}
}

// TestLoopbackOnly: without TLS no other host is let in, and none is connected to.
func TestLoopbackOnly(t *testing.T) {
	set, err := region.New(region.Config{Regions: regions(1, 1<<16)})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	s, err := tcp.NewServer(set, tcp.ServerOptions{Secret: []byte("sixteen bytes or more")})
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue // a host without IPv6
		}
		if err := s.Serve(l); !errors.Is(err, tcp.ErrInsecure) || !strings.Contains(err.Error(), l.Addr().String()) {
			t.Errorf("Serve on %s: %v", address, err)
		}
	}
	// An address of this host that is not loopback stands for another host.
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(addrs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.IsGlobalUnicast()
	})
	if i < 0 {
		t.Skip("this host has no address but loopback")
	}
	l, err := net.Listen("tcp", net.JoinHostPort(addrs[i].(*net.IPNet).IP.String(), "0"))
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	if _, err := tcp.Dial(t.Context(), []string{l.Addr().String()}, tcp.Options{}); !errors.Is(err, tcp.ErrInsecure) {
		t.Errorf("Dial of %v: %v", l.Addr(), err)
	}
}

// TestSecret: both sides must have the same, or none.
func TestSecret(t *testing.T) {
	one, two := []byte("the first secret of the two"), []byte("the second secret of the two")
	var r reports
	with := serve(t, "unix", regions(1, 1<<16), tcp.ServerOptions{Secret: one, Report: r.add})
	without := serve(t, "tcp", regions(1, 1<<16), tcp.ServerOptions{})
	c := thread(t, dial(t, tcp.Options{Secret: one}, with.addr))
	c.mustAdd(c.at(0, 0))
	c.close()
	for _, x := range []struct {
		name, addr string
		secret     []byte
	}{{"another secret", with.addr, two}, {"none", with.addr, nil}, {
		"one that the server does not know", without.addr, one,
	}} {
		if _, err := tcp.Dial(t.Context(), []string{x.addr}, tcp.Options{Secret: x.secret}); !errors.Is(err,
			tcp.ErrRefused) || !strings.Contains(err.Error(), "secret") || isDown(err) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
	if !t.Failed() {
		r.await(2, tcp.ErrRefused)
	}
}

// TestCredentials: each connection has the secret of the moment, those that there are stay, and a
// server whose secret is gone lets no client in.
func TestCredentials(t *testing.T) {
	one, two := []byte("the first secret of the two"), []byte("the second secret of the two")
	var server atomic.Pointer[[]byte]
	server.Store(&one)
	o := tcp.ServerOptions{Credentials: func() tcp.Credentials { return tcp.Credentials{Secret: *server.Load()} }}
	h := serve(t, "unix", regions(1, 1<<16), o)
	before := thread(t, dial(t, tcp.Options{Secret: one}, h.addr))
	defer before.close()
	before.mustAdd(before.at(0, 0))

	server.Store(&two)
	dial(t, tcp.Options{Credentials: func() tcp.Credentials { return tcp.Credentials{Secret: two} }}, h.addr).Close()
	if _, err := tcp.Dial(t.Context(), []string{h.addr}, tcp.Options{Secret: one}); !errors.Is(err, tcp.ErrRefused) {
		t.Errorf("the secret of before: %v", err)
	}
	before.mustAdd(before.at(0, 0))

	server.Store(new([]byte))
	if f, err := tcp.Dial(t.Context(), []string{h.addr}, tcp.Options{}); err == nil {
		_ = f.Close()
		t.Error("a client without a secret is let in when the secret of the server is gone")
	}
	if _, err := tcp.NewServer(nil, tcp.ServerOptions{Secret: one, Credentials: o.Credentials}); !errors.Is(err,
		tcp.ErrOptions) {
		t.Errorf("two secrets: %v", err)
	}
}

// TestUsers: on a unix socket the system says which user connects.
func TestUsers(t *testing.T) {
	me := uint32(os.Geteuid())
	h := serve(t, "unix", regions(1, 1<<16), tcp.ServerOptions{Users: []uint32{me + 1, me}})
	dial(t, tcp.Options{}, h.addr).Close()
	h = serve(t, "unix", regions(1, 1<<16), tcp.ServerOptions{Users: []uint32{me + 1}})
	if _, err := tcp.Dial(t.Context(), []string{h.addr}, tcp.Options{}); !errors.Is(err, tcp.ErrRefused) ||
		!strings.Contains(err.Error(), "user") {
		t.Errorf("a user that may not: %v", err)
	}
}

// TestUsersOfServers: a client without a secret goes to unix sockets of the users that it trusts,
// and to no others. The proof of a secret is enough.
func TestUsersOfServers(t *testing.T) {
	if !peercred.Known {
		t.Skip("this system does not tell the users of sockets")
	}
	me := uint32(os.Geteuid())
	open := serve(t, "unix", regions(1, 1<<16), tcp.ServerOptions{})
	dial(t, tcp.Options{Users: []uint32{me + 1, me}}, open.addr).Close()
	others := tcp.Options{Users: []uint32{me + 1}}
	if _, err := tcp.Dial(t.Context(), []string{open.addr}, others); !errors.Is(err, tcp.ErrRefused) ||
		!strings.Contains(err.Error(), fmt.Sprintf("user %d serves", me)) || isDown(err) {
		t.Errorf("a server of a user that is not trusted: %v", err)
	}
	secret := []byte("the secret that both have")
	others.Secret = secret
	dial(t, others, serve(t, "unix", regions(1, 1<<16), tcp.ServerOptions{Secret: secret}).addr).Close()
}

// TestConnectionsAreBounded: a server has as many connections as it may, and says so.
func TestConnectionsAreBounded(t *testing.T) {
	h := serve(t, "unix", regions(1, 1<<16), tcp.ServerOptions{Connections: 3})
	f := dial(t, tcp.Options{}, h.addr)
	one, two := thread(t, f), thread(t, f)
	defer one.close()
	one.mustAdd(one.at(0, 0))
	two.mustAdd(two.at(0, 0))
	three := thread(t, f)
	if err := three.Reconnect(0); !errors.Is(err, tcp.ErrRefused) || !strings.Contains(err.Error(), "connections") {
		t.Errorf("one connection more than there may be: %v", err)
	}
	if err := two.Thread.Close(); err != nil {
		t.Fatal(err)
	}
	for three.Reconnect(0) != nil { // the server learns that one is gone
		time.Sleep(time.Millisecond)
	}
	three.mustAdd(three.at(0, 0))
	if err := three.Thread.Close(); err != nil {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	for s, want := range map[string][2]string{
		"unix:/run/txnode":      {"unix", "/run/txnode"},
		"unix:///run/txnode":    {"unix", "/run/txnode"},
		"unix:relative":         {"unix", "relative"},
		"tcp:blade:7000":        {"tcp", "blade:7000"},
		"tcp://[::1]:7000":      {"tcp", "[::1]:7000"},
		"blade.example:7000":    {"tcp", "blade.example:7000"},
		"127.0.0.1:7000":        {"tcp", "127.0.0.1:7000"},
		"unix:@abstract/socket": {"unix", "@abstract/socket"},
	} {
		network, address, err := tcp.ParseAddress(s)
		if err != nil || network != want[0] || address != want[1] {
			t.Errorf("%q is %s, %s, %v", s, network, address, err)
		}
	}
	for _, s := range []string{
		"", "unix:", "tcp:", "tcp:host", "host", "tcp:host:", "unix:" + strings.Repeat("x", 200), "http://host",
	} {
		if _, _, err := tcp.ParseAddress(s); !errors.Is(err, tcp.ErrOptions) {
			t.Errorf("%q: %v", s, err)
		}
	}
	if _, err := tcp.Dial(t.Context(), nil, tcp.Options{}); !errors.Is(err, tcp.ErrOptions) {
		t.Errorf("no addresses: %v", err)
	}
}
