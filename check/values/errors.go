package values

import (
	"errors"
	"fmt"
	"strings"
)

// ErrViolation is what every finding is, by errors.Is.
var ErrViolation = errors.New("values: impossible in a strictly serializable store")

// Error lists what [CheckCounter] found. It matches [ErrViolation].
type Error struct {
	Findings []string // the first ones, one sentence each
	Found    int      // how many there were
}

// maxFindings is how many findings an error keeps.
const maxFindings = 10

func (e *Error) Error() string {
	s := fmt.Sprintf("values: counter: %d violation(s):\n  %s", e.Found, strings.Join(e.Findings, "\n  "))
	if n := e.Found - len(e.Findings); n > 0 {
		s += fmt.Sprintf("\n  and %d more", n)
	}
	return s
}

// Is makes errors.Is(err, ErrViolation) true.
func (e *Error) Is(target error) bool { return target == ErrViolation }

func (e *Error) add(format string, args ...any) {
	e.Found++
	if len(e.Findings) < maxFindings {
		e.Findings = append(e.Findings, fmt.Sprintf(format, args...))
	}
}

func (e *Error) err() error {
	if e.Found == 0 {
		return nil
	}
	return e
}
