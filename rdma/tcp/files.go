package tcp

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// Files are credentials in files, which may be replaced while the process runs. Client and Server
// are for Options.Credentials and ServerOptions.Credentials. They look at the files for each
// connection, and read those that were replaced. While what is there cannot be used, such as a
// certificate whose key is not there yet, connections have what was there before. Connections
// that there are stay.
//
// The fields must not be changed after the first call. Methods are safe for concurrent use.
type Files struct {
	// Cert, Key and CA are PEM files: the certificate of this process and those between it and
	// its authority, its private key, and the authorities of the other side. Either all are
	// named or none: no TLS.
	Cert, Key, CA string
	// ServerName is the name that certificates of servers must have; "": the host of each address.
	ServerName string
	// Secret is a file with the shared secret, without the end of its last line. "": none.
	Secret string
	// Changed is told when files were replaced: nil if they are in use, or why they cannot be used.
	// It is called by connections, and must not block. nil: nothing is told.
	Changed func(error)

	mu             sync.Mutex
	stamps         [4]stamp
	client, server Credentials
	leaf           *x509.Certificate
	next           time.Time // when files that cannot be used are looked at again
}

// stamp tells a file from one that has replaced it.
type stamp struct {
	info os.FileInfo // nil: it was not there
}

func (s stamp) same(o stamp) bool {
	if s.info == nil || o.info == nil {
		return s.info == nil && o.info == nil
	}
	return os.SameFile(s.info, o.info) && s.info.Size() == o.info.Size() && s.info.ModTime().Equal(o.info.ModTime())
}

// look tells the files as they are.
func (f *Files) look() (s [4]stamp) {
	for i, name := range []string{f.Cert, f.Key, f.CA, f.Secret} {
		if name != "" {
			s[i].info, _ = os.Stat(name) // reading it says what is wrong
		}
	}
	return s
}

// Load reads all files. After an error, connections have what was there before. A certificate that
// no peer would accept today is an error.
func (f *Files) Load() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.load()
}

// Certificate is the certificate of this process; nil: it has none, or Load has not read it.
func (f *Files) Certificate() *x509.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leaf
}

// Client has the credentials of a client, after Load.
func (f *Files) Client() Credentials { return f.current(&f.client) }

// Server has the credentials of a server, after Load.
func (f *Files) Server() Credentials { return f.current(&f.server) }

// current is one side's credentials. It reads files that were replaced before.
func (f *Files) current(side *Credentials) Credentials {
	f.mu.Lock()
	replaced, err := f.renew()
	c := *side
	f.mu.Unlock()
	if replaced && f.Changed != nil {
		f.Changed(err)
	}
	return c
}

// retryFiles is how long files that cannot be used are not looked at again.
const retryFiles = time.Second

// renew reads files that were replaced; f.mu is held.
func (f *Files) renew() (replaced bool, err error) {
	now := time.Now()
	if now.Before(f.next) {
		return false, nil
	}
	for i, s := range f.look() {
		if s.same(f.stamps[i]) {
			continue
		}
		if err = f.load(); err != nil {
			f.next = now.Add(retryFiles)
		}
		return true, err
	}
	return false, nil
}

// load reads all files; f.mu is held.
func (f *Files) load() error {
	stamps := f.look() // before reading: what changes meanwhile is read again
	var client, server Credentials
	var leaf *x509.Certificate
	if f.Cert != "" {
		cert, pool, err := f.readTLS()
		if err != nil {
			return err
		}
		leaf = cert.Leaf
		certs := []tls.Certificate{cert}
		client.TLS = &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: certs, RootCAs: pool, ServerName: f.ServerName,
		}
		server.TLS = &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: certs,
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		}
	}
	if f.Secret != "" {
		p, err := os.ReadFile(f.Secret)
		if err != nil {
			return fmt.Errorf("the secret: %w", err)
		}
		secret := bytes.TrimSuffix(bytes.TrimSuffix(p, []byte("\n")), []byte("\r"))
		if len(secret) < minSecret {
			return fmt.Errorf("%w: the secret in %s has %d bytes: at least %d are needed",
				ErrOptions, f.Secret, len(secret), minSecret)
		}
		client.Secret, server.Secret = secret, secret
	}
	f.stamps, f.client, f.server, f.leaf, f.next = stamps, client, server, leaf, time.Time{}
	return nil
}

// readTLS reads certificate, key and authorities.
func (f *Files) readTLS() (cert tls.Certificate, pool *x509.CertPool, err error) {
	var pem [3][]byte
	for i, x := range []struct{ what, file string }{
		{"certificate", f.Cert}, {"private key", f.Key}, {"authority", f.CA},
	} {
		if pem[i], err = os.ReadFile(x.file); err != nil {
			return cert, nil, fmt.Errorf("TLS: the %s: %w", x.what, err)
		}
	}
	if cert, err = tls.X509KeyPair(pem[0], pem[1]); err != nil {
		return cert, nil, fmt.Errorf("TLS: certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	switch now, c := time.Now(), cert.Leaf; {
	case now.After(c.NotAfter):
		return cert, nil, fmt.Errorf("TLS: %s: the certificate has expired on %s: issue a new one",
			f.Cert, c.NotAfter.Format(day))
	case now.Before(c.NotBefore):
		return cert, nil, fmt.Errorf("TLS: %s: the certificate is valid from %s on: is the clock of this host right?",
			f.Cert, c.NotBefore.Format(day))
	}
	pool = x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem[2]) {
		return cert, nil, fmt.Errorf("TLS: %s: there is no certificate of an authority in the file; PEM is expected",
			f.CA)
	}
	return cert, pool, nil
}

const day = "2006-01-02 15:04:05Z07:00"
