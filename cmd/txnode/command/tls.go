package command

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"txnode/rdma/tcp"
)

// tlsOptions are the flags of connections over TCP that are encrypted, and of which both sides
// prove by a certificate what they are. Either all three files are named or none.
type tlsOptions struct {
	Cert, Key, CA string
	Name          string // of a server, for clients
}

// addFlags registers the flags of a side; others are the other side's processes.
func (o *tlsOptions) addFlags(cmd *cobra.Command, others string) {
	fs := cmd.Flags()
	fs.StringVar(&o.Cert, "tls-cert", "",
		"PEM `file` with the certificate that this process shows, and those between it and its authority "+
			"(default: no TLS)")
	fs.StringVar(&o.Key, "tls-key", "", "PEM `file` with the private key of --tls-cert (default: no TLS)")
	fs.StringVar(&o.CA, "tls-ca", "", "PEM `file` with the authorities that issue the certificates of "+others+
		" (default: no TLS)")
}

// addName registers the flag of a client.
func (o *tlsOptions) addName(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.Name, "tls-name", "",
		"`name` that the servers' certificates must have (default: the host of each address)")
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
		faults = append(faults, strings.Join(missing, " and ")+
			" missing: TLS needs a certificate, its key and the authority of the other side")
	case !o.given() && o.Name != "":
		faults = append(faults, "--tls-name is for connections with --tls-cert, --tls-key and --tls-ca")
	}
	return faults
}

// files are the credentials that the flags name, with a secret or none, as they are now.
func (o *tlsOptions) files(secret string) (*tcp.Files, error) {
	f := &tcp.Files{Cert: o.Cert, Key: o.Key, CA: o.CA, ServerName: o.Name, Secret: secret}
	if err := f.Load(); err != nil {
		return nil, err
	}
	return f, nil
}

// explainTLS adds to an error of a connection what to do about a certificate that has another name.
func explainTLS(err error) error {
	var name x509.HostnameError
	if errors.As(err, &name) {
		return fmt.Errorf("%w; connect to the name that the certificate has, or give it with --tls-name", err)
	}
	return err
}
