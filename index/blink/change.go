package blink

import (
	"bytes"
	"fmt"

	"txnode/memory/layout"
)

// Op is what a change does.
type Op uint8

// Operations.
const (
	// Insert adds an entry; the node must not have the key (ErrExists).
	Insert Op = iota
	// Replace gives an entry another payload; the node must have the key (ErrMissing).
	Replace
	// Put is Insert or Replace, whichever applies. A separator is posted with Put, because that
	// may have been done already.
	Put
	// Delete removes an entry; the node must have the key (ErrMissing). The first entry of an inner
	// node cannot be removed (ErrChange): its child has no left neighbour under this parent.
	Delete
)

// String names the operation.
func (o Op) String() string {
	if o <= Delete {
		return [...]string{"insert", "replace", "put", "delete"}[o]
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

// Change is a change of one entry of a node.
type Change struct {
	Op Op
	// Key is the key; in an inner node the separator, which is the low fence of the child.
	Key []byte
	// Addr is the child, or the row, whose block has the class Class.
	Addr  layout.Addr
	Class layout.Class
}

// checkChange checks all of c but whether the node n has its key.
func (b *Builder) checkChange(n Node, previous []byte, c *Change) error {
	switch {
	case c.Op > Delete:
		return fmt.Errorf("%w: %v", ErrChange, c.Op)
	case len(c.Key) > b.geometry.MaxKey:
		return fmt.Errorf("%w: %v of a key of %d bytes: at most %d", ErrChange, c.Op, len(c.Key), b.geometry.MaxKey)
	case previous != nil && bytes.Compare(previous, c.Key) >= 0:
		return fmt.Errorf("%w: %v of key %x behind %x: the list must be in order, each key once",
			ErrChange, c.Op, c.Key, previous)
	case n.Cover(c.Key) != Here:
		return fmt.Errorf("%w: %v of key %x: it is %v", ErrNotHere, c.Op, c.Key, n.Cover(c.Key))
	case c.Op == Delete:
		return nil
	case !blockAt(c.Addr) || c.Class >= layout.NumClasses:
		return fmt.Errorf("%w: %v of a block of class %d at %v", ErrChange, c.Op, c.Class, c.Addr)
	}
	return nil
}

// length is the number of bytes that c's entry takes, with its slot and the whole key.
func (b *Builder) length(c *Change) int { return slotSize + b.payload + len(c.Key) }

// putEntry writes c's entry without the first prefix bytes of its key to out, and
// returns its length.
func (b *Builder) putEntry(out []byte, c *Change, prefix int) int {
	putAddr(out, 0, c.Addr)
	if b.level == 0 {
		out[addrSize] = byte(c.Class)
	}
	return b.payload + copy(out[b.payload:], c.Key[prefix:])
}
