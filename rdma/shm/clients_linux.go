package shm

import (
	"fmt"
	"net"
	"os"
	"time"

	"txnode/internal/peercred"
)

// client is a fabric that has mapped the blades of a server: what the server knows of it by the
// connection on which it is asked. When that ends, the server knows no such client any more.
type client struct {
	c       *net.UnixConn
	process *peercred.Process
	ready   bool          // it has been told that it is asked here
	asked   bool          // and has not answered yet
	waited  time.Duration // for the answer, while fences waited for the client
	last    time.Time     // that was counted, or an answer
	killed  bool
}

// killWait is how long a fence waits for a client that was killed. Tests replace it.
var killWait = 2 * time.Second

// steps of the patience: the time between two looks counts as one at most. A server that stood
// still itself has not waited.
const steps = 32

// watch takes a connection for that on which a client is asked whether it lives.
func (s *Server) watch(c *net.UnixConn, m member) error {
	if !m.valid() {
		return fmt.Errorf("%w: client %#x", ErrProtocol, uint64(m))
	}
	p, err := peercred.ProcessOf(c)
	if err != nil {
		return fmt.Errorf("the process of a client: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.clients[m]; was != nil {
		_ = was.process.Close() // the client has connected again
	}
	s.clients[m] = &client{c: c, process: p}
	return nil
}

// by calls fn with the client that is asked on a connection; s.mu is held then.
func (s *Server) by(c *net.UnixConn, fn func(m member, x *client)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m, x := range s.clients {
		if x.c == c {
			fn(m, x)
		}
	}
}

// ready says that the client may be asked: the answer to its call has been sent.
func (s *Server) ready(c *net.UnixConn) { s.by(c, func(_ member, x *client) { x.ready = true }) }

// heard notes that a client has answered.
func (s *Server) heard(c *net.UnixConn) {
	s.by(c, func(_ member, x *client) { x.asked, x.waited, x.last = false, 0, time.Now() })
}

// leave forgets the client of a connection that has ended.
func (s *Server) leave(c *net.UnixConn) {
	s.by(c, func(m member, x *client) {
		_ = x.process.Close() // it was a handle
		delete(s.clients, m)
	})
}

// overdue is called while a key fence waits for a member: lanes. It asks the client whether it
// lives. A client that lives is waited for. One that has not answered for the patience has lost its
// lease, and is killed. An error says that this cannot be done.
func (s *Server) overdue(m member) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, now := s.clients[m], time.Now()
	if x == nil || !x.ready || x.killed { // it is no client of this server, or it ends
		return nil
	}
	step := s.o.Patience / steps
	if !x.asked {
		if now.Sub(x.last) < step {
			return nil
		}
		x.asked, x.last = true, now
		// One question is on its way at a time, so there is room for it.
		if x.c.SetWriteDeadline(now.Add(step)) == nil {
			_, _ = x.c.Write((&answer{}).bytes()) // no answer comes either
		}
		return nil
	}
	x.waited += min(now.Sub(x.last), step)
	x.last = now
	if x.waited < s.o.Patience || x.process.ID == os.Getpid() {
		return nil
	}
	if err := x.process.Kill(); err != nil {
		return fmt.Errorf("for %v it has given no sign of life, and it cannot be killed (process %d of user "+
			"%d): %w: end it", x.waited, x.process.ID, x.process.User, err)
	}
	x.killed = true
	s.report(&KilledError{Server: s.o.Name, Process: x.process.ID, User: x.process.User, Silent: x.waited})
	return nil
}
