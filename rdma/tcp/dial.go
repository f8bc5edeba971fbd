package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"txnode/internal/peercred"
)

// dialer makes connections of all purposes.
type dialer struct {
	o      Options
	wallet *wallet
}

// newDialer checks options and completes them.
func newDialer(o Options) (dialer, error) {
	if err := o.complete(); err != nil {
		return dialer{}, err
	}
	return dialer{o, &wallet{fixed: Credentials{o.Secret, o.TLS}, ask: o.Credentials, faults: (*Credentials).ofClient}},
		nil
}

// target is the address of a server.
type target struct {
	name, network, address string
	host                   string // for the certificate
}

func parseTarget(name string) (target, error) {
	network, address, err := ParseAddress(name)
	host, _, _ := net.SplitHostPort(address) // "" for unix sockets
	return target{name: name, network: network, address: address, host: host}, err
}

// unwilling reports whether an error of dial is of a server that is there and does not take the
// client, or that the client does not take.
func unwilling(err error) bool {
	return errors.Is(err, ErrRefused) || errors.Is(err, ErrInsecure) || errors.Is(err, ErrProtocol) ||
		isCertificate(err)
}

func isCertificate(err error) bool {
	var c *tls.CertificateVerificationError
	return errors.As(err, &c)
}

// dial connects to a server and greets it, within Options.Connect. Its errors do not name the
// server.
func (d *dialer) dial(ctx context.Context, t *target, h hello) (net.Conn, *welcome, error) {
	ctx, cancel := context.WithTimeout(ctx, d.o.Connect)
	defer cancel()
	var n net.Dialer
	c, err := n.DialContext(ctx, t.network, t.address)
	if err != nil {
		return nil, nil, err
	}
	until, _ := ctx.Deadline() // there is one
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	stream, w, err := d.greet(c, t, h, until)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return nil, nil, errors.Join(err, c.Close())
	}
	if !stop() {
		return nil, nil, errors.Join(ctx.Err(), c.Close())
	}
	return stream, w, nil
}

// trust refuses a unix socket that another user serves.
func (d *dialer) trust(c net.Conn, at *target) error {
	u, ok := c.(*net.UnixConn)
	if !ok || !peercred.Known {
		return nil
	}
	user, err := peercred.UserOf(u)
	if err != nil {
		return fmt.Errorf("tcp: the user of a server: %w", err)
	}
	if d.o.Users == nil && (user == uint32(os.Geteuid()) || user == 0) || slices.Contains(d.o.Users, user) {
		return nil
	}
	return fmt.Errorf("%w: user %d serves %s: connect as that user, or by a shared secret, or say that its "+
		"servers are trusted", ErrRefused, user, at.address)
}

// greet secures a connection and greets the server.
func (d *dialer) greet(c net.Conn, at *target, h hello, until time.Time) (net.Conn, *welcome, error) {
	if err := c.SetDeadline(until); err != nil {
		return nil, nil, err
	}
	creds, err := d.wallet.now()
	if err != nil {
		return nil, nil, err
	}
	stream := c
	switch {
	case at.network == "unix":
		if creds.Secret == nil {
			if err := d.trust(c, at); err != nil {
				return nil, nil, err
			}
		}
	case creds.TLS == nil && !loopback(c.RemoteAddr()):
		return nil, nil, fmt.Errorf("%w: %v is another host: set TLS", ErrInsecure, c.RemoteAddr())
	case creds.TLS != nil:
		conf := creds.TLS
		if conf.ServerName == "" {
			conf = conf.Clone()
			conf.ServerName = at.host
		}
		// The data path does not wait in a Read: see cipher.
		t := tls.Client(&cipher{Conn: c}, conf)
		if err := t.Handshake(); err != nil {
			return nil, nil, fmt.Errorf("TLS: %w", err)
		}
		stream = t
	}
	w, err := greet(stream, creds.Secret, h)
	if err != nil {
		return nil, nil, err
	}
	return stream, w, c.SetDeadline(time.Time{})
}
