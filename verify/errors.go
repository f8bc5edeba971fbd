package verify

import (
	"errors"
	"fmt"
)

// Errors of this package; test with errors.Is.
var (
	// ErrGeometry: the blades are not those that the catalog describes.
	ErrGeometry = errors.New("verify: the blades are not those of the catalog")
	// ErrNoSuch: what was asked for does not exist in this database.
	ErrNoSuch = errors.New("verify: not in this database")
	// ErrNoBlade is an ErrNoSuch: the number of a blade that there is not.
	ErrNoBlade = fmt.Errorf("%w: no blade of this number", ErrNoSuch)
	// ErrFault: a part of a region's file cannot be read. The error that wraps it says what to do.
	ErrFault = errors.New("verify: the system cannot read the file there, since its disk fails, or it was cut off")
	// ErrSyntax: an address, a key or a transaction's name that cannot be read.
	ErrSyntax = errors.New("verify: cannot be read")
)
