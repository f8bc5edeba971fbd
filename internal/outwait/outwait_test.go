package outwait_test

import (
	"context"
	"errors"
	"testing"

	"txnode/internal/outwait"
)

// TestAwait: a call whose context ends returns while what it waits for does not, which goes on
// and is concluded; one whose context has ended begins nothing; one without an end has its
// answer, whatever that is.
func TestAwait(t *testing.T) {
	answer := errors.New("answer")
	over := make(chan error, 1)
	conclude := func(err error) { over <- err }
	if err := outwait.Await(context.Background(), func() error { return answer }, conclude); !errors.Is(err, answer) {
		t.Errorf("without an end: %v", err)
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	release := make(chan struct{})
	err := outwait.Await(ctx, func() error {
		cancel(why)
		<-release
		return answer
	}, conclude)
	if !errors.Is(err, outwait.ErrLeft) || !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Errorf("left: %v", err)
	}
	select {
	case err := <-over:
		t.Errorf("it was concluded before its end: %v", err)
	default:
	}
	if !outwait.Outlives(ctx, release) {
		t.Error("a channel that is open does not outlive a context that has ended")
	}
	close(release)
	if err := <-over; !errors.Is(err, answer) {
		t.Errorf("concluded with %v", err)
	}
	if outwait.Outlives(ctx, release) {
		t.Error("a channel that is closed outlives a context")
	}

	if err := outwait.Await(ctx, func() error { t.Error("it was begun"); return nil },
		conclude); !errors.Is(err, outwait.ErrLeft) {
		t.Errorf("ended before: %v", err)
	}
}
