package catalog

import (
	"errors"

	"txnode/memory"
)

// Errors of this package; test with errors.Is.
var (
	// ErrLocked: another process, or another handle of this one, has the
	// catalog open.
	ErrLocked = errors.New("catalog: in use")
	// ErrDamaged: the file is no catalog, or is damaged.
	ErrDamaged error = memory.DamageError("catalog: damaged or not a catalog")
	// ErrNotFound: there is no file, and it was to be opened read-only.
	ErrNotFound = errors.New("catalog: no such file")
)
