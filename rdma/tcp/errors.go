package tcp

import (
	"errors"
	"fmt"
)

// Errors of this package; test with errors.Is. What a blade does not answer is
// rdma.ErrBladeDown besides.
var (
	// ErrOptions: options or addresses that cannot work; the text lists every fault.
	ErrOptions = errors.New("tcp: bad options")
	// ErrInsecure: without TLS that authenticates both sides, only loopback and unix sockets are
	// served and dialled.
	ErrInsecure = errors.New("tcp: not secure")
	// ErrRefused: one side does not want the other: another version, user, secret, blade or
	// service, or too many connections.
	ErrRefused = errors.New("tcp: connection refused")
	// ErrProtocol: the peer has sent something that is no frame, or no reply to what it was asked.
	// The connection is closed.
	ErrProtocol = errors.New("tcp: protocol error")
	// ErrNoAnswer: the server of a service is not there, has ended, or does not answer. A request
	// that was sent may have been executed, or may be yet.
	ErrNoAnswer = errors.New("tcp: the server does not answer")
	// ErrTooLong: a request to a service has more than MaxMessage bytes. It was not sent.
	ErrTooLong = errors.New("tcp: request too long")
)

// errNotElsewhere: a client asks for a control path alone, of a server that has the data path, too.
var errNotElsewhere = fmt.Errorf("%w: its blades are reached by sockets: name it as tcp:HOST:PORT", ErrRefused)
