package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"txnode/rdma"
)

// quiet is that a call, or a connection, has waited for a server in vain. Until it is heard
// again, or refuses, all others are told so at once: nobody waits for one silence twice. One
// goroutine listens for it.
type quiet struct {
	at  target
	err error // nil: it is not quiet
}

// listenEvery is between two attempts to connect to a server that is quiet. Each may
// take Options.Connect.
const listenEvery = 250 * time.Millisecond

// hushed is the error of a server that is quiet, or nil.
func (r *remote) hushed(t *target) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.quiet.err != nil && r.quiet.at == *t {
		return down(t.name, fmt.Errorf("it has been silent for a while: %w", r.quiet.err))
	}
	return nil
}

// heard notes how asking a server has ended. patient: it was given all the time that the options
// give; else the caller's own deadline may have been the reason.
func (f *Fabric) heard(r *remote, t target, err error, patient bool) {
	silent := err != nil && patient && errors.Is(down(t.name, err), rdma.ErrSilent)
	f.mu.Lock()
	defer f.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !silent:
		r.quiet = quiet{}
	case (r.quiet.err == nil || r.quiet.at != t) && !f.closed:
		r.quiet = quiet{t, err}
		f.listening.Go(func() { f.listen(r, t) })
	}
}

// listen connects to a server that is quiet, again and again, until something is heard of it,
// or it is elsewhere.
func (f *Fabric) listen(r *remote, t target) {
	ctx, cancel := context.WithCancel(f.life)
	defer cancel()
	heard := make(chan struct{}, 1)
	every := time.NewTicker(listenEvery)
	defer every.Stop()
	for {
		f.listening.Go(func() {
			var c net.Conn
			var err error
			if c, _, err = f.dial(ctx, &t, hello{purpose: forControl}); err == nil {
				err = c.Close()
			}
			if !errors.Is(down(t.name, err), rdma.ErrSilent) && ctx.Err() == nil {
				select {
				case heard <- struct{}{}:
				default:
				}
			}
		})
		select {
		case <-heard:
			f.heard(r, t, nil, true)
			return
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if r.where() != t {
			return
		}
	}
}
