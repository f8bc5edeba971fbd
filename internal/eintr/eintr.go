package eintr

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Repeat calls a system call until it returns something else than EINTR, and returns that. The call
// must be one that begins anew when it is made again: it must not have done a part, as write(2)
// may. Repeat does not keep call, so a closure that is given to it needs no memory.
func Repeat(call func() error) error {
	for {
		err := call()
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
