package remote

import (
	"context"
	"errors"
	"sync"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma/tcp"
)

// pollTime is after how long a service answers a poll without a change.
const pollTime = 2 * time.Second

// Pauses of a poll that has failed.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// poll is the long poll of all that wait. The lock of the client guards it.
type poll struct {
	waiters int
	running bool          // there is a goroutine
	failed  error         // why the last one has ended, if the catalog is closed, or not the one that it was
	next    chan struct{} // closed by wake
	done    sync.WaitGroup
	by      *tcp.Caller // of the goroutine
}

// wait returns a channel that the next wake closes.
func (p *poll) wait() <-chan struct{} {
	if p.next == nil {
		p.next = make(chan struct{})
	}
	return p.next
}

// wake wakes all that wait.
func (p *poll) wake() {
	if p.next != nil {
		close(p.next)
		p.next = nil
	}
}

// startPoll starts the goroutine, which ends when nothing waits. The caller holds the lock.
func (c *Client) startPoll() {
	c.poll.running, c.poll.failed = true, nil
	c.poll.done.Go(func() {
		pause := time.Duration(0)
		for {
			at, ok := c.pollFrom()
			if !ok {
				return
			}
			start := time.Now()
			moved, err := c.pollOnce(at)
			if errors.Is(err, memory.ErrClosed) || errors.Is(err, layout.ErrForeign) {
				c.mu.Lock()
				c.poll.running, c.poll.failed = false, err
				c.poll.wake()
				c.mu.Unlock()
				return
			}
			if err == nil && (moved || time.Since(start) > pollTime/2) {
				pause = 0
				continue
			}
			pause = min(max(2*pause, firstPause), lastPause)
			select {
			case <-time.After(pause):
			case <-c.life.Done():
			}
		}
	})
}

// pollFrom returns the place from which to poll; false: nothing waits any more, and the goroutine
// is to end. Its connection stays.
func (c *Client) pollFrom() (place, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.poll.waiters == 0 {
		c.poll.running = false
		return place{}, false
	}
	return c.known, true
}

// pollOnce polls; moved: the service is at another place.
func (c *Client) pollOnce(at place) (moved bool, err error) {
	ctx, cancel := context.WithTimeout(c.life, pollTime+c.o.Control)
	defer cancel()
	if c.poll.by == nil {
		if c.poll.by, err = tcp.DialService(ctx, c.Name(), ServiceName, c.o); err != nil {
			return false, err
		}
	}
	p, err := c.call(ctx, c.poll.by, awaiting(at, pollTime))
	if err != nil {
		return false, err
	}
	now, err := c.noted(at, p)
	return now != at, err
}
