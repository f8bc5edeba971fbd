package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/tcp"
)

// ErrAway says that the process that has the catalog does not answer. An Apply may have been made,
// or may be yet. It is a memory.ErrAway. Test with errors.Is.
var ErrAway error = memory.AwayError("catalog: the process that serves it does not answer")

// Client is a catalog that another process serves. It has three connections to it at most, which it
// makes anew when they have broken. All methods are safe for concurrent use.
type Client struct {
	o     tcp.Options
	calls *tcp.Caller
	alive *tcp.Caller     // of signs of life alone, which wait behind no other call
	life  context.Context // until Close
	end   context.CancelFunc
	poll  poll

	mu     sync.Mutex
	closed bool
	asked  bool  // there was an answer
	known  place // the latest that answers had
}

var _ layout.Catalog = (*Client)(nil)

// Dial connects to the service of a catalog: NewService. An address is one of package tcp, and of
// the options Seed and Verb have no meaning. ctx bounds the connecting only. Errors name the
// address; they match ErrAway, or tcp.ErrOptions, tcp.ErrInsecure, tcp.ErrRefused, tcp.ErrProtocol.
func Dial(ctx context.Context, address string, o tcp.Options) (*Client, error) {
	calls, err := tcp.DialService(ctx, address, ServiceName, o)
	if err != nil {
		return nil, away(err)
	}
	if o.Control == 0 {
		o.Control = tcp.DefaultControl
	}
	alive, err := tcp.NewCaller(address, ServiceName, o)
	if err != nil {
		return nil, errors.Join(err, calls.Close())
	}
	c := &Client{o: o, calls: calls, alive: alive}
	c.life, c.end = context.WithCancel(context.Background())
	return c, nil
}

// away is the error for a call that has failed.
func away(err error) error {
	if errors.Is(err, tcp.ErrNoAnswer) {
		return fmt.Errorf("%w, start it again or wait until it is back: %w", ErrAway, err)
	}
	return fmt.Errorf("catalog: %w", err)
}

// Name returns the address.
func (c *Client) Name() string { return c.calls.Address() }

// Identity asks the process of the catalog, unless it has answered before.
func (c *Client) Identity() (layout.Identity, error) {
	if at, asked := c.place(); asked {
		return at.id, nil
	}
	_, err := c.Revision()
	at, _ := c.place()
	return at.id, err
}

// place is the latest that answers had; asked: there was one.
func (c *Client) place() (at place, asked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known, c.asked
}

// call asks the service.
func (c *Client) call(ctx context.Context, by *tcp.Caller, request []byte) ([]byte, error) {
	reply, err := by.Call(ctx, request)
	if err == nil {
		return reply, nil
	}
	if e, ok := errors.AsType[*tcp.CallError](err); ok {
		return nil, heard(e)
	}
	if errors.Is(err, rdma.ErrClosed) || c.life.Err() != nil {
		return nil, fmt.Errorf("%w: catalog at %s", memory.ErrClosed, c.Name())
	}
	return nil, away(err)
}

// Load asks for all entries. A question that is not answered, since its connection breaks,
// is asked once more.
func (c *Client) Load() ([]layout.Entry, layout.Revision, error) {
	ctx, cancel := context.WithTimeout(c.life, c.o.Control)
	defer cancel()
	for again := true; ; again = false {
		entries, rev, err := c.load(ctx)
		if !again || ctx.Err() != nil || !errors.Is(err, ErrAway) {
			return entries, rev, err
		}
	}
}

func (c *Client) load(ctx context.Context) ([]layout.Entry, layout.Revision, error) {
	before, _ := c.place()
	p, err := c.call(ctx, c.calls, []byte{format, opLoad})
	if err != nil {
		return nil, 0, err
	}
	at, p, err := takePlace(p)
	var entries []layout.Entry
	if err == nil {
		entries, err = getEntries(p)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("catalog at %s: %w", c.Name(), err)
	}
	if err := c.note(before, at); err != nil {
		return nil, 0, err
	}
	return entries, at.rev, nil
}

// Apply asks for a change. ErrAway leaves open whether it is made.
func (c *Client) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	before, asked := c.place()
	if !asked || rev > maxRevision {
		return 0, fmt.Errorf("%w: no answer of the catalog at %s had revision %d", memory.ErrRevision, c.Name(), rev)
	}
	request := place{before.id, rev}.append(append(make([]byte, 0, 2+placeSize+sizeOf(changes)), format, opApply))
	ctx, cancel := context.WithTimeout(c.life, c.o.Control)
	defer cancel()
	p, err := c.call(ctx, c.calls, appendEntries(request, changes))
	if err != nil {
		return 0, err
	}
	at, err := c.noted(before, p)
	return at.rev, err
}

// placeIn decodes an answer that is a place.
func (c *Client) placeIn(p []byte) (place, error) {
	at, rest, err := takePlace(p)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes behind the place", errMessage, len(rest))
	}
	if err != nil {
		return at, fmt.Errorf("catalog at %s: %w", c.Name(), err)
	}
	return at, nil
}

// noted is note for an answer that is a place.
func (c *Client) noted(before place, p []byte) (place, error) {
	at, err := c.placeIn(p)
	if err == nil {
		err = c.note(before, at)
	}
	return at, err
}

// note takes over what an answer says of where the catalog is. The request was made when the latest
// place was before. Answers of several connections arrive in any order, and one that is late is of
// an earlier revision than the latest. One of an earlier revision than before was given by an old
// copy of the catalog: a *layout.BehindError. So is one of another catalog a layout.ErrForeign.
func (c *Client) note(before, at place) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked && at.id != c.known.id {
		return fmt.Errorf("%w: the catalog at %s was exchanged for another one: it is %v, and was %v",
			layout.ErrForeign, c.Name(), at.id, c.known.id)
	}
	if err := layout.Behind(c.Name(), at.rev, before.rev); err != nil {
		return err
	}
	if !c.asked || at.rev > c.known.rev {
		c.asked, c.known = true, at
		c.poll.wake()
	}
	return nil
}

// Await waits for a change by any client, or within the process of the catalog. It goes on waiting
// while that process is away.
func (c *Client) Await(ctx context.Context, after layout.Revision) (layout.Revision, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.poll.waiters++
	defer func() { c.poll.waiters-- }()
	for {
		if c.closed {
			return 0, fmt.Errorf("%w: catalog at %s", memory.ErrClosed, c.Name())
		}
		if c.known.rev > after {
			return c.known.rev, nil
		}
		if !c.poll.running {
			c.startPoll()
		}
		moved := c.poll.wait()
		c.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if err := c.poll.failed; err != nil && c.known.rev <= after && !c.closed {
			return 0, err
		}
		if err := ctx.Err(); err != nil && c.known.rev <= after && !c.closed {
			return 0, err
		}
	}
}

// Revision asks the process of the catalog, within Options.Control.
func (c *Client) Revision() (layout.Revision, error) {
	before, _ := c.place()
	ctx, cancel := context.WithTimeout(c.life, c.o.Control)
	defer cancel()
	p, err := c.call(ctx, c.calls, awaiting(before, 0))
	if err != nil {
		return 0, err
	}
	at, err := c.noted(before, p)
	return at.rev, err
}

// aliveTries is how many signs of life could be told one after the other within Options.Control:
// one that is lost with its connection is told again before the lease ends.
const aliveTries = 4

// KeepAlive tells the process of the catalog of a sign of life, within a quarter of
// Options.Control.
func (c *Client) KeepAlive(b layout.Beat) ([]layout.Beat, error) {
	before, _ := c.place()
	ctx, cancel := context.WithTimeout(c.life, c.o.Control/aliveTries)
	defer cancel()
	p, err := c.call(ctx, c.alive, appendBeats([]byte{format, opAlive}, b))
	if err != nil {
		return nil, err
	}
	at, p, err := takePlace(p)
	var all []layout.Beat
	if err == nil {
		all, err = getBeats(p)
	}
	if err != nil {
		return nil, fmt.Errorf("catalog at %s: %w", c.Name(), err)
	}
	return all, c.note(before, at)
}

// awaiting is a request to wait so long for another place.
func awaiting(at place, wait time.Duration) []byte {
	p := at.append(append(make([]byte, 0, 2+placeSize+4), format, opAwait))
	return wire.AppendUint32(p, uint32(wait.Milliseconds()))
}

// Close ends the calls that are under way, and what waits, with ErrClosed, and closes the
// connections. The catalog is not closed. To close again does nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.end()
	c.poll.wake()
	c.mu.Unlock()
	c.poll.done.Wait()
	var err error
	if c.poll.by != nil {
		err = c.poll.by.Close()
	}
	return errors.Join(err, c.calls.Close(), c.alive.Close())
}
