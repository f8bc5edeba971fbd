package tcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"txnode/rdma"
)

// Errors of this package; test with errors.Is. What a blade does not answer is
// rdma.ErrBladeDown besides.
var (
	// ErrOptions: options or addresses that cannot work; the text lists every fault.
	ErrOptions = errors.New("tcp: bad options")
	// ErrInsecure: without TLS that authenticates both sides, only loopback and unix sockets are served and dialled.
	ErrInsecure = errors.New("tcp: not secure")
	// ErrRefused: one side does not want the other: another version, user, secret, blade or service, or too many connections.
	ErrRefused = errors.New("tcp: connection refused")
	// ErrProtocol: the peer has sent something that is no frame, or no reply to what it was asked. The connection is closed.
	ErrProtocol = errors.New("tcp: protocol error")
	// ErrNoAnswer: the server of a service is not there, has ended, or does not answer. A request that was sent
	// may have been executed, or may be yet.
	ErrNoAnswer = errors.New("tcp: the server does not answer")
	// ErrTooLong: a request to a service has more than MaxMessage bytes. It was not sent.
	ErrTooLong = errors.New("tcp: request too long")
)

// downError is an rdma.ErrBladeDown that may be an rdma.ErrSilent.
type downError struct{ error }

// down says that a server does not answer, and why.
func down(server string, err error) error {
	return &downError{fmt.Errorf("tcp: server %s: %w: %w", server, err, rdma.ErrBladeDown)}
}

// Unwrap returns what it has come from.
func (e *downError) Unwrap() error { return e.error }

// Is matches rdma.ErrSilent if nothing was heard of the server: no deadline was met, or there is no way to its host. A server
// that is gone refuses connections, or ends them.
func (e *downError) Is(target error) bool {
	if target != rdma.ErrSilent {
		return false
	}
	for _, silent := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN} {
		if errors.Is(e.error, silent) {
			return true
		}
	}
	return false
}
