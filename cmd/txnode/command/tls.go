package command

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// tlsOptions are the flags of connections over TCP that are encrypted, and of which both sides prove by a
// certificate what they are. Either all three files are named or none.
type tlsOptions struct {
	Cert, Key, CA string
	Name          string // of a server, for clients
}

// addFlags registers the flags of a side; others are the other side's processes.
func (o *tlsOptions) addFlags(cmd *cobra.Command, others string) {
	fs := cmd.Flags()
	fs.StringVar(&o.Cert, "tls-cert", "", "PEM `file` with the certificate that this process shows, and those between it and its authority (default: no TLS)")
	fs.StringVar(&o.Key, "tls-key", "", "PEM `file` with the private key of --tls-cert (default: no TLS)")
	fs.StringVar(&o.CA, "tls-ca", "", "PEM `file` with the authorities that issue the certificates of "+others+" (default: no TLS)")
}

// addName registers the flag of a client.
func (o *tlsOptions) addName(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.Name, "tls-name", "", "`name` that the servers' certificates must have (default: the host of each address)")
}

// given reports whether connections are to use TLS.
func (o *tlsOptions) given() bool { return o.Cert != "" || o.Key != "" || o.CA != "" }

// faults lists what is wrong with the flags.
func (o *tlsOptions) faults() (faults []string) {
	var missing []string
	for _, x := range []struct{ name, file string }{{"--tls-cert", o.Cert}, {"--tls-key", o.Key}, {"--tls-ca", o.CA}} {
		if x.file == "" {
			missing = append(missing, x.name)
		}
	}
	switch {
	case o.given() && missing != nil:
		faults = append(faults, strings.Join(missing, " and ")+" missing: TLS needs a certificate, its key and the authority of the other side")
	case !o.given() && o.Name != "":
		faults = append(faults, "--tls-name is for connections with --tls-cert, --tls-key and --tls-ca")
	}
	return faults
}

// server is the configuration of a server, nil without flags.
func (o *tlsOptions) server() (*tls.Config, error) {
	if !o.given() {
		return nil, nil //nolint:nilnil // no TLS
	}
	cert, pool, err := o.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}, nil
}

// client is the configuration of a client, nil without flags.
func (o *tlsOptions) client() (*tls.Config, error) {
	if !o.given() {
		return nil, nil //nolint:nilnil // no TLS
	}
	cert, pool, err := o.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, RootCAs: pool, ServerName: o.Name}, nil
}

// load reads the files. A certificate that no peer would accept today is an error here and not at each peer.
func (o *tlsOptions) load() (cert tls.Certificate, pool *x509.CertPool, err error) {
	var pem [3][]byte
	for i, x := range []struct{ flag, file string }{{"--tls-cert", o.Cert}, {"--tls-key", o.Key}, {"--tls-ca", o.CA}} {
		if pem[i], err = os.ReadFile(x.file); err != nil {
			return cert, nil, failf("%s: %w", x.flag, err)
		}
	}
	if cert, err = tls.X509KeyPair(pem[0], pem[1]); err != nil {
		return cert, nil, failf("--tls-cert %s with --tls-key %s: %w", o.Cert, o.Key, err)
	}

	switch now, c := time.Now(), cert.Leaf; {
	case now.After(c.NotAfter):
		return cert, nil, failf("--tls-cert %s: the certificate has expired on %s: issue a new one", o.Cert, c.NotAfter.Format(day))
	case now.Before(c.NotBefore):
		return cert, nil, failf("--tls-cert %s: the certificate is valid from %s on: is the clock of this host right?", o.Cert, c.NotBefore.Format(day))
	}
	pool = x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem[2]) {
		return cert, nil, failf("--tls-ca %s: there is no certificate in the file; PEM is expected", o.CA)
	}
	return cert, pool, nil
}

// explainTLS adds to an error of a connection what to do about a certificate that has another name.
func explainTLS(err error) error {
	var name x509.HostnameError
	if errors.As(err, &name) {
		return fmt.Errorf("%w; connect to the name that the certificate has, or give it with --tls-name", err)
	}
	return err
}
