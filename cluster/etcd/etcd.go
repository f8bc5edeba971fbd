package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"txnode/cluster"
	"txnode/memory/catalog/etcd"
	"txnode/memory/layout"
)

// scheme is that of addresses.
const scheme = "etcd"

func init() { cluster.RegisterCatalog(scheme, dial) }

// dial is a cluster.Dialer.
func dial(ctx context.Context, address string, o cluster.Options) (layout.Catalog, error) {
	eo, err := parse(address)
	if err != nil {
		return nil, err
	}
	eo.TLS, eo.Control = o.TCP.TLS, o.TCP.Control
	if current := o.TCP.Credentials; current != nil && current().TLS != nil {
		eo.Credentials = func() *tls.Config { return current().TLS }
	}
	c, err := etcd.Open(ctx, eo)
	if errors.Is(err, etcd.ErrOptions) {
		err = fmt.Errorf("%w: %w", cluster.ErrOptions, err)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// parse takes an address apart: cluster.ErrOptions.
func parse(address string) (o etcd.Options, err error) {
	members, prefix, _ := strings.Cut(strings.TrimPrefix(address, scheme+"://"), "/")
	o.Prefix = prefix
	for m := range strings.SplitSeq(members, ",") {
		host, port, err := net.SplitHostPort(m)
		if err != nil || host == "" || port == "" || strings.ContainsAny(m, "@?# \t\n") {
			return o, fmt.Errorf("%w: the address of a catalog is %q, and %q in it is no member of an etcd; it must "+
				"be etcd://HOST:PORT,HOST:PORT/PREFIX, and all but one HOST:PORT may be left out",
				cluster.ErrOptions, address, m)
		}
		o.Endpoints = append(o.Endpoints, m)
	}
	return o, nil
}
