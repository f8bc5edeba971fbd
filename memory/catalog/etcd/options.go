package etcd

import (
	"crypto/tls"
	"strings"
	"time"
	"unicode"

	"txnode/internal/validate"
)

// Options say where an etcd is. The zero values of all but Endpoints are usable.
type Options struct {
	// Endpoints are the members of the etcd, of which at least one is needed: HOST:PORT,
	// http://HOST:PORT, https://HOST:PORT, or unix:///PATH. The client uses one that answers.
	Endpoints []string
	// Prefix begins the keys of the catalog. A slash is added unless it ends with one. "":
	// DefaultPrefix. No part of it between slashes can be "chunk" or "head", which are names in a
	// catalog. A prefix within that of another database is refused by Open.
	Prefix string
	// TLS is for endpoints that need it; nil: plain connections, and the system's authorities
	// for https. The name that a member's certificate must have is ServerName, by default the
	// host of its endpoint.
	TLS *tls.Config
	// Credentials is asked for each connection, instead of TLS: certificates can be replaced while
	// the process runs. Several goroutines may call it at once. nil: TLS.
	Credentials func() *tls.Config
	// Username and Password are for an etcd with authentication.
	Username, Password string
	// Control bounds each request, of which a Load is one, and an Apply of up to 1 MiB too;
	// 0: DefaultControl.
	Control time.Duration
}

// Defaults of Options.
const (
	DefaultPrefix  = "txnode/"
	DefaultControl = 5 * time.Second
)

func (o *Options) complete() error {
	var f validate.Faults
	f.Check(len(o.Endpoints) > 0, "no endpoint: at least one HOST:PORT of an etcd is needed")
	for _, e := range o.Endpoints {
		f.Check(e != "" && !strings.ContainsAny(e, ", \t\n"),
			"endpoint %q: it must be HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:///PATH", e)
	}
	f.Check(len(o.Prefix) <= maxPrefix, "a prefix of %d bytes: at most %d are possible", len(o.Prefix), maxPrefix)
	if f.Check(o.Credentials == nil ||
		o.TLS == nil, "Credentials and TLS: only one is possible"); o.Credentials != nil {
		o.TLS = o.Credentials()
	}
	for part := range strings.SplitSeq(o.Prefix, "/") {
		f.Check(part+"/" != chunkName && part != headName,
			"the prefix %q: %q is a name in a catalog: choose another one", o.Prefix, part)
	}
	f.Check(!strings.ContainsFunc(o.Prefix, unicode.IsControl), "the prefix %q has control characters", o.Prefix)
	f.Check(o.Username != "" || o.Password == "", "a password without a user")
	f.Check(o.Control >= 0, "Control is %v: a duration of 0 or more is possible", o.Control)
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if !strings.HasSuffix(o.Prefix, "/") {
		o.Prefix += "/"
	}
	if o.Control == 0 {
		o.Control = DefaultControl
	}
	return f.Err(ErrOptions)
}

// maxPrefix bounds what a prefix adds to a request, in bytes.
const maxPrefix = 1 << 10
