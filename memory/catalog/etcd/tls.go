package etcd

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// handshakes are gRPC's TLS, with the name of the configuration: gRPC itself demands the host of each endpoint, whatever
// tls.Config.ServerName is. They keep the error of the last handshake, which the errors of requests do not have.
type handshakes struct {
	credentials.TransportCredentials

	name   string // that certificates of members must have; "": the host of each endpoint
	failed *atomic.Pointer[error]
}

func newHandshakes(c *tls.Config, failed *atomic.Pointer[error]) *handshakes {
	return &handshakes{credentials.NewTLS(c), c.ServerName, failed}
}

// ClientHandshake makes the handshake with a member at an authority, its host and port.
func (h *handshakes) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if h.name != "" {
		authority = h.name
	}
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, conn)
	if err != nil {
		h.failed.Store(&err)
	} else {
		h.failed.Store(nil)
	}
	return conn, info, err
}

// Clone returns a copy.
func (h *handshakes) Clone() credentials.TransportCredentials {
	return &handshakes{h.TransportCredentials.Clone(), h.name, h.failed}
}
