package runner

import (
	"errors"
	"fmt"
)

// Errors of this package; test with errors.Is.
var (
	// ErrVerification: the run ended, but its books do not balance or its
	// history is not serializable. The result says which.
	ErrVerification = errors.New("runner: verification failed")
	// ErrCannotRecord: Config.Verify is set for a store that is no workload.Recorder.
	ErrCannotRecord = errors.New("runner: this store cannot record the history of its transactions")
	// ErrStuck: transactions went on after an interruption, until they were
	// cut off.
	ErrStuck = errors.New("runner: transactions did not end after the interruption")
)

// PanicError is a panic in a worker: an error in the store or the workload.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("runner: panic in a worker: %v", e.Value) }

// verificationError adds ErrVerification to what was found.
type verificationError struct{ cause error }

func (e *verificationError) Error() string { return e.cause.Error() }

func (e *verificationError) Unwrap() []error { return []error{ErrVerification, e.cause} }
