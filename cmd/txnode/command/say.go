package command

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// sayWait is how long a command waits for a pipe that nobody reads to take its last line.
const sayWait = 2 * time.Second

var errNotRead = errors.New("nobody reads the output")

// say prints a line. It waits for sayWait at most, so that a pipe that is full does not keep a
// process from going on, or from ending.
func say(w io.Writer, format string, args ...any) error {
	said := make(chan error, 1)
	go func() {
		_, err := fmt.Fprintf(w, format, args...)
		said <- err
	}()
	t := time.NewTimer(sayWait)
	defer t.Stop()
	select {
	case err := <-said:
		return err
	case <-t.C:
		return errNotRead
	}
}
