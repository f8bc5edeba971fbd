package verify

import "errors"

// Errors of this package; test with errors.Is.
var (
	// ErrGeometry: the blades are not those that the catalog describes.
	ErrGeometry = errors.New("verify: the blades are not those of the catalog")
	// ErrNoSuch: what was asked for does not exist in this database.
	ErrNoSuch = errors.New("verify: not in this database")
	// ErrSyntax: an address, a key or a transaction's name that cannot be read.
	ErrSyntax = errors.New("verify: cannot be read")
)
