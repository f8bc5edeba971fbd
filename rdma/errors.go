package rdma

import (
	"errors"
	"fmt"
)

// Errors of this package; test with errors.Is.
var (
	// ErrVerb is what every VerbError is, but for one of a request that was not posted (ErrBarred).
	ErrVerb = errors.New("rdma: verb failed")
	// ErrStaleKey: the blade's access key has changed: this client was fenced,
	// or holds an old map. Get the current map, or rejoin.
	ErrStaleKey = errors.New("rdma: stale access key")
	// ErrBladeDown: the blade does not answer.
	ErrBladeDown = errors.New("rdma: blade does not answer")
	// ErrSilent is an ErrBladeDown of a blade of which nothing is heard, not even that it is gone:
	// the blade or the way to it is down, and it may serve others.
	ErrSilent = errors.New("rdma: nothing is heard of the blade")
	// ErrUnfenced: keys of a blade have ended, and a verb that one of them has let in may still
	// take effect. Its client is in the middle of it, and there is no proof that it has ended. The
	// blade serves. Revoke again.
	ErrUnfenced = errors.New("rdma: a verb with a key that has ended may still take effect")
	// ErrBarred: the thread does without a blade (Thread.Bar), so a batch for that blade was not
	// posted. Nothing has happened.
	ErrBarred = errors.New("rdma: the thread does without the blade")
	// ErrArenaFull: a thread's arena of registered memory has no room; raise ThreadOptions.Arena.
	ErrArenaFull = errors.New("rdma: arena of registered memory is full")
	// ErrNoMemory: a blade's backing store has no room.
	ErrNoMemory = errors.New("rdma: blade is out of memory")
	// ErrClosed: the fabric or thread was closed.
	ErrClosed = errors.New("rdma: closed")
)

// VerbError says which verb failed, where and why.
type VerbError struct {
	Op     Op
	Blade  BladeID
	Off    uint64
	Len    uint32
	Size   uint64 // of the region; 0 when unknown
	Status Status
}

// Error names blade, region offset, length and cause.
func (e *VerbError) Error() string {
	s := fmt.Sprintf("rdma: %v of %d bytes at offset %#x of blade %d: %v", e.Op, e.Len, e.Off, e.Blade, e.Status)
	if e.Status == StatusBounds && e.Size > 0 {
		s += fmt.Sprintf(" (size %#x)", e.Size)
	}
	return s
}

// Is matches ErrVerb, and ErrStaleKey, ErrBladeDown or ErrSilent by status; of
// StatusBarred ErrBarred alone.
func (e *VerbError) Is(target error) bool {
	switch target {
	case ErrVerb:
		return e.Status != StatusBarred
	case ErrBarred:
		return e.Status == StatusBarred
	case ErrStaleKey:
		return e.Status == StatusKey
	case ErrBladeDown:
		return e.Status == StatusNoBlade || e.Status == StatusTimeout
	case ErrSilent:
		return e.Status == StatusTimeout
	}
	return false
}
