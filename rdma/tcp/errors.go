package tcp

import "errors"

// Errors of this package; test with errors.Is. What a blade does not answer is
// rdma.ErrBladeDown besides.
var (
	// ErrOptions: options or addresses that cannot work; the text lists every fault.
	ErrOptions = errors.New("tcp: bad options")
	// ErrInsecure: without TLS that authenticates both sides, only loopback and unix sockets are served and dialled.
	ErrInsecure = errors.New("tcp: not secure")
	// ErrRefused: one side does not want the other: another version, user, secret or blade, or too many connections.
	ErrRefused = errors.New("tcp: connection refused")
	// ErrProtocol: the peer has sent something that is no frame, or no reply to what it was asked. The connection is closed.
	ErrProtocol = errors.New("tcp: protocol error")
)
