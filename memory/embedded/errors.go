package embedded

import "errors"

// Errors of this package; test with errors.Is. Those of packages memory and
// catalog come through.
var (
	// ErrLocked: the directory is open in another process, or twice in this one.
	ErrLocked = errors.New("memory: database is in use")
	// ErrMissing: a file of the database is gone, or shorter than it was.
	ErrMissing = errors.New("memory: file is missing or cut off")
	// ErrOptions: the options are impossible.
	ErrOptions = errors.New("memory: impossible options")
)
