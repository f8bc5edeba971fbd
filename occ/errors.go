package occ

import (
	"errors"
	"fmt"
)

// Errors of this package; test with errors.Is.
var (
	// ErrConflict: another transaction was in the way; nothing happened; try again.
	ErrConflict = errors.New("occ: conflict with another transaction")
	// ErrTooLarge: key, value or transaction is beyond a limit; see TooLargeError.
	ErrTooLarge = errors.New("occ: too large")
	// ErrReadOnly: the space is attached read-only.
	ErrReadOnly = errors.New("occ: database is attached read-only")
	// ErrDone: the transaction has ended.
	ErrDone = errors.New("occ: transaction has ended: begin another")
	// ErrOutcomeUnknown: the transaction may or may not have committed.
	ErrOutcomeUnknown = errors.New("occ: outcome unknown")
	// ErrCorrupt: a record on a blade is damaged.
	ErrCorrupt = errors.New("occ: damaged record")
	// ErrBroken: the session met an error in the background and takes no more transactions.
	ErrBroken = errors.New("occ: session is broken")
)

// AbortReason is why an attempt did not commit.
type AbortReason uint8

// Reasons of aborts.
const (
	AbortLocked     AbortReason = iota // a record to be written was locked by another transaction
	AbortReadLocked                    // a record to be read was locked by a writer
	AbortValidation                    // a record that was read has changed
	AbortPhantom                       // a key that was absent has been inserted
	AbortStale                         // the index changed under the lookup too often
	NumAbortReasons
)

// String names the reason in a word.
func (r AbortReason) String() string {
	if r < NumAbortReasons {
		return [...]string{"locked", "read-locked", "validation", "phantom", "stale"}[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// conflictErrors are the errors of all reasons, made once.
var conflictErrors = func() (e [NumAbortReasons]error) {
	for r := range e {
		e[r] = &ConflictError{AbortReason(r)}
	}
	return e
}()

// ConflictError is an ErrConflict with its reason.
type ConflictError struct{ Reason AbortReason }

// Error tells the reason.
func (e *ConflictError) Error() string { return ErrConflict.Error() + ": " + e.Reason.String() }

// Is matches ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// TooLargeError is an ErrTooLarge with figures.
type TooLargeError struct {
	What       string // "key", "value", "log record", "transaction"
	Got, Limit int    // bytes
	Remedy     string // what to do; empty: the limit is fixed
}

// Error gives what, size and limit, and what to do.
func (e *TooLargeError) Error() string {
	s := fmt.Sprintf("occ: %s of %d bytes is too large: the limit is %d", e.What, e.Got, e.Limit)
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// Is matches ErrTooLarge.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }
