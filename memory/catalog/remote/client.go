package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"txnode/memory"
	"txnode/rdma"
	"txnode/rdma/tcp"
)

// ErrAway says that the process that has the catalog does not answer. An Apply may have been made, or may be
// yet. It is a memory.ErrAway. Test with errors.Is.
var ErrAway error = memory.AwayError("catalog: the process that serves it does not answer")

// Client is a catalog that another process serves. It has two connections to it at most, which it makes anew when
// they have broken. All methods are safe for concurrent use.
type Client struct {
	o     tcp.Options
	calls *tcp.Caller
	life  context.Context // until Close
	end   context.CancelFunc
	poll  poll

	mu     sync.Mutex
	closed bool
	known  opening              // of the last answer; zero: there was none
	past   map[opening]struct{} // those before it
	base   memory.Revision      // what revisions of known are above those of the service
	rev    memory.Revision      // the latest that is known
}

var _ memory.Catalog = (*Client)(nil)

// Dial connects to the service of a catalog: NewService. An address is one of package tcp, and of the options Seed
// and Verb have no meaning. ctx bounds the connecting only. Errors name the address; they match ErrAway, or
// tcp.ErrOptions, tcp.ErrInsecure, tcp.ErrRefused, tcp.ErrProtocol.
func Dial(ctx context.Context, address string, o tcp.Options) (*Client, error) {
	calls, err := tcp.DialService(ctx, address, ServiceName, o)
	if err != nil {
		return nil, away(err)
	}
	if o.Control == 0 {
		o.Control = tcp.DefaultControl
	}
	c := &Client{o: o, calls: calls, past: map[opening]struct{}{}}
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

// Load asks for all entries. A question that is not answered, since its connection breaks, is asked once more.
func (c *Client) Load() ([]memory.Entry, memory.Revision, error) {
	ctx, cancel := context.WithTimeout(c.life, c.o.Control)
	defer cancel()
	for again := true; ; again = false {
		entries, rev, err := c.load(ctx)
		if !again || ctx.Err() != nil || !errors.Is(err, ErrAway) {
			return entries, rev, err
		}
	}
}

func (c *Client) load(ctx context.Context) ([]memory.Entry, memory.Revision, error) {
	p, err := c.call(ctx, c.calls, []byte{format, opLoad})
	if err != nil {
		return nil, 0, err
	}
	at, p, err := takePlace(p)
	var entries []memory.Entry
	if err == nil {
		entries, err = getEntries(p)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("catalog at %s: %w", c.Name(), err)
	}
	rev, err := c.note(at)
	if err != nil {
		return nil, 0, err
	}
	return entries, rev, nil
}

// Apply asks for a change. ErrAway leaves open whether it is made.
func (c *Client) Apply(rev memory.Revision, changes []memory.Entry) (memory.Revision, error) {
	at, ok := c.placeOf(rev)
	if !ok {
		return 0, fmt.Errorf("%w: revision %d is of an earlier opening of the catalog at %s", memory.ErrRevision, rev, c.Name())
	}
	request := at.append(append(make([]byte, 0, 2+placeSize+sizeOf(changes)), format, opApply))
	ctx, cancel := context.WithTimeout(c.life, c.o.Control)
	defer cancel()
	p, err := c.call(ctx, c.calls, appendEntries(request, changes))
	if err != nil {
		return 0, err
	}
	return c.noted(p)
}

// placeOf returns which revision of the service a revision of the client is; false: of an opening of before.
func (c *Client) placeOf(rev memory.Revision) (place, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == (opening{}) || rev < c.base || rev-c.base > maxRevision {
		return place{}, false
	}
	return place{c.known, rev - c.base}, true
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
func (c *Client) noted(p []byte) (memory.Revision, error) {
	at, err := c.placeIn(p)
	if err != nil {
		return 0, err
	}
	return c.note(at)
}

// note takes over what an answer says of where the catalog is, and returns the client's revision for it. Answers of
// two connections may come in another order than they were given. One of an opening before the known one is
// of no use: ErrAway.
func (c *Client) note(at place) (memory.Revision, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.opening != c.known {
		if _, ok := c.past[at.opening]; ok || at.opening == (opening{}) {
			return 0, fmt.Errorf("%w: this answer at %s is of an earlier opening", ErrAway, c.calls.Address())
		}
		if c.known != (opening{}) {
			c.past[c.known] = struct{}{}
		}
		c.known, c.base = at.opening, c.rev+1
	}
	rev := c.base + at.rev
	if rev > c.rev {
		c.rev = rev
		c.poll.wake()
	}
	return rev, nil
}

// Await waits for a change by any client, or within the process of the catalog. It goes on waiting while that process is
// away.
func (c *Client) Await(ctx context.Context, after memory.Revision) (memory.Revision, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.poll.waiters++
	defer func() { c.poll.waiters-- }()
	for {
		if c.closed {
			return 0, fmt.Errorf("%w: catalog at %s", memory.ErrClosed, c.Name())
		}
		if c.rev > after {
			return c.rev, nil
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
		if err := c.poll.failed; err != nil && c.rev <= after && !c.closed {
			return 0, err
		}
		if err := ctx.Err(); err != nil && c.rev <= after && !c.closed {
			return 0, err
		}
	}
}

// Revision asks the process of the catalog, within Options.Control.
func (c *Client) Revision() (memory.Revision, error) {
	c.mu.Lock()
	at := place{c.known, 0}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.life, c.o.Control)
	defer cancel()
	p, err := c.call(ctx, c.calls, awaiting(at, 0))
	if err != nil {
		return 0, err
	}
	return c.noted(p)
}

// awaiting is a request to wait so long for another place.
func awaiting(at place, wait time.Duration) []byte {
	p := at.append(append(make([]byte, 0, 2+placeSize+4), format, opAwait))
	return wire.AppendUint32(p, uint32(wait.Milliseconds()))
}

// Close ends the calls that are under way, and what waits, with ErrClosed, and closes the connections. The catalog is not
// closed. To close again does nothing.
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
	return errors.Join(err, c.calls.Close())
}
