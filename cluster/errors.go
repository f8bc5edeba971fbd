package cluster

import (
	"errors"
	"fmt"

	"txnode/memory/layout"
)

// Errors of this package; test with errors.Is. A process that does not answer is memory.ErrAway if
// it has the catalog, and rdma.ErrBladeDown if it has blades.
var (
	// ErrOptions is of addresses that cannot work.
	ErrOptions = errors.New("cluster: bad options")
	// ErrNone is of a catalog that no cluster has been written to.
	ErrNone = errors.New("cluster: none here")
	// ErrExists is of a catalog that has a cluster, or a database, already.
	ErrExists = errors.New("cluster: the catalog is not empty")
	// ErrSame is an ErrExists of a cluster that has the same servers, in the same order, and the
	// same geometry as Init was asked for.
	ErrSame = fmt.Errorf("%w", ErrExists)
	// ErrOtherBlades is of a server that has other blades than the catalog says.
	ErrOtherBlades = errors.New("cluster: other blades")
	// ErrDamaged is of an entry of the catalog that cannot be.
	ErrDamaged error = layout.DamageError("cluster: damaged")
)
