package etcd

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// handshakes are gRPC's TLS, with the name of the configuration: gRPC itself demands the host of
// each endpoint, whatever tls.Config.ServerName is. They keep the error of the last handshake,
// which the errors of requests do not have.
type handshakes struct {
	credentials.TransportCredentials // with the configuration of the beginning

	current func() *tls.Config
	failed  *atomic.Pointer[error]
}

func newHandshakes(o *Options, failed *atomic.Pointer[error]) *handshakes {
	current := o.Credentials
	if current == nil {
		current = func() *tls.Config { return o.TLS }
	}
	return &handshakes{credentials.NewTLS(o.TLS), current, failed}
}

// ClientHandshake makes the handshake with a member at an authority, its host and port.
func (h *handshakes) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	c := h.current()
	if c.ServerName != "" {
		authority = c.ServerName
	}
	conn, info, err := credentials.NewTLS(c).ClientHandshake(ctx, authority, conn)
	if err != nil {
		h.failed.Store(&err)
	} else {
		h.failed.Store(nil)
	}
	return conn, info, err
}

// Clone returns a copy.
func (h *handshakes) Clone() credentials.TransportCredentials {
	return &handshakes{h.TransportCredentials.Clone(), h.current, h.failed}
}
