package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"txnode/rdma"
)

// Caller is the client's side of a service of a server. Its methods are safe for concurrent use. It
// has one connection, with one call at a time: others wait.
type Caller struct {
	dialer
	at      target
	service string
	life    context.Context // until Close
	end     context.CancelFunc
	turn    chan struct{} // has a value while a call is under way, which guards line
	line    *line         // nil: to be connected
}

// DialService connects to a service of a server: ServerOptions.Services. Of the options, Seed and
// Verb have no meaning. Errors name the address; they match ErrOptions, ErrInsecure, ErrRefused,
// ErrProtocol, or ErrNoAnswer for a server that does not answer.
func DialService(ctx context.Context, address, service string, o Options) (*Caller, error) {
	c, err := NewCaller(address, service, o)
	if err != nil {
		return nil, err
	}
	if err := c.connect(ctx); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// NewCaller is DialService without a connection, which the first call makes.
func NewCaller(address, service string, o Options) (*Caller, error) {
	d, err := newDialer(o)
	if err != nil {
		return nil, err
	}
	at, err := parseTarget(address)
	if err != nil {
		return nil, err
	}
	if !serviceName(service) {
		return nil, fmt.Errorf("%w: service %q: a name has 1 to %d characters of ASCII, without spaces",
			ErrOptions, service, maxServiceName)
	}
	c := &Caller{dialer: d, at: at, service: service, turn: make(chan struct{}, 1)}
	c.life, c.end = context.WithCancel(context.Background())
	return c, nil
}

// Address returns the address of the server, as DialService was given it.
func (c *Caller) Address() string { return c.at.name }

// Call sends a request and returns the reply, which is the caller's. ctx bounds the call; if it has
// no deadline, Options.Control does. A call that ctx ends closes the connection. A connection that
// has broken is replaced before a request is sent. No request is sent twice as a whole.
//
// Errors: a *CallError is the service's. ErrTooLong, ErrRefused, ErrInsecure: the request was not
// sent. ErrNoAnswer, ErrProtocol, and rdma.ErrClosed after Close: it may have been executed, or may
// be yet. The error of ctx is there besides if ctx has ended.
func (c *Caller) Call(ctx context.Context, request []byte) ([]byte, error) {
	if len(request) > MaxMessage {
		return nil, fmt.Errorf("%w: %d bytes to service %q of %s: at most %d are possible",
			ErrTooLong, len(request), c.service, c.at.name, MaxMessage)
	}
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, c.o.Control)
		defer cancel()
		ctx = limited
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, c.failed(ctx, ctx.Err())
	}
	defer func() { <-c.turn }()
	if c.life.Err() != nil {
		return nil, c.failed(ctx, rdma.ErrClosed)
	}
	for again := true; ; again = false {
		if c.line != nil && c.line.broken() {
			c.drop()
		}
		if c.line == nil {
			if err := c.connect(ctx); err != nil {
				return nil, err
			}
			again = false
		}
		reply, sent, err := c.line.do(ctx, request)
		if err == nil {
			return reply, nil
		}
		if e, ok := errors.AsType[*CallError](err); ok {
			return nil, e
		}
		c.drop()
		if sent || !again || ctx.Err() != nil {
			return nil, c.failed(ctx, err)
		}
	}
}

// failed is the error of a call that has no answer.
func (c *Caller) failed(ctx context.Context, err error) error {
	name := fmt.Sprintf("tcp: service %q of %s", c.service, c.at.name)
	switch {
	case c.life.Err() != nil:
		return fmt.Errorf("%s: %w", name, rdma.ErrClosed)
	case unwilling(err):
		return &peerError{fmt.Errorf("%s: %w", name, err), classify(err)}
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return &peerError{fmt.Errorf("%s: %w: %w", name, ErrNoAnswer, err), classify(err)}
}

// connect makes the connection. The caller has the turn.
func (c *Caller) connect(ctx context.Context) error {
	conn, _, err := c.dial(ctx, &c.at, hello{purpose: forService, service: c.service})
	if err != nil {
		return c.failed(ctx, err)
	}
	c.line = newLine(conn)
	return nil
}

// drop closes the connection. The caller has the turn.
func (c *Caller) drop() {
	c.line.close()
	c.line = nil
}

// Gone returns a channel that is closed when the present connection has ended; nil: there is none.
func (c *Caller) Gone() <-chan struct{} {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if c.line == nil {
		return nil
	}
	return c.line.gone
}

// Close ends the call that is under way, and closes the connection. To close again does nothing.
func (c *Caller) Close() error {
	c.end()
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if c.line != nil {
		c.drop()
	}
	return nil
}

// line is a connection to a service. A goroutine reads it all the time, so that the end of the
// server is noticed before a request is sent.
type line struct {
	conn    net.Conn
	number  uint32        // of the last request
	awaited atomic.Uint32 // number of the request that has no reply yet; 0: none
	replies chan message
	gone    chan struct{} // closed when nothing reads any more: err says why
	err     error
	spoiled bool // a deadline has been set that is over
}

// message is a reply.
type message struct {
	code uint32
	body []byte
}

func newLine(c net.Conn) *line {
	l := &line{conn: c, replies: make(chan message, 1), gone: make(chan struct{})}
	go func() {
		defer close(l.gone)
		l.err = l.read()
	}()
	return l
}

// read reads replies until the connection ends.
func (l *line) read() error {
	var head [messageHead]byte
	for {
		if _, err := io.ReadFull(l.conn, head[:]); err != nil {
			return err
		}
		number := l.awaited.Swap(0)
		if number == 0 {
			return fmt.Errorf("%w: a reply to no request", ErrProtocol)
		}
		code, n, err := getMessage(head[:], number)
		if err != nil {
			return err
		}
		body, err := readBody(l.conn, nil, n, func() error { return nil })
		if err != nil {
			return err
		}
		l.replies <- message{code, body} // do takes it, or closes the connection
	}
}

// broken reports whether the connection has ended.
func (l *line) broken() bool {
	select {
	case <-l.gone:
		return true
	default:
		return l.spoiled
	}
}

// do sends a request and waits for the reply; sent: the server may have it as a whole. After an
// error that is no *CallError the line must be closed.
func (l *line) do(ctx context.Context, request []byte) (reply []byte, sent bool, err error) {
	// a connection that has ended has nothing to interrupt
	stop := context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })
	defer func() { l.spoiled = !stop() }()
	if l.number++; l.number == 0 {
		l.number = 1
	}
	var head [messageHead]byte
	putMessage(head[:], l.number, 0, len(request))
	l.awaited.Store(l.number)
	inline := min(len(request), firstRead)
	first := append(append(make([]byte, 0, messageHead+inline), head[:]...), request[:inline]...)
	if err := writeParts(l.conn, first, request[inline:], func() error { return ctx.Err() }); err != nil {
		return nil, false, err
	}
	select {
	case m := <-l.replies:
		if m.code != 0 {
			return nil, true, &CallError{Code: m.code, Text: string(m.body)}
		}
		return m.body, true, nil
	case <-l.gone:
		return nil, true, l.err
	case <-ctx.Done():
		return nil, true, ctx.Err()
	}
}

// close closes the connection, and returns when nothing reads any more.
func (l *line) close() {
	_ = l.conn.Close() // what it would say reads and writes have said
	<-l.gone
}
