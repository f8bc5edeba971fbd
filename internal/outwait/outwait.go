package outwait

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// ErrLeft is the error of a call whose caller has gone: a context has ended, and what was waited
// for goes on without the caller. The error of the context, and its cause, are in the error, too.
var ErrLeft = errors.New("the context has ended, and what was begun goes on without the caller")

// leftError is an ErrLeft.
type leftError struct{ ctx context.Context }

// Error says why the context has ended.
func (e *leftError) Error() string { return ErrLeft.Error() + ": " + context.Cause(e.ctx).Error() }

// Unwrap returns what the error is.
func (e *leftError) Unwrap() []error { return []error{ErrLeft, e.ctx.Err(), context.Cause(e.ctx)} }

// For how long a caller stays behind the end of its context: what it waits for mostly comes by
// then, and costs more when it is left. Late is that of what was begun behind the end.
const (
	Grace = 30 * time.Millisecond
	late  = 5 * time.Millisecond
)

// Await calls fn, and returns what it does. If ctx ends before that, Await returns an ErrLeft soon,
// and fn continues on a goroutine of its own, which calls over behind it, if that is not nil, with
// what fn has returned. What fn writes is not the caller's then. If ctx has ended before the call,
// fn is not called, and the error is an ErrLeft, too; nor is over.
func Await(ctx context.Context, fn func() error, over func(err error)) error {
	if ctx.Done() == nil {
		return fn()
	}
	if ctx.Err() != nil {
		return &leftError{ctx}
	}
	var err error
	if left := Leave(ctx, func() { err = fn() }, func() {
		if over != nil {
			over(err)
		}
	}); left != nil {
		return &leftError{ctx}
	}
	return err
}

// Leave calls fn on a goroutine, and waits for it. If ctx ends before, Leave returns soon: fn goes
// on, over, if it is not nil, is called behind it on the same goroutine, and left is closed behind
// both. nil: fn has returned, and over is not called.
func Leave(ctx context.Context, fn, over func()) (left <-chan struct{}) {
	done := make(chan struct{})
	var first atomic.Bool // to say that fn has returned, or that the caller has gone
	go func() {
		defer close(done)
		if fn(); !first.CompareAndSwap(false, true) && over != nil {
			over()
		}
	}()
	if Outlives(ctx, done) && first.CompareAndSwap(false, true) {
		return done
	}
	<-done
	return nil
}

// Outlives waits until a channel is closed, or soon after ctx has ended, and reports which: true,
// the channel is open still.
func Outlives(ctx context.Context, closed <-chan struct{}) bool {
	wait := Grace
	if ctx.Err() != nil {
		wait = late
	}
	select {
	case <-closed:
		return false
	case <-ctx.Done():
	}
	grace := time.NewTimer(wait)
	defer grace.Stop()
	select {
	case <-closed:
		return false
	case <-grace.C:
		return true
	}
}
