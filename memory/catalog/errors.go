package catalog

import (
	"errors"

	"txnode/internal/oslimit"
	"txnode/memory"
	"txnode/memory/layout"
)

// Errors of this package; test with errors.Is.
var (
	// ErrLocked: another process, or another handle of this one, has the
	// catalog open.
	ErrLocked = errors.New("catalog: in use")
	// ErrDamaged: the file is no catalog, or is damaged.
	ErrDamaged error = layout.DamageError("catalog: damaged or not a catalog")
	// ErrNotFound: there is no file, and it was to be opened read-only.
	ErrNotFound = errors.New("catalog: no such file")
)

// fullError is the memory.ErrNoSpace of a disk that has no room for the catalog.
type fullError struct{ err error }

// Error says what to do.
func (e *fullError) Error() string { return oslimit.Explain(e.err).Error() }

// Unwrap returns the system's error.
func (e *fullError) Unwrap() error { return e.err }

// Is matches memory.ErrNoSpace.
func (e *fullError) Is(target error) bool { return target == memory.ErrNoSpace }
