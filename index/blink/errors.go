package blink

import (
	"errors"
	"fmt"
)

// Errors of this package. They are wrapped with what is wrong and where.
var (
	// ErrGeometry: the geometry is impossible. The text lists every fault.
	ErrGeometry = errors.New("blink: impossible geometry")
	// ErrMalformed: the bytes are no node, or no node of this geometry.
	ErrMalformed = errors.New("blink: malformed node")
	// ErrExists: an Insert of a key that the node has.
	ErrExists = errors.New("blink: key exists")
	// ErrMissing: a Replace or Delete of a key that the node does not have.
	ErrMissing = errors.New("blink: no such key")
	// ErrNotHere: a change of a key outside of the fences.
	ErrNotHere = errors.New("blink: key outside of the fences")
	// ErrChange: a change that no node can take: out of order, too long, or with an impossible
	// payload; or the removal of an inner node's first entry.
	ErrChange = errors.New("blink: impossible change")
	// ErrNeighbours: the two nodes of a merge are not neighbours.
	ErrNeighbours = errors.New("blink: not neighbours")
	// ErrStructure: a node is sound, and does not fit the nodes beside and above it.
	ErrStructure = errors.New("blink: damaged structure")
	// ErrFull: the merged node would not fit. Both nodes stay as they are; no harm.
	ErrFull = errors.New("blink: merged node does not fit")
)

func malformed(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, a...))
}
