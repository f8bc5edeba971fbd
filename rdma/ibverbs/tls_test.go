package ibverbs

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
	"testing"
	"time"

	"txnode/rdma/tcp"
)

// EnvFiles are the credentials of the variables that txnode has for its flags; nil: none are named.
func EnvFiles(tb testing.TB) *tcp.Files {
	tb.Helper()
	f := &tcp.Files{
		Cert: os.Getenv("TXNODE_TLS_CERT"), Key: os.Getenv("TXNODE_TLS_KEY"), CA: os.Getenv("TXNODE_TLS_CA"),
	}
	if f.Cert == "" {
		return nil
	}
	if err := f.Load(); err != nil {
		tb.Fatal(err)
	}
	return f
}

// TestMakeCertificates writes the files of two guests into the directory that the environment names.
func TestMakeCertificates(t *testing.T) {
	const env = "TXNODE_RDMA_CERTIFICATES"
	dir := os.Getenv(env)
	if dir == "" {
		t.Skipf("%s is not set: make test-rdma sets it", env)
	}
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "guests"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
		// The clocks of guests may be wrong.
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	guest := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "guest"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   ca.NotBefore, NotAfter: ca.NotAfter,
		IPAddresses: []net.IP{{10, 1, 0, 1}, {10, 1, 0, 2}, {127, 0, 0, 1}},
	}
	for name, c := range map[string]*x509.Certificate{"ca": ca, "guest": guest} {
		public := &authority.PublicKey
		if c == guest {
			public = &key.PublicKey
		}
		p, err := x509.CreateCertificate(rand.Reader, c, ca, public, authority)
		if err != nil {
			t.Fatal(err)
		}
		p = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p})
		if err := os.WriteFile(filepath.Join(dir, name+".crt"), p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "guest.key"),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)); err != nil {
		t.Fatal(err)
	}
}
