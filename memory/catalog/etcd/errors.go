package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"txnode/memory"
	"txnode/memory/layout"
)

// Errors of this package; test with errors.Is.
var (
	// ErrOptions: options that cannot work.
	ErrOptions = errors.New("catalog: bad options for etcd")
	// ErrAway: etcd does not answer, or has no leader. An Apply may have been made, or may be yet.
	// It is a memory.ErrAway.
	ErrAway error = memory.AwayError("catalog: etcd does not answer")
	// ErrDamaged: keys of the catalog are missing, or have bytes that cannot be.
	ErrDamaged error = layout.DamageError("catalog: damaged in etcd")
	// ErrOther: the etcd is another one than before, or has lost revisions.
	// It is a layout.ErrForeign.
	ErrOther error = otherError("catalog: another etcd, or an earlier state of it")
)

// otherError is a layout.ErrForeign.
type otherError string

func (e otherError) Error() string { return string(e) }

// Is matches layout.ErrForeign.
func (e otherError) Is(target error) bool { return target == layout.ErrForeign }

// fullError is the memory.ErrNoSpace of an etcd that takes no more.
type fullError struct {
	text string
	err  error // nil: this package has refused the change
}

// Error says what to do.
func (e *fullError) Error() string { return e.text }

// Unwrap returns etcd's error.
func (e *fullError) Unwrap() error { return e.err }

// Is matches memory.ErrNoSpace.
func (e *fullError) Is(target error) bool { return target == memory.ErrNoSpace }

// codeOf returns the code of an error of etcd's client.
func codeOf(err error) codes.Code {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code()
	}
	return status.Code(err)
}

// failed is the error for a request that has failed. Its text is one line.
func (c *Client) failed(err error) error {
	where := strings.Join(c.o.Endpoints, ", ")
	switch code := codeOf(err); {
	case c.life.Err() != nil:
		return fmt.Errorf("%w: catalog at %s", memory.ErrClosed, c.Name())
	case errors.Is(err, rpctypes.ErrNoSpace):
		return &fullError{fmt.Sprintf("catalog: etcd at %s has used up its quota: compact and defragment it, then "+
			"disarm the alarm (etcdctl compact, defrag, alarm disarm), or raise --quota-backend-bytes: %v",
			where, err), err}
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("catalog: etcd at %s refuses a request of 1 MiB: raise --max-request-bytes to its default "+
			"of 1.5 MiB: %w", where, err)
	case code == codes.Unauthenticated, code == codes.PermissionDenied, errors.Is(err, rpctypes.ErrAuthFailed),
		errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("catalog: etcd at %s refuses user %q: give a name and a password whose role may read and "+
			"write keys that begin with %q: %w", where, c.o.Username, c.o.Prefix, err)
	case code == codes.Unavailable, code == codes.DeadlineExceeded, code == codes.Canceled,
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		if h := c.handshake.Load(); h != nil {
			return fmt.Errorf("%w at %s: a handshake of TLS has failed: %w", ErrAway, where, *h)
		}
		return fmt.Errorf("%w at %s: start it, or wait until it is back and has a leader: %w", ErrAway, where, err)
	}
	return fmt.Errorf("catalog: etcd at %s: %w", where, err)
}
