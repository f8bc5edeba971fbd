package tcp

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"txnode/internal/validate"
	"txnode/rdma"
)

// Options configure a client: Dial. The zero value is usable on one host.
type Options struct {
	// Seed of all randomness of the fabric; 0: from the clock.
	Seed uint64
	// Secret that the servers must share. Each side proves to the other that it has the secret,
	// without sending it. It does not encrypt. nil: none.
	Secret []byte
	// TLS is needed for servers on other hosts, and must have a certificate of this client
	// and the authority of the servers' (RootCAs). TLS 1.3 is the oldest version. The name that
	// a server's certificate must have is ServerName, by default the host of its address.
	TLS *tls.Config
	// Credentials are asked for each connection that is made, instead of Secret and TLS:
	// certificates and secrets can be replaced while the process runs (Files). Several goroutines
	// may call it at once. nil: Secret and TLS.
	Credentials func() Credentials
	// Users are those whose servers are connected to on unix sockets without a secret, by
	// number: any user can make a socket in a directory such as /tmp before the right server
	// does. nil: the user of this process, and root. Where the system does not tell the user
	// (Linux does), all are.
	Users []uint32
	// Absent are the sizes of the blades of each server, in the order of the addresses, for servers
	// that do not answer Dial: such a server is taken to have these blades, which are in
	// incarnation 0 until it answers. One server must answer. nil: all must. With Absent an address
	// may be "": a place for a server that Fabric.Locate tells of later.
	Absent [][]uint64
	// Elsewhere is for servers whose blades are reached in another way: ServerOptions.Elsewhere.
	// The fabric is their control path then, and has no ports. One of the other kind is refused.
	Elsewhere bool
	// Connect bounds how long a connection takes to come about; 0: 3 seconds.
	Connect time.Duration
	// Control bounds a call of the control path, and one of a service whose context has no
	// deadline; 0: 5 seconds.
	Control time.Duration
	// Verb bounds how long a work request may be without a reply, from when it was sent; 0: 5
	// seconds. Then its connection is closed: whatever is outstanding there fails with
	// StatusTimeout, and the queue pair is in the error state.
	Verb time.Duration
}

// Defaults of durations.
const (
	DefaultConnect = 3 * time.Second
	DefaultControl = 5 * time.Second
	DefaultVerb    = 5 * time.Second
)

func (o *Options) complete() error {
	var f validate.Faults
	for _, d := range []struct {
		name string
		d    *time.Duration
		or   time.Duration
	}{
		{"Connect", &o.Connect, DefaultConnect}, {"Control", &o.Control, DefaultControl},
		{"Verb", &o.Verb, DefaultVerb},
	} {
		f.Check(*d.d >= 0, "%s is %v: a duration of 0 or more is possible", d.name, *d.d)
		if *d.d == 0 {
			*d.d = d.or
		}
	}
	c := Credentials{o.Secret, o.TLS}
	if f.Check(o.Credentials == nil || c.Secret == nil && c.TLS == nil,
		"Credentials, and Secret or TLS: only one is possible"); o.Credentials != nil {
		c = o.Credentials()
	}
	c.ofClient(&f)
	return f.Err(ErrOptions)
}

// minSecret is the shortest secret in bytes.
const minSecret = 16

// ServerOptions configure a server. The zero value serves unix sockets, for the user that runs
// the process and root, and loopback.
type ServerOptions struct {
	// Secret that clients must share: Options.Secret. nil: none.
	Secret []byte
	// Users that may connect on unix sockets, by number. nil: the user of this process and
	// root, or any user if there is a Secret. The system tells which user a peer is; where it
	// does not (Linux does), a Secret is needed.
	Users []uint32
	// TLS is needed to serve other hosts. It must have a certificate and demand one of clients
	// (ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs). TLS 1.3 is the oldest version. It
	// is for TCP only.
	TLS *tls.Config
	// Credentials are asked for each connection that comes, instead of Secret and TLS, as
	// Options.Credentials. Whether there is a secret, and whether there is TLS, must not change.
	Credentials func() Credentials
	// Services that the server has beside blades, by name: 1 to 16 characters of ASCII without
	// spaces.
	Services map[string]Service
	// Elsewhere are blades that have their control path here, and their data path in another way.
	// The server has no set then. nil: the blades are those of the set.
	Elsewhere Blades
	// Connections bounds how many there are at a time, each with Memory bytes of buffers, or with a
	// request and a reply of a service, each of at most MaxMessage; 0: 1024. Half as many, at least
	// 16, may be about to prove that they may connect.
	Connections int
	// Depth is how many requests of a connection are under way at most; 0: 256.
	Depth int
	// Timeout bounds how long a client may take for the beginning of a connection, for the rest of
	// a frame of which a part has come, and to take replies; 0: 5 seconds. Of a message of a
	// service it bounds each part, of which there are a few hundred at most.
	Timeout time.Duration
	// Report is told of each connection that was refused, or that ended for another reason than its
	// client's closing it. It may be called by several goroutines at once, and must not block:
	// accepting waits for it. nil: nothing is.
	Report func(client string, err error)
}

// Blades are the control path of blades: rdma.Fabric. Its methods are safe for concurrent use.
type Blades interface {
	Blades() []rdma.BladeInfo
	// Durable reports whether FLUSH makes WRITEs survive the loss of power.
	Durable() bool
	Provision(b rdma.BladeID, off, n uint64) error
	Grant(b rdma.BladeID) (rdma.Key, error)
	Revoke(b rdma.BladeID, before rdma.Key) error
}

// Memory is what the buffers of one connection to a blade take on the server, in bytes.
const Memory = inSize + outSize

const (
	defaultConnections = 1024
	defaultDepth       = 256
	defaultTimeout     = 5 * time.Second
)

func (o *ServerOptions) complete() error {
	var f validate.Faults
	f.Check(o.Connections >= 0 && o.Connections <= 1<<20, "%d connections: between 1 and %d are possible",
		o.Connections, 1<<20)
	for _, name := range slices.Sorted(maps.Keys(o.Services)) {
		f.Check(serviceName(name), "service %q: a name has 1 to %d characters of ASCII, without spaces",
			name, maxServiceName)
		f.Check(o.Services[name] != nil, "service %q is nil", name)
	}
	f.Check(o.Depth >= 0 && o.Depth <= maxDepth, "a depth of %d requests: between 1 and %d are possible",
		o.Depth, maxDepth)
	f.Check(o.Timeout >= 0, "Timeout is %v: a duration of 0 or more is possible", o.Timeout)
	c := Credentials{o.Secret, o.TLS}
	if f.Check(o.Credentials == nil || c.Secret == nil && c.TLS == nil,
		"Credentials, and Secret or TLS: only one is possible"); o.Credentials != nil {
		c = o.Credentials()
	}
	c.ofServer(&f)
	if o.Connections == 0 {
		o.Connections = defaultConnections
	}
	if o.Depth == 0 {
		o.Depth = defaultDepth
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	return f.Err(ErrOptions)
}

// atLeast13 is a copy of a TLS configuration without the old versions.
func atLeast13(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.MinVersion = tls.VersionTLS13
	if c.MaxVersion != 0 {
		c.MaxVersion = max(c.MaxVersion, tls.VersionTLS13)
	}
	c.DynamicRecordSizingDisabled = true // batches are small: each is to be one record
	return c
}

// ParseAddress takes an address apart: "unix:PATH" or "tcp:HOST:PORT", also with two slashes
// behind the colon, or "HOST:PORT". The results are what net.Dial and net.Listen take.
func ParseAddress(s string) (network, address string, err error) {
	network, address, ok := strings.Cut(s, ":")
	if ok && (network == "unix" || network == "tcp") {
		address = strings.TrimPrefix(address, "//")
	} else {
		network, address = "tcp", s
	}
	if network == "unix" {
		if address == "" || len(address) > MaxUnixPath {
			return "", "", fmt.Errorf("%w: address %q: the path of a unix socket has between 1 and %d bytes, and "+
				"this one has %d", ErrOptions, s, MaxUnixPath, len(address))
		}
		return network, address, nil
	}
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" || strings.Contains(address, "/") {
		return "", "", fmt.Errorf("%w: address %q: it must be unix:PATH or tcp:HOST:PORT", ErrOptions, s)
	}
	return network, address, nil
}

// MaxUnixPath is how long the name of a unix socket may be on all systems, in bytes.
const MaxUnixPath = 103

// loopback reports whether an address leads to this host only.
func loopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}
