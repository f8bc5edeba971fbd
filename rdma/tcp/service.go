package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Service answers requests of clients: ServerOptions.Services, and DialService on the client's
// side. It is called by a goroutine for each connection, with one request at a time.
//
// request is valid until it returns. ctx ends when the client is gone, or the server shuts down:
// then a service that waits for something ends its waiting. Its reply is sent all the same, if the
// client is there. Shutdown waits for it. An error is sent as a text, cut off after 1 KiB, with the
// code of a *CallError if it is one.
type Service func(ctx context.Context, request []byte) (reply []byte, err error)

// CallError is what a service has answered instead of a reply.
type CallError struct {
	Code uint32 // not 0; CodeFailed if the service has not chosen one
	Text string
}

// CodeFailed is the CallError.Code of an error that has none.
const CodeFailed = 1<<32 - 1

// Error returns the text.
func (e *CallError) Error() string { return e.Text }

// maxServiceName is how many bytes the name of a service has at most.
const maxServiceName = 16

// serviceName reports whether s can be the name of a service.
func serviceName(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return s != "" && len(s) <= maxServiceName
}

// writePart is how many bytes of a message are written with one deadline.
const writePart = 256 << 10

// serve answers the requests of a connection of a service, until the client closes it or the server
// shuts down.
//
// A goroutine of its own reads, so that the end of the client is noticed while the service is at
// work. It reads no more than the first byte of a request before the one before is answered:
//
//	reading    first byte .... next .. rest .. arrived .. first byte of the next request ..
//	answering                  next            arrived .. the service, reply .. next
func (s *Server) serve(c net.Conn, answer Service) error {
	ctx, gone := context.WithCancel(context.Background())
	var p serving
	p.next, p.arrived = make(chan struct{}), make(chan struct{})
	go func() {
		p.err = s.requests(c, &p)
		gone()
		close(p.arrived)
	}()
	defer func() { // nothing reads when serve has returned
		close(p.next)
		_ = c.Close() // it has ended
		for range p.arrived {
		}
	}()
	for number := uint32(1); ; number++ {
		select {
		case p.next <- struct{}{}:
		case <-p.arrived:
		}
		if _, ok := <-p.arrived; !ok {
			return p.err
		}
		s.calls.Add(1)
		reply, err := answer(ctx, p.body)
		if err := s.reply(c, &p, number, reply, err); err != nil {
			if closedByPeer(err) {
				return nil
			}
			return err
		}
		if cap(p.body) > firstRead {
			p.body = nil
		}
	}
}

// requests reads requests until the connection ends: nil if that is between two, or the
// server shuts down.
func (s *Server) requests(c net.Conn, p *serving) error {
	for number := uint32(1); ; number++ {
		// Between requests the client may be silent; a request comes at once.
		if err := c.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
		if s.stopping() { // which ends a Read by its deadline
			return nil
		}
		if _, err := io.ReadFull(c, p.head[:1]); err != nil {
			if s.stopping() || closedByPeer(err) || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		if _, ok := <-p.next; !ok { // serve has ended
			return nil
		}
		if err := s.request(c, p, number); err != nil {
			return err
		}
		p.arrived <- struct{}{}
	}
}

// serving is a connection of a service. The reading goroutine has body between next and arrived,
// and the answering one has it between arrived and next.
type serving struct {
	next    chan struct{} // the request before is answered
	arrived chan struct{} // a request is there; closed: there will be none, and err says why
	err     error
	head    [messageHead]byte
	body    []byte
	out     []byte
}

// request reads a request, whose first byte is there.
func (s *Server) request(c net.Conn, p *serving, number uint32) error {
	extend := func() error { return c.SetReadDeadline(time.Now().Add(s.o.Timeout)) }
	if err := extend(); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, p.head[1:]); err != nil {
		return err
	}
	code, n, err := getMessage(p.head[:], number)
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("%w: a request with code %d", ErrProtocol, code)
	}
	p.body, err = readBody(c, p.body, n, extend)
	return err
}

// reply sends what a service has answered.
func (s *Server) reply(c net.Conn, p *serving, number uint32, reply []byte, failed error) error {
	if failed == nil && len(reply) > MaxMessage {
		failed = fmt.Errorf("the reply has %d bytes, more than %d", len(reply), MaxMessage)
	}
	code := uint32(0)
	if failed != nil {
		text := failed.Error()
		reply, code = []byte(text[:min(len(text), maxText)]), CodeFailed
		if e, ok := errors.AsType[*CallError](failed); ok && e.Code != 0 {
			code = e.Code
		}
	}
	p.out = append(p.out[:0], make([]byte, messageHead)...)
	putMessage(p.out, number, code, len(reply))
	inline := min(len(reply), firstRead)
	p.out = append(p.out, reply[:inline]...)
	return writeParts(c, p.out, reply[inline:], func() error { return c.SetWriteDeadline(time.Now().Add(s.o.Timeout)) })
}

// writeParts writes head and then rest. extend is called before each part, for its deadline.
func writeParts(c net.Conn, head, rest []byte, extend func() error) error {
	for part := head; ; {
		if err := extend(); err != nil {
			return err
		}
		if _, err := c.Write(part); err != nil {
			return err
		}
		if len(rest) == 0 {
			return nil
		}
		part = rest[:min(len(rest), writePart)]
		rest = rest[len(part):]
	}
}
