package etcd_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"txnode/memory"
	"txnode/memory/catalog/etcd"
	"txnode/memory/catalog/etcd/etcdtest"
)

// selfSigned is a certificate for a name, which is its own authority.
func selfSigned(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, public, private)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	pool.AddCert(c)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, pool
}

// TestTLS: both sides show certificates. The name that is demanded of a member is that of the
// configuration. What is wrong is said.
func TestTLS(t *testing.T) {
	server, serverCA := selfSigned(t, "etcd.example")
	client, clientCA := selfSigned(t, "client.example")
	s := etcdtest.NewStandIn(t, grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{server}, ClientCAs: clientCA,
		ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	o := func(name string, ca *x509.CertPool) etcd.Options {
		return etcd.Options{Endpoints: []string{s.Address}, Control: time.Minute, TLS: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{client}, RootCAs: ca, ServerName: name,
		}}
	}
	c := open(t, o("etcd.example", serverCA))
	rev := mustApply(t, c, 0, entries(1, 1, 'a'))
	if have, now := mustLoad(t, c); !same(have, entries(1, 1, 'a')) || now != rev {
		t.Errorf("%d entries at %d", len(have), now)
	}
	stale, fresh := o("etcd.example", clientCA).TLS, o("etcd.example", serverCA).TLS
	asked := 0
	renewed := etcd.Options{Endpoints: []string{s.Address}, Control: time.Minute, Credentials: func() *tls.Config {
		if asked++; asked < 3 { // when the options are looked at, and in the first handshake
			return stale
		}
		return fresh
	}}
	if have, _ := mustLoad(t, open(t, renewed)); !same(have, entries(1, 1, 'a')) {
		t.Errorf("%d entries after the authority was replaced", len(have))
	}
	plain := etcd.Options{Endpoints: []string{s.Address}}
	for _, x := range []struct {
		o    etcd.Options
		text string
	}{
		{o("other.example", serverCA), "other.example"},
		{o("", serverCA), "127.0.0.1"},
		{o("etcd.example", clientCA), "authority"},
		{plain, "TLS"},
	} {
		x.o.Control = time.Second
		c, err := etcd.Open(t.Context(), x.o)
		if err == nil {
			_ = c.Close()
		}
		if !errors.Is(err, memory.ErrAway) || !strings.Contains(err.Error(), x.text) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q: %v", x.text, err)
		}
	}
	var host x509.HostnameError
	wrong := o("other.example", serverCA)
	wrong.Control = time.Second
	if _, err := etcd.Open(t.Context(), wrong); !errors.As(err, &host) {
		t.Errorf("no x509.HostnameError: %v", err)
	}
}

// TestNestedPrefix: a database has no prefix that lies within that of another one, or has a name of
// a catalog in it. Beside it, it has.
func TestNestedPrefix(t *testing.T) {
	s := etcdtest.NewStandIn(t)
	o := func(prefix string) etcd.Options {
		return etcd.Options{Endpoints: []string{s.Address}, Control: time.Minute, Prefix: prefix}
	}
	refused := func(prefix, say string) {
		t.Helper()
		c, err := etcd.Open(t.Context(), o(prefix))
		if err == nil {
			_ = c.Close()
		}
		if !errors.Is(err, etcd.ErrOptions) || !strings.Contains(err.Error(), say) {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	refused("bank/chunk", "is a name in a catalog")
	refused("/head/bank", "is a name in a catalog")
	refused("bank\x1b]0;", "control characters")
	beside := open(t, o("bank/b")) // there is no bank/ yet
	mustApply(t, beside, 0, entries(1, 1, 'b'))
	mustApply(t, open(t, o("bank")), 0, entries(1, 1, 'a'))
	refused("bank/c", `lies within "bank/"`)
	refused("bank/c/d/", `lies within "bank/"`)
	open(t, o("bank/b")) // it is there
	open(t, o("banks"))
	open(t, o("bank"))
}
