package check

import (
	"errors"
	"fmt"
)

// ErrViolation is what [Report.Err] is, by errors.Is, when the history has a violation.
var ErrViolation = errors.New("check: the history is not serializable")

// Error is a failed check as an error. It matches [ErrViolation].
type Error struct {
	Report *Report
}

// Error prints the first violation in full and says how many there are.
func (e *Error) Error() string {
	r := e.Report
	s := fmt.Sprintf("check: %d violation(s) of %s in %d transactions", r.Found, r.Level, r.Txns)
	if len(r.Violations) > 0 {
		s += ", the first:\n" + r.Violations[0].String()
	}
	return s
}

// Is makes errors.Is(err, ErrViolation) true.
func (e *Error) Is(target error) bool { return target == ErrViolation }
