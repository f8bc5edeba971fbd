package supervisor

import (
	"errors"
	"fmt"

	"txnode/memory"
	"txnode/memory/layout"
)

// Errors; test with errors.Is. Package txn has the first two under the same names.
var (
	// ErrCutOff: nothing is heard of blades that may serve other processes, or of so many that data
	// would be lost without them. They were not declared dead.
	ErrCutOff = memory.ErrCutOff
	// ErrClosed: the database is closed meanwhile.
	ErrClosed = errors.New("txn: database is closed")

	// errRefuses is why a blade counts as dead that executes verbs.
	errRefuses = errors.New("the blade does not change its access keys")
	// errRestarted is why a blade counts as dead that would answer.
	errRestarted = errors.New("the blade has restarted, and has not kept what it was told")
	// errSpared is why a blade is not declared dead: what is there can be read, or may be soon.
	errSpared = fmt.Errorf("txn: the last copy of a segment would be lost with it: %w", layout.ErrLayout)
)
