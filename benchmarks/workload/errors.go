package workload

import (
	"errors"
	"strings"
)

// Errors that a Tx returns and a transaction may test for with errors.Is.
var (
	// ErrNotFound: the key has no record.
	ErrNotFound = errors.New("workload: key not found")
	// ErrExists: Insert found a record.
	ErrExists = errors.New("workload: key exists already")
)

// ErrNoRanges is returned by RangerOf for a store that has no ordered tables.
var ErrNoRanges = errors.New("workload: the store has no ordered tables")

// ErrUncertain is wrapped by an error of Worker.Update after which nobody knows
// whether the transaction has committed (its coordinator was cut off in the
// middle of a commit). Every other error of Update says that it has not.
// Drivers count such transactions, and Verify accepts either outcome of each.
var ErrUncertain = errors.New("workload: transaction may or may not have committed")

// ErrInconsistent is wrapped by the error of Driver.Verify, or of Driver.Load on
// a database that existed, when the data breaks a rule of the workload: the
// store has lost, invented or mixed up something. The report names the rule.
var ErrInconsistent = errors.New("workload: data breaks a rule")

// ErrForeign is wrapped by the error of Driver.Load on a database that existed
// and was not loaded, or not completely, with the same options.
var ErrForeign = errors.New("workload: existing data does not fit the options")

// OptionsError lists everything that is wrong with the options of a workload, or
// of a run of one.
type OptionsError struct {
	Of     string   // whose options: "smallbank"
	Faults []string // each names a field, its value, and what it must be
}

func (e *OptionsError) Error() string { return e.Of + ": " + strings.Join(e.Faults, "; ") }
