package shm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"txnode/internal/peercred"
	"txnode/internal/unixsocket"
	"txnode/rdma"
	"txnode/rdma/region"
)

// Server has blades: it hands out their memory and changes their keys. It executes no verb. Its
// methods are safe for concurrent use.
type Server struct {
	o     ServerOptions
	dir   string
	lanes *lanes
	keys  *keys
	set   *region.Set
	l     *unixsocket.Listener

	mu      sync.Mutex
	closed  bool
	conns   map[*net.UnixConn]struct{} // of clients, at most ServerOptions.Connections
	refused map[*net.UnixConn]struct{} // that are told why not, at most maxRefused
	clients map[member]*client         // that have blades mapped
	running sync.WaitGroup             // a count for each connection
}

// NewServer takes a name in a directory, which it makes if there is none, and maps the blades.
// The directory belongs to the user of all processes, no other user may write to it, and it is
// best on a tmpfs, such as /run or /dev/shm. If a server of the name has ended without Close, its
// clients are shut out first, as a key fence does: NewServer waits for them, and ends none, since
// they are not its own. Serve comes next. Errors match ErrOptions, ErrDirectory or ErrStuck, or
// are those of region.New.
func NewServer(dir string, o ServerOptions) (s *Server, err error) {
	o.Blades = slices.Clone(o.Blades)
	if err := o.complete(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	s = &Server{
		o: o, dir: dir, conns: map[*net.UnixConn]struct{}{}, refused: map[*net.UnixConn]struct{}{},
		clients: map[member]*client{},
	}
	if s.lanes, err = openLanes(dir, true, o.Patience+killWait); err != nil {
		return nil, err
	}
	s.lanes.overdue = s.overdue
	if s.o.Seed == 0 {
		s.o.Seed = uint64(s.lanes.me)
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

func (s *Server) open() (err error) {
	switch mine, err := take(s.lanes.f, unix.F_WRLCK, nameOffset(s.o.Name)); {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	case !mine:
		return fmt.Errorf("%w: another server has the name %q in %s: give this one another name",
			ErrDirectory, s.o.Name, s.dir)
	}
	path, socket := keysOf(s.dir, s.o.Name), socketOf(s.dir, s.o.Name)
	if err := fenceBefore(s.dir, path, s.lanes); err != nil {
		return err
	}
	k, err := makeKeys(path, len(s.o.Blades), s.lanes)
	if err != nil {
		return err
	}
	s.keys = k
	for i := range s.o.Blades {
		b := &s.o.Blades[i]
		b.Words, b.Shared = k.words(i), b.Path == ""
	}
	if s.set, err = region.New(region.Config{Regions: s.o.Blades, Seed: s.o.Seed, Lines: s.lanes}); err != nil {
		return err
	}
	if s.l, err = unixsocket.Listen("unixpacket", socket, 0o600); err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	return nil
}

// Set is the server's regions: to stop and restart blades in drills. It is closed by Close.
func (s *Server) Set() *region.Set { return s.set }

// Connections returns how many there are: a client has one, and one more for each of its calls at a
// time.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Serve accepts clients until Close, and returns nil then.
func (s *Server) Serve() error {
	for wait := time.Duration(0); ; {
		c, err := s.l.AcceptUnix()
		if err == nil {
			wait = 0
			s.begin(c)
			continue
		}
		if s.isClosed() {
			return nil
		}
		if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) && !errors.Is(err, unix.ENOBUFS) &&
			!errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.ECONNABORTED) {
			return fmt.Errorf("shm: accepting clients on %v: %w", s.l.Addr(), err)
		}
		s.report(err) // connections that end make room
		wait = min(max(2*wait, 5*time.Millisecond), time.Second)
		time.Sleep(wait)
	}
}

// Close stops the blades, so that no verb of a client takes effect there any more, ends all
// connections and gives up the name. What the blades' memory held is gone; files keep it. To close
// again does nothing. ErrStuck: a client is in the middle of a verb still; a later server of the
// name will wait for it.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	err := s.lanes.shut(context.Background(), s.keys)
	if err == nil {
		err = os.Remove(keysOf(s.dir, s.o.Name))
	}
	err = errors.Join(err, s.l.Close())
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close() // what is under way there has no answer any more
	}
	for c := range s.refused {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
	return errors.Join(err, s.release())
}

// release gives up what there is. The member comes last: its end tells clients that the server has
// ended.
func (s *Server) release() error {
	var errs []error
	if s.l != nil {
		_ = s.l.Close() // it may be closed
	}
	if s.set != nil {
		errs = append(errs, s.set.Close())
	}
	if s.keys != nil {
		errs = append(errs, s.keys.close())
	}
	return errors.Join(append(errs, s.lanes.close())...)
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Server) report(err error) {
	if s.o.Report != nil {
		s.o.Report(err)
	}
}

// maxRefused is how many connections are told at a time why they are refused. Further ones are
// closed.
const maxRefused = 16

// begin takes a connection.
func (s *Server) begin(c *net.UnixConn) {
	w := welcome{version: Version, blades: uint16(len(s.o.Blades)), life: uint64(s.lanes.me)}
	user, err := peercred.UserOf(c)
	if err == nil && user != 0 && user != uint32(os.Geteuid()) {
		w.refused = refusedUser
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.refused == 0 && len(s.conns) >= s.o.Connections {
		w.refused = refusedBusy
	}
	all := s.conns
	if w.refused != 0 {
		all = s.refused
	}
	if err != nil || s.closed || len(s.refused) >= maxRefused && w.refused != 0 {
		_ = c.Close() // its end is what is said
		return
	}
	all[c] = struct{}{}
	s.running.Go(func() {
		err := s.handle(c, w)
		s.leave(c)
		_ = c.Close() // its end is known already
		s.mu.Lock()
		delete(all, c)
		closed := s.closed
		s.mu.Unlock()
		if err != nil && !closed {
			s.report(err)
		}
	})
}

// handle is a connection from its beginning to its end.
func (s *Server) handle(c *net.UnixConn, w welcome) error {
	if err := c.SetDeadline(time.Now().Add(s.o.Timeout)); err != nil {
		return err
	}
	p := make([]byte, callSize+1) // one more than any message: what is longer shows
	n, err := c.Read(p)
	if err != nil {
		return gone(err)
	}
	var h hello
	if err := h.get(p[:n]); err != nil {
		return err
	}
	if h.version != Version {
		w.refused = refusedVersion
	}
	if w.refused != 0 {
		_, err := c.Write(w.bytes())
		return errors.Join(fmt.Errorf("%w: %v", ErrRefused, w.refused), gone(err))
	}
	if err := send(c, w.bytes(), s.keys.f); err != nil {
		return gone(err)
	}
	watching := false
	for {
		if err := c.SetReadDeadline(time.Time{}); err != nil { // a client may be silent
			return gone(err)
		}
		n, err := c.Read(p)
		if err != nil {
			return gone(err)
		}
		var x call
		if err := x.get(p[:n]); err != nil {
			return err
		}
		if watching != (x.action == actAlive) {
			return fmt.Errorf("%w: call %d on a connection on which the server asks, or an answer on another one",
				ErrProtocol, x.action)
		}
		if watching {
			s.heard(c)
			continue
		}
		a, f := s.execute(c, &x)
		if err := c.SetWriteDeadline(time.Now().Add(s.o.Timeout)); err != nil {
			return gone(err)
		}
		if err := send(c, a.bytes(), f); err != nil {
			return gone(err)
		}
		if watching = x.action == actWatch && a.outcome == callDone; watching {
			s.ready(c)
		}
	}
}

// execute executes a call. The file goes with the answer.
func (s *Server) execute(c *net.UnixConn, x *call) (a answer, f *os.File) {
	b := rdma.BladeID(x.blade)
	var err error
	switch {
	case x.action == actReport:
		a.report = true
		var text []byte
		if s.o.Describe != nil {
			text = s.o.Describe()
		}
		if a.text = string(text); len(text) > maxReport {
			err = fmt.Errorf("the report has %d bytes, more than %d", len(text), maxReport)
		}
	case x.action == actWatch:
		err = s.watch(c, member(x.off))
	case int(x.blade) >= len(s.o.Blades):
		err = fmt.Errorf("blade %d of %d: %w", b, len(s.o.Blades), rdma.ErrBladeDown)
	case x.action == actAttach:
		o := &s.o.Blades[b]
		f = s.set.File(b)
		a = answer{readOnly: o.ReadOnly, file: o.Path != "", size: o.Size}
	case x.action == actProvision:
		err = s.set.Provision(b, x.off, x.n)
	case x.action == actGrant:
		a.key, err = s.set.Grant(b)
	case x.action == actRevoke:
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(min(x.n, math.MaxInt64)))
		err = s.set.RevokeContext(ctx, b, x.key)
		cancel()
		if errors.Is(err, ErrStuck) {
			s.report(fmt.Errorf("shm: server %s: blade %d: %w", s.o.Name, b, err))
		}
	}
	if a.outcome = outcomeOf(err); err != nil {
		a.text = err.Error()
	}
	return a, f
}

// gone is nil for an error that says that the other side has gone.
func gone(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) ||
		errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// send sends a message, with a descriptor if there is one.
func send(c *net.UnixConn, p []byte, f *os.File) error {
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	_, _, err := c.WriteMsgUnix(p, rights, nil)
	return err
}
