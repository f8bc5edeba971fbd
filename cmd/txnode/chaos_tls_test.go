package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"txnode/rdma/tcp"
)

// makeTLS makes the files of TLS: an authority, a certificate that all nodes have, and one of an
// authority that no node knows. Each writer has files of its own.
func (c *chaos) makeTLS() {
	c.t.Helper()
	c.tls = c.dir
	c.tlsFlags = []string{
		"--tls-cert", c.tls + "/node.crt", "--tls-key", c.tls + "/node.key", "--tls-ca", c.tls + "/ca.crt",
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "chaos"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   ca.NotBefore, NotAfter: ca.NotAfter,
	}
	for n := range nodes {
		leaf.IPAddresses = append(leaf.IPAddresses, net.ParseIP(c.net.host(n)))
	}
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, x := range []struct {
		name   string
		cert   *x509.Certificate
		key    *ecdsa.PrivateKey
		signer *ecdsa.PrivateKey
	}{{"ca", ca, authority, authority}, {"node", leaf, key, authority}, {"stranger", leaf, key, stranger}} {
		cert, err := x509.CreateCertificate(rand.Reader, x.cert, ca, &x.key.PublicKey, x.signer)
		if err != nil {
			c.t.Fatal(err)
		}
		private, err := x509.MarshalPKCS8PrivateKey(x.key)
		if err = errors.Join(err,
			os.WriteFile(filepath.Join(c.tls, x.name+".crt"),
				pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600),
			os.WriteFile(filepath.Join(c.tls, x.name+".key"),
				pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)); err != nil {
			c.t.Fatal(err)
		}
	}
	for i := range c.writers {
		if err := os.Mkdir(c.tlsOf(i), 0o700); err != nil {
			c.t.Fatal(err)
		}
		for _, name := range []string{"ca.crt", "node.crt", "node.key"} {
			c.giveTLS(i, name, name)
		}
	}
}

// tlsOf is the directory of a writer's files; "-": there are none.
func (c *chaos) tlsOf(i int) string {
	if c.tls == "-" {
		return c.tls
	}
	return filepath.Join(c.tls, "writer"+strconv.Itoa(i))
}

// giveTLS replaces a file of a writer by a copy of one of those that makeTLS has made.
func (c *chaos) giveTLS(i int, name, of string) {
	c.t.Helper()
	p, err := os.ReadFile(filepath.Join(c.tls, of))
	if err == nil {
		err = os.WriteFile(filepath.Join(c.tlsOf(i), name+".new"), p, 0o600)
	}
	if err == nil {
		err = os.Rename(filepath.Join(c.tlsOf(i), name+".new"), filepath.Join(c.tlsOf(i), name))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// filesOf are credentials that are read again when they are replaced.
func filesOf(dir string) *tcp.Files {
	return &tcp.Files{Cert: dir + "/node.crt", Key: dir + "/node.key", CA: dir + "/ca.crt"}
}

// chaosTLS is what clients connect with.
func chaosTLS(dir string) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(dir+"/node.crt", dir+"/node.key")
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(dir + "/ca.crt")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, RootCAs: pool}, nil
}
