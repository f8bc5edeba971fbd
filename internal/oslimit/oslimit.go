package oslimit

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// hints say what to do about each limit.
var hints = []struct {
	errno unix.Errno
	hint  string
}{
	{unix.ENOSPC, "make room on the disk"},
	{unix.EDQUOT, "raise the disk quota, or make room within it"},
	{unix.EFBIG, "raise the limit on the size of files (ulimit -f), or choose a smaller BladeSize"},
	{unix.EMFILE, "raise the limit on open files (ulimit -n)"},
	{unix.ENFILE, "the system has too many files open: close some, or raise its limit"},
}

// Hint says what to do about err, or nothing if err comes from no limit.
func Hint(err error) string {
	for _, h := range hints {
		if errors.Is(err, h.errno) {
			return h.hint
		}
	}
	return ""
}

// Explain returns err with the hint behind its text, or err itself if there is none. Explain of an
// explained error adds nothing.
func Explain(err error) error {
	if e := (*explained)(nil); errors.As(err, &e) {
		return err
	}
	if hint := Hint(err); hint != "" {
		return &explained{err, hint}
	}
	return err
}

type explained struct {
	err  error
	hint string
}

// Error is the text of the error, and what to do.
func (e *explained) Error() string { return fmt.Sprintf("%v: %s", e.err, e.hint) }

// Unwrap returns the system's error.
func (e *explained) Unwrap() error { return e.err }
