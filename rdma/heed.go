package rdma

import (
	"context"

	"txnode/internal/outwait"
)

// A coroutine that has a thread for itself can heed a context: its caller is to hear of the end of
// the context, whatever is silent. Waits for requests, and for functions of Await, then end soon
// after the context does. The requests have failed, as if their blades had not answered in time.

// ErrLeft is the error of a call whose caller has gone: a context has ended, and what was waited
// for goes on without the caller. The error of the context, and its cause, are in the error, too.
var ErrLeft = outwait.ErrLeft

// Quitter is a [Port] whose requests can be given up before their blades have had all the time that
// the fabric gives them.
type Quitter interface {
	// Quit fails the requests that are outstanding, as StatusTimeout, and takes their queue pairs
	// out of use until Reset.
	Quit()
}

// How soon the end of a context is heard: a wait looks for it every heedNs. What is waited for has
// graceNs longer, since a session whose requests have failed costs all others more than that.
const (
	heedNs  = int64(10_000_000)
	graceNs = int64(outwait.Grace)
)

// Heed has the waits of the coroutine end soon after ctx, until it is called again. nil, or a
// context that never ends: they do not. A coroutine of [Thread.Run] heeds it in Await alone:
// requests of others wait with its own.
func (c *Coro) Heed(ctx context.Context) {
	if ctx != nil && ctx.Done() == nil {
		ctx = nil
	}
	c.heeds, c.ended = ctx, 0
}

// Await calls fn, which does not use the thread, and may wait for a catalog, for the control
// path of a blade, or for a lock. If the coroutine heeds a context that ends before fn returns,
// Await returns an ErrLeft soon after that, and fn continues on a goroutine of its own, which
// calls late behind it, if that is not nil, with what fn has returned. What fn writes is not
// the caller's then.
func (c *Coro) Await(fn func() error, late func(err error)) error {
	ctx := c.heeds
	if ctx == nil {
		return fn()
	}
	return outwait.Await(ctx, fn, late)
}

// reap waits for a completion on a coroutine that has its thread for itself; if the coroutine heeds
// a context, for a while.
func (c *Coro) reap() {
	t := c.t
	if c.heeds == nil {
		t.wait(forever)
		return
	}
	t.wait(later(t.port.Now(), heedNs))
	if c.heeds.Err() == nil {
		return
	}
	now := t.port.Now()
	if c.ended == 0 {
		c.ended = max(now, 1)
	}
	if q, ok := t.port.(Quitter); ok && now-c.ended >= graceNs {
		q.Quit()
	}
}
