package command

import (
	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
)

// clockKept reports whether something keeps the clock of this host right; known: the system tells.
func clockKept() (kept, known bool) {
	var x unix.Timex // which changes nothing
	state := 0
	err := eintr.Repeat(func() (err error) {
		state, err = unix.Adjtimex(&x)
		return err
	})
	return state != unix.TIME_ERROR, err == nil
}
