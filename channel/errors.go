package channel

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of this package; test with errors.Is.
var (
	// ErrName: a name that no object can have: see [Scope].
	ErrName = errors.New("channel: impossible name")
	// ErrSpec: the object exists with another kind, size, codec or number of rows; a *SpecError
	// says which. Open it as it was created, or choose another name.
	ErrSpec = errors.New("channel: object exists with another specification")
	// ErrOpen: the member has opened this name already. Use that handle, or close it first.
	ErrOpen = errors.New("channel: this member has the object open")
	// ErrIncarnation: the object is not what was opened: its blade has begun anew, or the object
	// was forgotten. Close the handle and open the object again.
	ErrIncarnation = errors.New("channel: object has another incarnation")
	// ErrFenced: other members have declared this one dead. Nothing that it posts takes effect any
	// more. Join again.
	ErrFenced = errors.New("channel: member was declared dead")
	// ErrMissing: a member that was waited for is dead; a *MissingError names it.
	ErrMissing = errors.New("channel: a member is missing")
	// ErrOwned: another member that is alive owns the object, or the lock is held.
	ErrOwned = errors.New("channel: owned by another member")
	// ErrNotOwner: this member does not own what it would change.
	ErrNotOwner = errors.New("channel: not the owner")
	// ErrFull: no row, or no entry, is free.
	ErrFull = errors.New("channel: full")
	// ErrUncertain: an atomic may or may not have taken effect, once, and will not take effect
	// later. Load the object to see what it holds.
	ErrUncertain = errors.New("channel: outcome of an atomic is unknown")
	// ErrLapped: a receiver of a ring without rows was so slow that messages were overwritten; a
	// *LappedError says how many. Receive again.
	ErrLapped = errors.New("channel: messages were overwritten before they were received")
	// ErrTorn: an image was overwritten in each of many READs. Try again, more slowly.
	ErrTorn = errors.New("channel: image changes faster than it can be read")
	// ErrUnsettled: a blade was lost, and another process may not know that yet, and use what was
	// there. It is for hosts: members wait.
	ErrUnsettled = errors.New("channel: another process may use what a lost blade had")
	// ErrTooLarge: the object would be larger than 2^31 bytes, or have too many rows.
	ErrTooLarge = errors.New("channel: object is too large")
)

// SpecError says what an object was opened as, and what it is. It is an ErrSpec.
type SpecError struct {
	Name       string
	Have, Want Spec // as it exists; as it was to be opened
}

func (e *SpecError) Error() string {
	var d []string
	differ := func(what string, have, want any) {
		if have != want {
			d = append(d, fmt.Sprintf("%s is %v, not %v", what, have, want))
		}
	}
	differ("kind", e.Have.Kind, e.Want.Kind)
	differ("codec", e.Have.Codec, e.Want.Codec)
	differ("value size", e.Have.Size, e.Want.Size)
	differ("number of rows", e.Have.Rows, e.Want.Rows)
	differ("number of slots", e.Have.Slots, e.Want.Slots)
	return fmt.Sprintf("channel: %q exists and is another object: %s; open it as it is, or choose another name",
		e.Name, strings.Join(d, ", "))
}

// Is matches ErrSpec.
func (e *SpecError) Is(target error) bool { return target == ErrSpec }

// MissingError names a member that is dead, and what waited for it. It is an ErrMissing.
type MissingError struct {
	Object string
	Member MemberID
	Row    int    // of the object, -1 where it has none
	Round  uint64 // of a barrier: the use that has ended with this error; 0 elsewhere
}

func (e *MissingError) Error() string {
	if e.Round > 0 {
		return fmt.Sprintf("channel: barrier %q: member %d (row %d) died before round %d: Reform the barrier",
			e.Object, e.Member, e.Row, e.Round)
	}
	return fmt.Sprintf("channel: %q: member %d is dead", e.Object, e.Member)
}

// Is matches ErrMissing.
func (e *MissingError) Is(target error) bool { return target == ErrMissing }

// LappedError says how many messages a receiver has missed. It is an ErrLapped.
type LappedError struct {
	Object string
	Missed uint64
}

func (e *LappedError) Error() string {
	return fmt.Sprintf("channel: ring %q: %d messages were overwritten before they were received: receive again, "+
		"from the oldest one left", e.Object, e.Missed)
}

// Is matches ErrLapped.
func (e *LappedError) Is(target error) bool { return target == ErrLapped }
