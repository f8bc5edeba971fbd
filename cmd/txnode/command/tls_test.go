package command_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/rdma/tcp"
)

// authority issues certificates into files of a directory.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes an authority, whose certificate is NAME.crt.
func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	a := &authority{dir: dir}
	now := time.Now()
	a.cert, a.key = a.issue(t, name, &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
	})
	return a
}

// issue makes NAME.crt and NAME.key.
func (a *authority) issue(t *testing.T, name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	c.Subject = pkix.Name{CommonName: name}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err = errors.Join(err,
		os.WriteFile(filepath.Join(a.dir, name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			0o600),
		os.WriteFile(filepath.Join(a.dir, name+".key"),
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)); err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// leaf makes the certificate of a process that is reached by 127.0.0.1 or a name, valid from and
// until so long from now on.
func (a *authority) leaf(t *testing.T, name string, ip bool, from, until time.Duration) {
	t.Helper()
	c := &x509.Certificate{
		DNSNames: []string{name + ".example"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(from), NotAfter: time.Now().Add(until),
	}
	if ip {
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	a.issue(t, name, c)
}

// tlsFlags are the flags of a process with a certificate, and the authority that it trusts.
func tlsFlags(dir, name, ca string) []string {
	file := func(s string) string { return filepath.Join(dir, s) }
	return []string{"--tls-cert", file(name + ".crt"), "--tls-key", file(name + ".key"), "--tls-ca", file(ca + ".crt")}
}

// served is the TCP address in the line of a daemon that serves all addresses of the host,
// as one of this host.
func served(t *testing.T, line string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimSpace(line[strings.LastIndex(line, "tcp:")+len("tcp:"):]))
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return "tcp:127.0.0.1:" + port
}

// TestServeTLS: a cluster is set up and asked over TLS, by addresses that other hosts can reach;
// what is wrong with a certificate of either side is one line.
func TestServeTLS(t *testing.T) {
	dir := socketDir(t)
	ca := newAuthority(t, dir, "ca")
	other := newAuthority(t, dir, "other-ca")
	for _, name := range []string{"server", "client"} {
		ca.leaf(t, name, true, -time.Hour, time.Hour)
	}
	ca.leaf(t, "named", false, -time.Hour, time.Hour)
	ca.leaf(t, "expired", true, -2*time.Hour, -time.Hour)
	ca.leaf(t, "future", true, time.Hour, 2*time.Hour)
	other.leaf(t, "stranger", true, -time.Hour, time.Hour)
	b := newBed(t)
	with := func(args []string, more ...string) []string { return append(more, args...) }
	flags := func(name string) []string { return tlsFlags(dir, name, "ca") }

	line, end := startServe(t, with(flags("server"), "--listen", "tcp:0.0.0.0:0", "--memory", "64MiB",
		"--catalog", "memory")...)
	address := served(t, line)
	init := with(flags("client"), "cluster", "init", "--catalog", address, "--blade", address)
	if code, out, stderr := b.run(init...); code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	status := func(address string, flags ...string) (int, string, string) {
		return b.run(with(flags, "cluster", "status", address)...)
	}
	if code, out, stderr := status(address, flags("client")...); code != 0 || !strings.Contains(out, " up\n") ||
		!strings.Contains(out, "epoch 1") || stderr != "" {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	one := func(what string, want int, say string, args ...string) {
		t.Helper()
		code, out, stderr := b.run(args...)
		if code != want || out != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, say) {
			t.Errorf("%s: exit code %d, not %d with %q: %s%s", what, code, want, say, out, stderr)
		}
	}
	ask := func(what, say, address string, flags ...string) {
		t.Helper()
		one(what, 1, say, with(flags, "cluster", "status", address)...)
	}
	ask("no TLS", "EOF", address)
	ask("another authority of the client", "tls", address, tlsFlags(dir, "stranger", "ca")...)
	ask("another authority of the server", "unknown authority", address, tlsFlags(dir, "client", "other-ca")...)
	ask("another name", "give it with --tls-name", address, append(flags("client"), "--tls-name", "blade.example")...)
	if code, stderr := end(); code != 0 || !strings.Contains(stderr, "tls") {
		t.Errorf("exit code %d: %s", code, stderr)
	}

	line, end = startServe(t, with(flags("named"), "--listen", "tcp:127.0.0.1:0", "--memory", "0",
		"--catalog", "memory")...)
	address = served(t, line)
	ask("a certificate without the address", "give it with --tls-name", address, flags("client")...)
	ask("no cluster yet", "txnode cluster init", address, append(flags("client"), "--tls-name", "named.example")...)
	if code, _ := end(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	// What is wrong with this side's own files.
	serve := func(args ...string) []string { return with(args, "serve", "--listen", "tcp:127.0.0.1:0") }
	if err := os.WriteFile(filepath.Join(dir, "empty.crt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		serve(), {"cluster", "status", "tcp:127.0.0.1:1"},
		{"cluster", "init", "--catalog", "tcp:127.0.0.1:1", "--blade", "tcp:127.0.0.1:1"},
	} {
		own := func(what string, code int, say string, flags ...string) {
			t.Helper()
			one(strings.Join(args, " ")+": "+what, code, say, with(flags, args...)...)
		}
		server := flags("server")
		own("expired", 1, "has expired on", flags("expired")...)
		own("not yet valid", 1, "clock of this host", flags("future")...)
		own("no file", 1, "the certificate: open "+filepath.Join(dir, "none.crt")+": no such file", flags("none")...)
		own("another key", 1, "private key does not match", server[0], server[1], "--tls-key",
			filepath.Join(dir, "client.key"), server[4], server[5])
		own("a key as an authority", 1, "no certificate of an authority in the file", server[0], server[1], server[2],
			server[3], "--tls-ca", server[3])
		own("an empty certificate", 1, "empty.crt", "--tls-cert", filepath.Join(dir, "empty.crt"), server[2], server[3],
			server[4], server[5])
		own("no key", 2, "--tls-key missing", server[0], server[1], server[4], server[5])
		own("one file", 2, "--tls-cert and --tls-key missing", server[4], server[5])
	}
	one("a name without certificates", 2, "--tls-name is for", "cluster", "status", "tcp:127.0.0.1:1", "--tls-name",
		"x")
	one("no TCP", 2, "--tls-cert is for TCP", with(flags("server"), "serve", "--listen",
		"unix:"+filepath.Join(dir, "s"))...)
}

// move puts files of one directory into another one, each as a whole.
func move(t *testing.T, from, to string, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.Rename(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestServeReload: certificates, authorities and the secret are replaced while a daemon and a
// client run, at the next connection or by SIGHUP. Files that do not fit each other yet change
// nothing, and connections that there are stay.
func TestServeReload(t *testing.T) {
	dir, old, next := socketDir(t), t.TempDir(), t.TempDir()
	issue := func(dir, secret string) {
		ca := newAuthority(t, dir, "ca")
		ca.leaf(t, "server", true, -time.Hour, time.Hour)
		ca.leaf(t, "client", true, -time.Hour, time.Hour)
		if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	issue(dir, "the first secret of all")
	if err := os.CopyFS(filepath.Join(old, "x"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	old = filepath.Join(old, "x")
	files := func(dir string) *tcp.Files {
		at := func(name string) string { return filepath.Join(dir, name) }
		f := &tcp.Files{Cert: at("client.crt"), Key: at("client.key"), CA: at("ca.crt"), Secret: at("secret")}
		if err := f.Load(); err != nil {
			t.Fatal(err)
		}
		return f
	}
	line, end := startServe(t, append(tlsFlags(dir, "server", "ca"), "--listen", "tcp:127.0.0.1:0", "--memory", "0",
		"--catalog", "memory", "--secret-file", filepath.Join(dir, "secret"), "--log-level", "info")...)
	address := served(t, line)
	client := files(dir)
	dial := func(f *tcp.Files) (*tcp.Caller, error) {
		return tcp.DialService(t.Context(), address, cluster.ReportService, tcp.Options{Credentials: f.Client})
	}
	stays, err := dial(client)
	if err != nil {
		t.Fatal(err)
	}
	defer stays.Close()
	works := func(what string, f *tcp.Files) {
		t.Helper()
		c, err := dial(f)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		c.Close()
	}

	issue(next, "the second secret of all")
	move(t, next, dir, "server.crt") // and not its key yet
	works("a certificate without its key", client)
	move(t, next, dir, "server.key", "ca.crt", "client.crt", "client.key", "secret")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		c, err := dial(client)
		if err == nil {
			c.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after SIGHUP: %v", err)
		}
	}
	if c, err := dial(files(old)); err == nil {
		c.Close()
		t.Error("the certificates of before still do")
	}
	if _, err := stays.Call(t.Context(), nil); err != nil {
		t.Errorf("a connection from before: %v", err)
	}

	issue(next, "the third secret of all")
	move(t, next, dir, "secret", "ca.crt", "client.crt", "client.key", "server.crt", "server.key")
	works("files that were replaced", client)
	code, log := end()
	if code != 0 || !strings.Contains(log, "connections have those of before") ||
		strings.Count(log, "were read again") < 2 {
		t.Errorf("exit code %d: %s", code, log)
	}
}
