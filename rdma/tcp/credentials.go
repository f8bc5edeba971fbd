package tcp

import (
	"crypto/tls"
	"sync"

	"txnode/internal/validate"
)

// Credentials are what a connection is secured by: the fields Secret and TLS of Options or of
// ServerOptions, which say what each must have.
type Credentials struct {
	Secret []byte
	TLS    *tls.Config
}

func (c *Credentials) common(f *validate.Faults) {
	f.Check(c.Secret == nil || len(c.Secret) >= minSecret, "a secret of %d bytes: at least %d are needed",
		len(c.Secret), minSecret)
}

// ofClient lists what is wrong with the credentials of a client.
func (c *Credentials) ofClient(f *validate.Faults) {
	c.common(f)
	if t := c.TLS; t != nil {
		f.Check(len(t.Certificates) > 0 || t.GetClientCertificate != nil,
			"TLS has no certificate of the client: servers ask for one")
		f.Check(!t.InsecureSkipVerify, "TLS must not skip the verification of servers")
	}
}

// ofServer lists what is wrong with the credentials of a server.
func (c *Credentials) ofServer(f *validate.Faults) {
	c.common(f)
	if t := c.TLS; t != nil {
		f.Check(t.ClientAuth == tls.RequireAndVerifyClientCert,
			"TLS must demand and verify the clients' certificates: ClientAuth is %v", t.ClientAuth)
		f.Check(t.ClientCAs != nil, "TLS has no authority of the clients' certificates (ClientCAs)")
		f.Check(len(t.Certificates) > 0 || t.GetCertificate != nil, "TLS has no certificate of the server")
		f.Check(t.GetConfigForClient == nil, "TLS must be the same for all clients: GetConfigForClient is set")
	}
}

// wallet has the credentials of the moment for each connection. Its method is safe for concurrent
// use.
type wallet struct {
	fixed  Credentials
	ask    func() Credentials // nil: fixed
	faults func(*Credentials, *validate.Faults)

	mu     sync.Mutex
	raw    *tls.Config // of which tls was made
	tls    *tls.Config
	secret bool // there has been a secret: there must be one
	secure bool // there has been TLS
}

// now returns the credentials of the moment, of which TLS is not to be changed: ErrOptions.
func (w *wallet) now() (Credentials, error) {
	c := w.fixed
	if w.ask != nil {
		c = w.ask()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var f validate.Faults
	w.faults(&c, &f)
	f.Check(c.Secret != nil || !w.secret, "the secret is gone: it can be replaced by another one only")
	f.Check(c.TLS != nil || !w.secure, "TLS is gone: certificates can be replaced by others only")
	if err := f.Err(ErrOptions); err != nil {
		return c, err
	}
	w.secret, w.secure = c.Secret != nil, c.TLS != nil
	if c.TLS != nil && c.TLS != w.raw {
		w.raw, w.tls = c.TLS, atLeast13(c.TLS)
	}
	if c.TLS != nil {
		c.TLS = w.tls
	}
	return c, nil
}
