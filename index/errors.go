package index

import (
	"errors"
	"fmt"

	"txnode/memory/layout"
)

// Errors of indexes.
var (
	// ErrFull: the index cannot grow any more.
	ErrFull = errors.New("index: full")
	// ErrCorrupt: the structure on the blades is damaged; wrapped with the place.
	ErrCorrupt error = layout.DamageError("index: damaged structure")
	// ErrBusy: another client's change stands in the way, for much longer than it should take. Try
	// again, or recover that client if it is dead. The message names the place.
	ErrBusy = errors.New("index: unfinished change of another client")
)

// NodeError is what is wrong with a node that a plan has.
type NodeError struct {
	Addr layout.Addr
	Err  error
}

// Error says what is wrong with which node.
func (e *NodeError) Error() string { return fmt.Sprintf("node %v: %v", e.Addr, e.Err) }

// Unwrap returns Err.
func (e *NodeError) Unwrap() error { return e.Err }
