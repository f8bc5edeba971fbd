package shm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
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
	keys *keys           // of the server whose blades the set has; under mu and idleMu
	shut bool            // that one has ended, and no verb takes effect on its blades any more
	kept []*keys         // that are mapped
	ends []*net.UnixConn // on which the server asks, and whose end tells of its own; under idleMu

	idleMu sync.Mutex
	idle   []*net.UnixConn // that no call uses, of that server
	closed bool
}

// shape is what does not change of a blade.
type shape struct {
	size           uint64
	readOnly, file bool
}

// errEnded: the server whose blades are mapped has ended, for certain.
var errEnded = errors.New("shm: the server has ended")

// connect makes a connection to a server and greets it; k comes with the welcome. What goes wrong
// says nothing of the server whose blades are mapped: see reach.
func (p *peer) connect(ctx context.Context) (c *net.UnixConn, w welcome, k *os.File, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.f.o.Connect)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unixpacket", p.path)
	if err != nil {
		return nil, w, nil, p.silent(err)
	}
	c = conn.(*net.UnixConn)
	until, _ := ctx.Deadline() // there is one
	err = c.SetDeadline(until)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	if err == nil {
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
	if !stop() && err == nil {
		err = ctx.Err() // the deadline of the calls to come is over, or is about to be
	}
	switch {
	case err != nil && !errors.Is(err, ErrProtocol):
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return nil, w, nil, errors.Join(p.silent(err), c.Close())
	case err != nil:
	case w.version != Version:
		err = fmt.Errorf("%w: the server speaks version %d, this client %d: %v",
			ErrRefused, w.version, Version, refusedVersion)
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

// silent is the error for a server that was not reached, or has not answered. There is no
// proof that it has ended: the trouble may be this process's own, and then it is nothing
// that the server did.
func (p *peer) silent(err error) error {
	if p.f.ctx.Err() != nil {
		return fmt.Errorf("shm: %w", rdma.ErrClosed)
	}
	for _, own := range []error{
		context.Canceled, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.EACCES, unix.EPERM,
	} {
		if errors.Is(err, own) {
			return fmt.Errorf("shm: this process cannot connect to server %s: %w", p.name, err)
		}
	}
	return fmt.Errorf("shm: server %s: %w: %w: %w", p.name, err, rdma.ErrSilent, rdma.ErrBladeDown)
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

// do sends a call and receives the answer, until ctx ends. After an error the connection must be
// closed.
func do(ctx context.Context, c *net.UnixConn, x *call) (a answer, f *os.File, err error) {
	until, _ := ctx.Deadline() // none: without a limit
	if err := c.SetDeadline(until); err != nil {
		return a, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		switch over := !stop(); {
		case over && err == nil: // its deadline is over, or is about to be
			err = ctx.Err()
		case over:
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		if err != nil && f != nil {
			err = errors.Join(err, f.Close())
			f = nil
		}
	}()
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
	return a, f, err
}

// attached is what a client gets of a server to map its blades.
type attached struct {
	c       *net.UnixConn
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
	t := &attached{c: c}
	path := keysOf(p.f.dir, p.name)
	k, err := mapKeys(path, f)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	t.keys = k
	if uint64(k.life) != w.life || k.blades != int(w.blades) {
		return nil, errors.Join(fmt.Errorf("shm: server %s: %w: its file of keys is of another server",
			p.name, ErrProtocol), t.discard())
	}
	if k.lanes != p.f.lanes.header.id {
		return nil, errors.Join(damaged(path, "the server waits for lanes of another file than %s, which was removed",
			p.f.lanes.f.Name()), t.discard())
	}
	ctx, cancel := context.WithTimeout(ctx, p.f.o.Control)
	defer cancel()
	for i := range int(w.blades) {
		a, f, err := do(ctx, c, &call{action: actAttach, blade: uint16(i)})
		if err == nil {
			err = a.err(p.name)
		}
		if err != nil {
			return nil, errors.Join(p.failed(err), t.discard())
		}
		t.regions = append(t.regions, region.Options{Size: a.size, ReadOnly: a.readOnly, File: f, Words: k.words(i)})
		t.shape = append(t.shape, shape{a.size, a.readOnly, a.file})
	}
	if err := p.askedOn(ctx, c); err != nil {
		return nil, errors.Join(err, t.discard())
	}
	return t, nil
}

// askedOn has the server ask on a connection whether this client lives. No call comes there any
// more.
func (p *peer) askedOn(ctx context.Context, c *net.UnixConn) error {
	a, _, err := do(ctx, c, &call{action: actWatch, off: uint64(p.f.lanes.me)})
	if err == nil {
		err = a.err(p.name)
	}
	if err != nil {
		return p.failed(err)
	}
	return nil
}

// failed is the error for a call that the server has not answered, or not so as was asked.
func (p *peer) failed(err error) error {
	var f *failure
	switch {
	case errors.As(err, &f): // its text names the server
		return err
	case errors.Is(err, ErrProtocol):
		return fmt.Errorf("shm: server %s: %w", p.name, err)
	}
	return p.silent(err)
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
	p.keys, p.shut = t.keys, false
	p.watch(t.c, t.keys)
}

// watch has a goroutine answer what a server asks on a connection, and wait for its end; idleMu is
// held.
func (p *peer) watch(c *net.UnixConn, of *keys) {
	if p.closed || c.SetDeadline(time.Time{}) != nil {
		_ = c.Close()
		return
	}
	p.ends = append(p.ends, c)
	p.f.watching.Go(func() {
		alive, question := (&call{action: actAlive}).bytes(), make([]byte, answerSize)
		for {
			if n, err := c.Read(question); n == 0 || err != nil {
				break
			}
			if _, err := c.Write(alive); err != nil {
				break
			}
		}
		_ = c.Close()
		for p.ended(of, c) != nil {
			select {
			case <-p.f.ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
}

// ended finds out what the end of a connection means, and shuts the blades if the server has ended.
// An error: it has not found out, or not been able to.
func (p *peer) ended(of *keys, was *net.UnixConn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idleMu.Lock()
	p.ends = slices.DeleteFunc(p.ends, func(c *net.UnixConn) bool { return c == was })
	over := p.closed || p.keys != of || p.shut
	p.idleMu.Unlock()
	if over {
		return nil
	}
	ctx, cancel := context.WithTimeout(p.f.ctx, p.f.o.Control)
	defer cancel()
	c, err := p.reach(ctx, of)
	if errors.Is(err, errEnded) {
		return p.shutBlades(ctx, of)
	}
	if err == nil {
		if err = p.askedOn(ctx, c); err != nil {
			return errors.Join(err, c.Close())
		}
		p.idleMu.Lock()
		defer p.idleMu.Unlock()
		p.watch(c, of)
	}
	return err
}

// reach connects to the server whose blades the set has, or had when it was called: k. That server
// has ended only if the system says so: its lock as a member of the directory is free. Then the
// error is errEnded, whatever came of connecting. A refused connection, a socket that is not there,
// another server that answers and a deadline are no such proof.
func (p *peer) reach(ctx context.Context, k *keys) (*net.UnixConn, error) {
	for {
		c, w, f, err := p.connect(ctx)
		if err == nil {
			_ = f.Close() // it is mapped
			if w.life == uint64(k.life) {
				return c, nil
			}
			_ = c.Close() // the next call connects anew
		}
		if over, e := p.f.lanes.over(k.life); e != nil {
			return nil, fmt.Errorf("shm: server %s: %w: %w", p.name, ErrDirectory, e)
		} else if over {
			return nil, errEnded
		}
		if err == nil {
			err = fmt.Errorf("shm: server %s: %w: two servers have the name, since files of the directory were "+
				"removed: end this one", p.name, ErrDirectory)
		}
		if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, os.ErrNotExist) && gone(err) != nil ||
			ctx.Err() != nil {
			return nil, err
		}
		time.Sleep(time.Millisecond) // it is about to end, or somebody has removed its socket
	}
}

// shutBlades lets no more verbs on the blades of the server that has ended, of whichever process,
// and waits for those that are under way; p.mu is held. Other clients do the same: the first that
// comes changes something.
func (p *peer) shutBlades(ctx context.Context, of *keys) error {
	if p.f.ctx.Err() != nil {
		return fmt.Errorf("shm: %w", rdma.ErrClosed)
	}
	if p.shut || p.keys != of { // by another call
		return nil
	}
	if err := p.f.lanes.shut(ctx, of); err != nil {
		return fmt.Errorf("shm: shutting the blades of server %s, which has ended: %w", p.name, err)
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

// current returns when the set has the blades of the server that answers, which is connected anew
// if it has begun anew.
func (p *peer) current(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.f.ctx.Err() != nil {
		return fmt.Errorf("shm: %w", rdma.ErrClosed)
	}
	if !p.shut && p.f.set.Stopped(rdma.BladeID(p.first)) { // by a client that has noticed first, or in a drill
		switch c, err := p.reach(ctx, p.keys); {
		case errors.Is(err, errEnded):
			if err := p.shutBlades(ctx, p.keys); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			_ = c.Close() // it was a question
		}
	}
	if !p.shut {
		return nil
	}
	t, err := p.attach(ctx)
	if errors.Is(err, ErrRefused) || errors.Is(err, ErrProtocol) || errors.Is(err, ErrDirectory) {
		return fmt.Errorf("%w: %w: the next one: %w", errEnded, rdma.ErrBladeDown, err)
	}
	if err != nil { // what is known for certain is that its memory is gone
		return &failure{fmt.Sprintf("%v: the next one: %v", errEnded, err), rdma.ErrBladeDown}
	}
	same := len(t.shape) == len(p.shape)
	for i := range t.shape {
		same = same && t.shape[i] == p.shape[i]
	}
	if !same {
		return errors.Join(fmt.Errorf("shm: server %s has begun anew with other blades: connect anew: %w",
			p.name, rdma.ErrBladeDown), t.discard())
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
	ctx, cancel := context.WithDeadline(p.f.ctx, until)
	defer cancel()
	for try := 0; ; try++ {
		if err := p.current(ctx); err != nil {
			return answer{}, err
		}
		c, of, err := p.caller(ctx)
		if err == nil {
			if x.action == actRevoke { // its answer is to come in time
				x.n = uint64(max(time.Until(until)*3/4, 1))
			}
			var a answer
			if a, _, err = do(ctx, c, &x); err == nil {
				p.giveBack(c, of)
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
			return answer{}, p.failed(err)
		}
		if !errors.Is(err, errEnded) {
			return answer{}, err
		}
		p.mu.Lock()
		err = p.shutBlades(ctx, of)
		p.mu.Unlock()
		if err != nil {
			return answer{}, err
		}
		if try == 3 {
			return answer{}, fmt.Errorf("shm: server %s: %w: %w", p.name, errEnded, rdma.ErrBladeDown)
		}
	}
}

// caller returns a connection for one call, to the server of some keys.
func (p *peer) caller(ctx context.Context) (c *net.UnixConn, of *keys, err error) {
	p.idleMu.Lock()
	of = p.keys
	if n := len(p.idle); n > 0 {
		c = p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.idleMu.Unlock()
		return c, of, nil
	}
	p.idleMu.Unlock()
	c, err = p.reach(ctx, of)
	return c, of, err
}

func (p *peer) giveBack(c *net.UnixConn, of *keys) {
	p.idleMu.Lock()
	defer p.idleMu.Unlock()
	if p.closed || p.shut || p.keys != of {
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
