package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"txnode/memory"
	"txnode/memory/layout"
)

// watch is the watch of the head, for all that wait. The lock of the client guards it.
type watch struct {
	running bool          // there is a goroutine
	failed  error         // why the catalog is of no use; nil: it is, or etcd is away
	next    chan struct{} // closed by wake
	done    sync.WaitGroup
}

// wait returns a channel that the next wake closes.
func (w *watch) wait() <-chan struct{} {
	if w.next == nil {
		w.next = make(chan struct{})
	}
	return w.next
}

// wake wakes all that wait.
func (w *watch) wake() {
	if w.next != nil {
		close(w.next)
		w.next = nil
	}
}

// watchTime is after how long a client asks where the catalog is, beside its watch.
const watchTime = 5 * time.Second

// Revision asks etcd, within Options.Control.
func (c *Client) Revision() (layout.Revision, error) {
	p, _, err := c.ask(c.life)
	return p.rev, err
}

// Await waits for a change by any client. It goes on waiting while etcd is away. ErrOther and
// ErrDamaged end it.
func (c *Client) Await(ctx context.Context, after layout.Revision) (layout.Revision, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, fmt.Errorf("%w: catalog at %s", memory.ErrClosed, c.Name())
		case c.rev > after:
			return c.rev, nil
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case c.watch.failed != nil:
			return 0, c.watch.failed
		}
		if !c.watch.running {
			c.watch.running = true
			c.watch.done.Go(c.follow)
		}
		moved := c.watch.wait()
		c.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
		}
		c.mu.Lock()
	}
}

// follow notes all revisions from now on, until Close.
func (c *Client) follow() {
	pause := time.Duration(0)
	for c.life.Err() == nil {
		heard, err := c.followOnce()
		if heard {
			pause = 0
		}
		if !errors.Is(err, ErrOther) && !errors.Is(err, layout.ErrCorrupt) && !errors.Is(err, layout.ErrFormat) {
			err = nil
		}
		c.mu.Lock()
		c.watch.failed = err
		if err != nil {
			c.watch.wake()
		}
		c.mu.Unlock()
		pause = min(max(2*pause, firstPause), lastPause)
		select {
		case <-time.After(pause):
		case <-c.life.Done():
		}
	}
}

// followOnce asks where the catalog is, and watches it from there until that breaks: the member of
// etcd has ended or has no leader, or what comes next was compacted; and for watchTime at most,
// since etcd's client goes on with another etcd at the same address without a word. heard: etcd has
// answered the watch.
func (c *Client) followOnce() (heard bool, err error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(c.life), c.watchTime)
	defer cancel()
	_, store, err := c.ask(ctx)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	c.watch.failed = nil
	c.mu.Unlock()
	for r := range c.etcd.Watch(ctx, c.o.Prefix+headName, clientv3.WithRev(store+1), clientv3.WithCreatedNotify()) {
		if err := r.Err(); err != nil {
			return heard, err
		}
		if err := c.heard(0, &r.Header); err != nil {
			return heard, err
		}
		heard = true
		for _, e := range r.Events {
			if e.Type == clientv3.EventTypeDelete {
				return heard, nil // to ask, which is the error
			}
			c.mu.Lock()
			c.note(layout.Revision(e.Kv.ModRevision))
			c.mu.Unlock()
		}
	}
	return heard, nil
}
