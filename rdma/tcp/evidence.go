package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"

	"txnode/rdma"
)

// unheard are errors of a server of which nothing was heard: no deadline was met, or there is
// no way to its host.
var unheard = []error{
	context.DeadlineExceeded, os.ErrDeadlineExceeded, syscall.ETIMEDOUT, syscall.EHOSTUNREACH,
	syscall.ENETUNREACH, syscall.EHOSTDOWN,
}

// ends are other errors after which nothing is known of the server. A socket in the file system
// that is not there may have been removed while its server lives, and one whose queue is full has a
// server that may be stopped.
var ends = []error{
	io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ENETDOWN,
	syscall.ENOENT, syscall.EAGAIN,
}

// isOne reports whether err is one of some errors.
func isOne(err error, all []error) bool {
	return slices.ContainsFunc(all, func(one error) bool { return errors.Is(err, one) })
}

// classify tells what an error of a connection, of its greeting or of a call is evidence of. The
// order counts: an error of a context that this process has ended may stand beside what that did to
// the connection, and a name that was not found in time is no silence of the server.
func classify(err error) rdma.Evidence {
	var name *net.DNSError
	switch {
	case errors.Is(err, context.Canceled), errors.As(err, &name), errors.Is(err, ErrInsecure),
		errors.Is(err, ErrOptions):
		return rdma.Own
	case errors.Is(err, ErrRefused), errors.Is(err, ErrProtocol), talksTLS(err):
		return rdma.Alive
	case errors.Is(err, syscall.ECONNREFUSED):
		return rdma.Refused
	case isOne(err, unheard), isOne(err, ends):
		return rdma.Silent
	}
	return rdma.Own
}

// talksTLS reports whether an error of TLS is of a server that has said something: a certificate
// that is not accepted here, an alert because it does not accept that of this process, or
// something else than TLS.
func talksTLS(err error) bool {
	var header tls.RecordHeaderError
	var alert *net.OpError
	// as package tls says
	return isCertificate(err) || errors.As(err, &header) || errors.As(err, &alert) && alert.Op == "remote error"
}

// peerError is an error of a connection to a server, with what it is evidence of. An
// rdma.ErrBladeDown may be an rdma.ErrSilent.
type peerError struct {
	error
	evidence rdma.Evidence
}

// down says that a server does not answer, and why.
func down(server string, err error) error {
	return &peerError{fmt.Errorf("tcp: server %s: %w: %w", server, err, rdma.ErrBladeDown), classify(err)}
}

// unwanted says that a server and this process do not talk to each other, and why.
func unwanted(server string, err error) error {
	return &peerError{fmt.Errorf("tcp: server %s: %w", server, err), classify(err)}
}

// misfit says that a server answers which is not like that which was here before.
func (r *remote) misfit(format string, args ...any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := rdma.Alive // what was here before was never heard: Options.Absent
	if len(r.known) > 0 && r.known[0].Incarnation != 0 {
		e = rdma.Restarted
	}
	return &peerError{
		fmt.Errorf("tcp: server %s: %s: %w", r.at.name, fmt.Sprintf(format, args...), rdma.ErrBladeDown), e,
	}
}

// Unwrap returns what it has come from.
func (e *peerError) Unwrap() error { return e.error }

// Evidence is what the error says of the server: rdma.EvidenceOf.
func (e *peerError) Evidence() rdma.Evidence { return e.evidence }

// Is matches rdma.ErrSilent if the server does not answer, and nothing was heard of it. A server
// that is gone refuses connections, or ends them.
func (e *peerError) Is(target error) bool {
	return target == rdma.ErrSilent && errors.Is(e.error, rdma.ErrBladeDown) && isOne(e.error, unheard)
}
