package shm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"txnode/rdma"
	"txnode/rdma/region"
)

// peer is a server, as a client knows it.
type peer struct {
	f     *Fabric
	name  string
	path  string // of the socket
	first int    // the fabric's number of its first blade
	shape []shape

	mu   sync.Mutex      // held while the server is connected anew, or its blades are shut
	life uint64          // of the server whose blades the set has; under mu and idleMu
	shut bool            // that one has ended, and no verb takes effect on its blades any more
	kept []*keys         // that are mapped
	ends []*net.UnixConn // that tell when the server ends; under idleMu

	idleMu sync.Mutex
	idle   []*net.UnixConn // that no call uses, of life
	closed bool
}

// shape is what does not change of a blade.
type shape struct {
	size           uint64
	readOnly, file bool
}

// errBegunAnew: the server is not that whose blades are mapped.
var errBegunAnew = errors.New("shm: the server has begun anew")

// connect makes a connection to a server and greets it; k comes with the welcome.
func (p *peer) connect(ctx context.Context) (c *net.UnixConn, w welcome, k *os.File, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.f.o.Connect)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unixpacket", p.path)
	if err != nil {
		return nil, w, nil, fmt.Errorf("shm: server %s: %w: %w", p.name, err, rdma.ErrBladeDown)
	}
	c = conn.(*net.UnixConn)
	until, _ := ctx.Deadline() // there is one
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err = c.SetDeadline(until); err == nil {
		_, err = c.Write((&hello{Version}).bytes())
	}
	var n int
	buf := make([]byte, welcomeSize+1)
	if err == nil {
		n, k, err = receive(c, buf)
	}
	if err == nil {
		err = w.get(buf[:n])
	}
	switch {
	case err != nil && !errors.Is(err, ErrProtocol):
		err = fmt.Errorf("%w: %w", err, rdma.ErrBladeDown)
	case err != nil:
	case w.version != Version:
		err = fmt.Errorf("%w: the server speaks version %d, this client %d: %v", ErrRefused, w.version, Version, refusedVersion)
	case w.refused != 0:
		err = fmt.Errorf("%w: %v", ErrRefused, w.refused)
	case k == nil:
		err = fmt.Errorf("%w: a welcome without the file of keys", ErrProtocol)
	}
	if err != nil {
		if k != nil {
			err = errors.Join(err, k.Close())
		}
		return nil, w, nil, errors.Join(fmt.Errorf("shm: server %s: %w", p.name, err), c.Close())
	}
	return c, w, k, nil
}

// receive receives a message into p, which is longer than any, and the descriptor that may come
// with it.
func receive(c *net.UnixConn, p []byte) (n int, f *os.File, err error) {
	rights := make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := c.ReadMsgUnix(p, rights)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return 0, nil, err
	}
	all, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	for i := range all {
		fds, err := unix.ParseUnixRights(&all[i])
		for _, fd := range fds {
			if f == nil && err == nil {
				unix.CloseOnExec(fd)
				f = os.NewFile(uintptr(fd), "file of a server")
			} else {
				_ = unix.Close(fd) // it was not asked for
			}
		}
	}
	return n, f, nil
}

// do sends a call and receives the answer.
func do(c *net.UnixConn, x *call, until time.Time) (a answer, f *os.File, err error) {
	if err := c.SetDeadline(until); err != nil {
		return a, nil, err
	}
	if _, err := c.Write(x.bytes()); err != nil {
		return a, nil, err
	}
	a.report = x.action == actReport
	most := maxText
	if a.report {
		most = maxReport
	}
	buf := make([]byte, answerSize+most+1)
	n, f, err := receive(c, buf)
	if err == nil {
		err = a.get(buf[:n])
	}
	if err == nil && (f != nil) != (x.action == actAttach && a.outcome == callDone) {
		err = fmt.Errorf("%w: an answer with or without a descriptor", ErrProtocol)
	}
	if err != nil && f != nil {
		err = errors.Join(err, f.Close())
		f = nil
	}
	return a, f, err
}

// attached is what a client gets of a server to map its blades.
type attached struct {
	c       *net.UnixConn
	life    uint64
	keys    *keys
	regions []region.Options
	shape   []shape
}

// attach connects to a server and gets what its blades are.
func (p *peer) attach(ctx context.Context) (*attached, error) {
	c, w, f, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	t := &attached{c: c, life: w.life}
	k, h, err := mapKeys(keysOf(p.f.dir, p.name), f)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	t.keys = k
	if h.life != w.life || h.blades != uint64(w.blades) {
		return nil, errors.Join(fmt.Errorf("shm: server %s: %w: its file of keys is of another server", p.name, ErrProtocol), t.discard())
	}
	until := time.Now().Add(p.f.o.Control)
	for i := range int(w.blades) {
		a, f, err := do(c, &call{action: actAttach, blade: uint16(i)}, until)
		if err == nil {
			err = a.err(p.name)
		}
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				err = fmt.Errorf("%w: %w", err, rdma.ErrBladeDown)
			}
			return nil, errors.Join(fmt.Errorf("shm: server %s: blade %d: %w", p.name, i, err), t.discard())
		}
		t.regions = append(t.regions, region.Options{Size: a.size, ReadOnly: a.readOnly, File: f, Words: k.words(i)})
		t.shape = append(t.shape, shape{a.size, a.readOnly, a.file})
	}
	return t, nil
}

// discard gives up what was got.
func (t *attached) discard() error {
	errs := []error{t.c.Close(), t.keys.close()}
	for _, r := range t.regions {
		errs = append(errs, r.File.Close())
	}
	return errors.Join(errs...)
}

// took makes the peer that of a server whose regions the set has now; p.mu is held.
func (p *peer) took(t *attached) {
	p.kept = append(p.kept, t.keys)
	p.idleMu.Lock()
	defer p.idleMu.Unlock()
	p.life, p.shut = t.life, false
	p.watch(t.c, t.life)
}

// watch has a goroutine wait for the end of a server; idleMu is held.
func (p *peer) watch(c *net.UnixConn, life uint64) {
	if p.closed || c.SetDeadline(time.Time{}) != nil {
		_ = c.Close()
		return
	}
	p.ends = append(p.ends, c)
	p.f.watching.Go(func() {
		_, _ = c.Read(make([]byte, 1)) // a server says nothing unasked: this is its end
		_ = c.Close()
		for p.ended(life, c) != nil {
			time.Sleep(50 * time.Millisecond)
		}
	})
}

// ended finds out what the end of a connection means, and shuts the blades if the server is gone. An
// error: it has not found out, or not been able to.
func (p *peer) ended(life uint64, was *net.UnixConn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idleMu.Lock()
	for i, c := range p.ends {
		if c == was {
			p.ends = append(p.ends[:i], p.ends[i+1:]...)
			break
		}
	}
	over := p.closed || p.life != life || p.shut
	p.idleMu.Unlock()
	if over {
		return nil
	}
	c, err := p.again(context.Background())
	if c != nil {
		p.idleMu.Lock()
		defer p.idleMu.Unlock()
		p.watch(c, life)
	}
	return err
}

// again connects to the server whose blades the set has. If that has ended it shuts the blades, and
// there is neither a connection nor an error; p.mu is held.
func (p *peer) again(ctx context.Context) (*net.UnixConn, error) {
	c, w, k, err := p.connect(ctx)
	if err == nil {
		_ = k.Close() // it is mapped
		if w.life == p.life {
			return c, nil
		}
		_ = c.Close() // the next call connects anew
	} else if !p.isGone(err) {
		return nil, err
	}
	return nil, p.shutBlades()
}

// isGone reports whether an error of connect says that there is no server.
func (p *peer) isGone(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, os.ErrNotExist)
}

// shutBlades lets no more verbs on the blades of the server that has ended, of whichever process, and
// waits for those that are under way; p.mu is held. Other clients do the same: the first that
// comes changes something.
func (p *peer) shutBlades() error {
	if p.shut {
		return nil
	}
	for i := range p.shape {
		if err := p.f.set.StopBlade(rdma.BladeID(p.first + i)); err != nil {
			return fmt.Errorf("shm: shutting the blades of server %s, which has ended: %w", p.name, err)
		}
	}
	p.idleMu.Lock()
	defer p.idleMu.Unlock()
	p.shut = true
	p.forget()
	return nil
}

// forget closes the connections that no call uses; idleMu is held.
func (p *peer) forget() {
	for _, c := range p.idle {
		_ = c.Close() // nothing is under way there
	}
	p.idle = nil
}

// current returns when the set has the blades of the server that answers, which is connected anew if it has
// begun anew.
func (p *peer) current(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.shut && p.f.set.Stopped(rdma.BladeID(p.first)) { // by a client that has noticed first, or in a drill
		c, err := p.again(ctx)
		if c != nil {
			err = c.Close()
		}
		if err != nil {
			return err
		}
	}
	if !p.shut {
		return nil
	}
	t, err := p.attach(ctx)
	if err != nil {
		return err
	}
	same := len(t.shape) == len(p.shape)
	for i := range t.shape {
		same = same && t.shape[i] == p.shape[i]
	}
	if !same {
		return errors.Join(fmt.Errorf("shm: server %s has begun anew with other blades: connect anew: %w", p.name, rdma.ErrBladeDown), t.discard())
	}
	for i, o := range t.regions {
		if err := p.f.set.Replace(rdma.BladeID(p.first+i), o); err != nil {
			t.regions = t.regions[i+1:] // the set has had the others
			return errors.Join(err, t.discard())
		}
	}
	p.took(t)
	return nil
}

// call executes a call on a server.
func (p *peer) call(x call) (answer, error) {
	until := time.Now().Add(p.f.o.Control)
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	for try := 0; ; try++ {
		if err := p.current(ctx); err != nil {
			return answer{}, err
		}
		c, err := p.caller(ctx)
		if err == nil {
			var a answer
			a, _, err = do(c, &x, until)
			if err == nil {
				p.giveBack(c)
				err = a.err(p.name)
				return a, err
			}
			_ = c.Close() // an answer may come late
			if gone(err) == nil && try < 3 {
				p.idleMu.Lock()
				p.forget() // they have ended, too
				p.idleMu.Unlock()
				continue
			}
		}
		if p.isGone(err) || errors.Is(err, errBegunAnew) {
			p.mu.Lock()
			failed := p.shutBlades()
			p.mu.Unlock()
			if failed != nil {
				return answer{}, failed
			}
			if errors.Is(err, errBegunAnew) && try < 3 {
				continue
			}
		}
		if errors.Is(err, ErrRefused) || errors.Is(err, ErrProtocol) {
			return answer{}, fmt.Errorf("shm: server %s: %w", p.name, err)
		}
		return answer{}, fmt.Errorf("shm: server %s: %w: %w", p.name, err, rdma.ErrBladeDown)
	}
}

// caller returns a connection for one call.
func (p *peer) caller(ctx context.Context) (c *net.UnixConn, err error) {
	p.idleMu.Lock()
	life := p.life
	if n := len(p.idle); n > 0 {
		c = p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.idleMu.Unlock()
		return c, nil
	}
	p.idleMu.Unlock()
	c, w, k, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err = k.Close(); w.life != life {
		err = errBegunAnew
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (p *peer) giveBack(c *net.UnixConn) {
	p.idleMu.Lock()
	defer p.idleMu.Unlock()
	if p.closed || p.shut {
		_ = c.Close()
		return
	}
	p.idle = append(p.idle, c)
}

// close ends the connections.
func (p *peer) close() {
	p.idleMu.Lock()
	defer p.idleMu.Unlock()
	p.closed = true
	p.forget()
	for _, c := range p.ends {
		_ = c.Close() // its goroutine ends
	}
}
