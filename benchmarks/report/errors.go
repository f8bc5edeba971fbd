package report

import (
	"errors"
	"fmt"
)

// Errors of this package; test with errors.Is.
var (
	// ErrNoResult: the history has no such result.
	ErrNoResult = errors.New("report: no such result")
	// ErrSchema: saved by a newer version of this program, or by something else.
	ErrSchema = errors.New("report: unknown schema")
)

// HistoryError says what is wrong with a history file.
type HistoryError struct {
	Path string
	Err  error
	Hint string // what to do
}

func (e *HistoryError) Error() string {
	return fmt.Sprintf("report: history file %s: %v; %s", e.Path, e.Err, e.Hint)
}

func (e *HistoryError) Unwrap() error { return e.Err }
