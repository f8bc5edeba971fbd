package reference

import "errors"

var (
	// errConflict makes Update start again; it never leaves the package.
	errConflict = errors.New("reference: a lock is held by another transaction; start again")
	// errReadOnly is returned by writes inside View.
	errReadOnly = errors.New("reference: write in a View; use Update")
)
