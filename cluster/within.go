package cluster

import (
	"context"
	"fmt"
	"time"
)

// within calls fn on a goroutine of its own, and returns when fn has, or when ctx has ended for graceTime. fn goes on then, until what it waits for has
// answered, or its deadlines are over; late gets what fn has come to. fn may have an error by itself when ctx ends, which says more.
func within[T any](ctx context.Context, what string, fn func() (T, error), late func(T)) (T, error) {
	type result struct {
		x   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		x, err := fn()
		done <- result{x, err}
	}()
	select {
	case r := <-done:
		return r.x, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return r.x, r.err
	case <-time.After(graceTime):
	}
	go func() {
		if r := <-done; r.err == nil {
			late(r.x)
		}
	}()
	var none T
	return none, fmt.Errorf("cluster: %s was waited for no longer: %w", what, context.Cause(ctx))
}

// graceTime is how long within waits for what hears a context by itself.
const graceTime = 50 * time.Millisecond
