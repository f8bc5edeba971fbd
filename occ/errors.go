package occ

import (
	"errors"
	"fmt"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// Errors of this package; test with errors.Is.
var (
	// ErrConflict: another transaction was in the way; nothing happened; try again.
	ErrConflict = errors.New("txn: conflict with another transaction")
	// ErrTooLarge: key, value or transaction is beyond a limit; see TooLargeError.
	ErrTooLarge = errors.New("txn: too large")
	// ErrReadOnly: the space is attached read-only.
	ErrReadOnly = errors.New("txn: database is attached read-only")
	// ErrDone: the transaction has ended.
	ErrDone = errors.New("txn: transaction has ended: begin another")
	// ErrOutcomeUnknown: the transaction may or may not have committed; what it is
	// wrapped in, an *UnknownError, names it.
	ErrOutcomeUnknown = errors.New("txn: outcome unknown")
	// ErrFenced: the session was declared dead, or lost its blades, while the
	// transaction was at work. Nothing of it has happened. It is an ErrConflict, too:
	// try again.
	ErrFenced error = fenced{}
	// ErrCorrupt: a record on a blade is damaged.
	ErrCorrupt error = layout.DamageError("txn: damaged record")
	// ErrBroken: a verb of the session has failed, and it takes no more transactions
	// until it has rejoined.
	ErrBroken = errors.New("txn: session is broken")
)

// AbortReason is why an attempt did not commit.
type AbortReason uint8

// Reasons of aborts.
const (
	AbortLocked     AbortReason = iota // a record to be written was locked by another transaction
	AbortReadLocked                    // a record to be read was locked by a writer
	AbortValidation                    // a record that was read has changed
	AbortPhantom                       // a key that was absent has been inserted
	// AbortStale: the index changed under the lookup too often, or another change of it was in the
	// way of an insert for too long; or the epoch has moved
	AbortStale
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
	What string // "key", "value", "record", "log record", "transaction"
	// Got is more than Limit, both in bytes: of a key, value, record or log record its size, and of
	// a transaction how large the arena would have to be for what it has asked for last, with what
	// else was in it at that moment.
	Got, Limit int
	Remedy     string // what to do; empty: the limit is fixed
}

// Error gives what, size and limit, and what to do.
func (e *TooLargeError) Error() string {
	s := fmt.Sprintf("txn: %s of %d bytes is too large: the limit is %d", e.What, e.Got, e.Limit)
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// Is matches ErrTooLarge.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// fenced is the type of ErrFenced.
type fenced struct{}

// Error says what happened.
func (fenced) Error() string {
	return "txn: the session was fenced, and its transaction has had no effect: try again"
}

// Is matches ErrConflict.
func (fenced) Is(target error) bool { return target == ErrConflict }

// UnknownError is an ErrOutcomeUnknown of a transaction.
type UnknownError struct {
	Tx  record.TxID
	Err error // the verb that failed
}

// Error names transaction and verb.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("%v: transaction %v (id %d): %v", ErrOutcomeUnknown, e.Tx, uint64(e.Tx), e.Err)
}

// Is matches ErrOutcomeUnknown.
func (e *UnknownError) Is(target error) bool { return target == ErrOutcomeUnknown }

// Unwrap returns the verb's error.
func (e *UnknownError) Unwrap() error { return e.Err }
