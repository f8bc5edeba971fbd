package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"txnode/internal/peercred"
	"txnode/rdma"
	"txnode/rdma/region"
)

// Server serves the blades of a set: it executes the frames of clients on lanes, and the calls
// of their control path. It can have services besides. Its methods are safe for concurrent use.
type Server struct {
	set     *region.Set // nil: there are no blades, or they are elsewhere
	control Blades      // nil: there are none
	blades  int
	o       ServerOptions
	wallet  *wallet

	mu        sync.Mutex
	stopped   bool
	listeners map[net.Listener]struct{}
	conns     map[net.Conn]bool // true: it has proved that it may connect
	proved    int
	sessions  map[*session]struct{}
	ended     Stats          // but what is counted elsewhere: the sessions that have ended
	running   sync.WaitGroup // a count for each connection

	calls atomic.Uint64 // to services
}

var errStopping = errors.New("tcp: the server closes")

// NewServer makes a server for the blades of a set, which stays the caller's: it is closed after
// Shutdown. nil: no blades, services only. Errors match ErrOptions.
func NewServer(set *region.Set, o ServerOptions) (*Server, error) {
	o.Services = maps.Clone(o.Services)
	s := &Server{
		set: set, o: o, listeners: map[net.Listener]struct{}{}, conns: map[net.Conn]bool{},
		sessions: map[*session]struct{}{},
	}
	if err := s.o.complete(); err != nil {
		return nil, err
	}
	switch {
	case set != nil && o.Elsewhere != nil:
		return nil, fmt.Errorf("%w: blades of a set, and blades elsewhere: a blade is reached in one way", ErrOptions)
	case set != nil:
		s.control = set
	case o.Elsewhere != nil:
		s.control = o.Elsewhere
	case len(o.Services) == 0:
		return nil, fmt.Errorf("%w: a server without blades and without services", ErrOptions)
	}
	if s.control != nil {
		s.blades = len(s.control.Blades())
	}
	s.ended.Blades = make([]BladeStats, s.blades)
	s.wallet = &wallet{fixed: Credentials{o.Secret, o.TLS}, ask: o.Credentials, faults: (*Credentials).ofServer}
	return s, nil
}

// Serve accepts connections until Shutdown, and returns nil then. It closes the listener. A
// listener that would let other hosts in without TLS is refused with ErrInsecure, and so is a
// unix socket on a system that does not tell its users, without a Secret.
func (s *Server) Serve(l net.Listener) error {
	if err := s.Admissible(l.Addr()); err != nil {
		return errors.Join(err, l.Close())
	}
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return errors.Join(fmt.Errorf("tcp: Serve after Shutdown: %w", rdma.ErrClosed), l.Close())
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		_ = l.Close() // Shutdown may have closed it
	}()
	for wait := time.Duration(0); ; {
		c, err := l.Accept()
		if err == nil {
			wait = 0
			s.begin(c)
			continue
		}
		if s.stopping() {
			return nil
		}
		if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) && !errors.Is(err, unix.ENOBUFS) &&
			!errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.ECONNABORTED) {
			return fmt.Errorf("tcp: accepting connections on %v: %w", l.Addr(), err)
		}
		// The limit of files is reached: connections that end make room.
		s.report(l.Addr().String(), err)
		wait = min(max(2*wait, 5*time.Millisecond), time.Second)
		time.Sleep(wait)
	}
}

// Admissible returns the error with which Serve refuses a listener of this address; nil: it serves.
func (s *Server) Admissible(a net.Addr) error {
	c, err := s.wallet.now()
	if err != nil {
		return err
	}
	switch a.(type) {
	case *net.UnixAddr:
		switch {
		case c.Secret == nil && !peercred.Known:
			return fmt.Errorf("%w: this system does not tell which user connects to %v: set a shared secret",
				ErrInsecure, a)
		case s.o.Users != nil && !peercred.Known:
			return fmt.Errorf("%w: users: this system does not tell which user connects to %v", ErrOptions, a)
		}
		return nil
	case *net.TCPAddr:
		if c.TLS == nil && !loopback(a) {
			return fmt.Errorf("%w: %v can be reached from other hosts: set TLS, or listen on 127.0.0.1, [::1] or "+
				"a unix socket", ErrInsecure, a)
		}
		return nil
	}
	return fmt.Errorf("%w: %v is neither TCP nor a unix socket", ErrOptions, a)
}

// Shutdown closes the listeners, has the connections execute what they have received and reply, and
// closes them. The context of services ends at once. When ctx ends before that, it breaks those
// that are left, and returns ctx's error. No lane of the set is open afterwards.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopped = true
	for l := range s.listeners {
		_ = l.Close() // what Serve accepts no more is no error
	}
	past := time.Unix(1, 0)
	for c := range s.conns {
		_ = c.SetReadDeadline(past) // a connection that has ended has nothing to interrupt
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	<-done
	return ctx.Err()
}

func (s *Server) stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// Connections returns how many clients are connected and have proved that they may be.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proved
}

// begin takes a connection. Too many that have not proved yet that they may connect are a flood:
// more of these are closed without a word.
func (s *Server) begin(c net.Conn) {
	s.mu.Lock()
	flood := len(s.conns)-s.proved >= max(s.o.Connections/2, 16)
	if s.stopped || flood {
		if flood {
			s.ended.Refused++
		}
		s.mu.Unlock()
		name := clientOf(c)
		_ = c.Close()
		if flood {
			s.report(name, fmt.Errorf("%w: %v", ErrRefused, refusedBusy))
		}
		return
	}
	s.conns[c] = false
	s.running.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.running.Done()
		err := s.handle(c)
		s.mu.Lock()
		proved := s.conns[c]
		if proved {
			s.proved--
		}
		delete(s.conns, c)
		told := err != nil && (errors.Is(err, ErrRefused) || !s.stopped) // Shutdown interrupts what is under way
		switch {
		case told && (!proved || errors.Is(err, ErrRefused)):
			s.ended.Refused++
		case told:
			s.ended.Failed++
		}
		s.mu.Unlock()
		name := clientOf(c)
		_ = c.Close() // its end is known already
		if told {
			s.report(name, err)
		}
	}()
}

// handle is a connection from its beginning to its end.
func (s *Server) handle(c net.Conn) error {
	if err := s.deadline(c, time.Now().Add(s.o.Timeout)); err != nil {
		return err
	}
	creds, err := s.wallet.now()
	if err != nil {
		return err
	}
	refused, err := s.inspect(c, &creds)
	if err != nil {
		return err
	}
	stream := c
	if creds.TLS != nil && !isUnix(c) {
		t := tls.Server(c, creds.TLS)
		if err := t.Handshake(); err != nil {
			return fmt.Errorf("tcp: TLS: %w", err)
		}
		stream = t
	}
	h, w, err := receive(stream, creds.Secret, refused)
	if errors.Is(err, io.EOF) { // the client has gone, with nothing half said
		return nil
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.proved >= s.o.Connections {
		w.refused = refusedBusy
	} else {
		s.proved++
		s.ended.Accepted++
		s.conns[c] = true
	}
	s.mu.Unlock()
	w.durable, w.blades, w.depth = s.control != nil && s.control.Durable(), uint16(s.blades), uint32(s.o.Depth)
	w.elsewhere = s.o.Elsewhere != nil
	answer := s.o.Services[h.service]
	var q *session
	switch {
	case w.refused != 0:
	case h.purpose == forService && answer == nil:
		w.refused = refusedService
	case h.purpose == forService:
	case int(h.blade) >= s.blades: // it is 0 for the control path
		w.refused = refusedBlade
	case h.purpose == forData && s.set == nil:
		w.refused = refusedElsewhere
	case h.purpose == forData:
		if q, err = newSession(s.set, rdma.BladeID(h.blade), s.o.Timeout); err != nil {
			return errors.Join(finish(stream, &welcome{refused: refusedMemory}), err)
		}
	}
	if err = finish(stream, w); err == nil {
		err = s.deadline(c, time.Time{})
	}
	if q != nil {
		if err == nil {
			q.conn, q.stopping = stream, s.stopping
			s.enter(q)
			err = q.serve()
			s.leave(q)
		}
		return errors.Join(err, q.close())
	}
	switch {
	case err != nil && h.purpose == forService:
		return fmt.Errorf("service %q: %w", h.service, err)
	case err != nil:
		return err
	case h.purpose == forService:
		return s.serve(stream, answer)
	}
	return s.direct(stream)
}

// deadline sets both deadlines of a connection, unless the server closes.
func (s *Server) deadline(c net.Conn, at time.Time) error {
	if err := c.SetDeadline(at); err != nil {
		return err
	}
	if s.stopping() {
		return errStopping
	}
	return nil
}

// inspect decides by what the system knows of a client.
func (s *Server) inspect(c net.Conn, creds *Credentials) (refusal, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		if creds.TLS == nil && !loopback(c.RemoteAddr()) {
			return 0, fmt.Errorf("%w: a client from another host, without TLS", ErrInsecure)
		}
		return 0, nil
	}
	if !peercred.Known || s.o.Users == nil && creds.Secret != nil {
		return 0, nil
	}
	user, err := peercred.UserOf(u)
	if err != nil {
		return 0, fmt.Errorf("tcp: the user of a client: %w", err)
	}
	if s.o.Users == nil && (user == uint32(os.Geteuid()) || user == 0) || slices.Contains(s.o.Users, user) {
		return 0, nil
	}
	return refusedUser, nil
}

func isUnix(c net.Conn) bool {
	_, ok := c.(*net.UnixConn)
	return ok
}

func (s *Server) report(client string, err error) {
	if s.o.Report != nil {
		s.o.Report(client, err)
	}
}

// clientOf names a client in reports.
func clientOf(c net.Conn) string {
	if u, ok := c.(*net.UnixConn); ok {
		if user, err := peercred.UserOf(u); err == nil {
			return fmt.Sprintf("user %d", user)
		}
	}
	return c.RemoteAddr().String()
}

// closedByPeer reports whether an error of a Read is that the other side is gone, by its will or
// its death.
func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}
