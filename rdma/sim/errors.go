package sim

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of this package; test with errors.Is.
var (
	// ErrOptions: options that cannot work; the text lists every fault.
	ErrOptions = errors.New("sim: bad options")
	// ErrFault: an expression that is no fault.
	ErrFault = errors.New("sim: bad fault expression")
)

// DeadlockError is the value that Run panics with when every process waits and
// no event is left: a bug of the code under simulation, which on another fabric
// would hang.
type DeadlockError struct {
	Seed    uint64
	NowNs   int64
	Waiting []string // one line per process
}

// Error says who waits for what.
func (e *DeadlockError) Error() string {
	return fmt.Sprintf("sim: deadlock at %d ns, seed %d: every thread waits and nothing is under way\n\t%s",
		e.NowNs, e.Seed, strings.Join(e.Waiting, "\n\t"))
}
