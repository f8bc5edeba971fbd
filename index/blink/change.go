package blink

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"txnode/memory"
	"txnode/memory/record"
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

// Change is a change of one entry of a node. Which fields count depends on the node.
type Change struct {
	Op Op
	// Key is the key; in an inner node the separator, which is the low fence of the child.
	Key []byte
	// Addr is the child, or the row, whose block has the class Class.
	Addr  memory.Addr
	Class memory.Class
	// Version and Value are those of an entry of an inline leaf.
	Version record.TxID
	Value   []byte
}

// checkChange checks all of c but whether the node n has its key.
func (b *Builder) checkChange(n Node, previous []byte, c *Change) error {
	switch {
	case c.Op > Delete:
		return fmt.Errorf("%w: %v", ErrChange, c.Op)
	case len(c.Key) > b.geometry.MaxKey:
		return fmt.Errorf("%w: %v of a key of %d bytes: at most %d", ErrChange, c.Op, len(c.Key), b.geometry.MaxKey)
	case previous != nil && bytes.Compare(previous, c.Key) >= 0:
		return fmt.Errorf("%w: %v of key %x behind %x: the list must be in order, each key once", ErrChange, c.Op, c.Key, previous)
	case n.Cover(c.Key) != Here:
		return fmt.Errorf("%w: %v of key %x: it is %v", ErrNotHere, c.Op, c.Key, n.Cover(c.Key))
	case c.Op == Delete:
		return nil
	case b.inline && (!possible(c.Version) || len(c.Value) > b.geometry.MaxValue):
		return fmt.Errorf("%w: %v of version %#x and a value of %d bytes: at most %d", ErrChange, c.Op, uint64(c.Version), len(c.Value), b.geometry.MaxValue)
	case !b.inline && (!blockAt(c.Addr) || c.Class >= memory.NumClasses):
		return fmt.Errorf("%w: %v of a block of class %d at %v", ErrChange, c.Op, c.Class, c.Addr)
	}
	return nil
}

// length is the number of bytes that c's entry takes, with its slot and the whole key.
func (b *Builder) length(c *Change) int {
	n := slotSize + b.payload + len(c.Key)
	if b.inline {
		n += len(c.Value)
	}
	return n
}

// putEntry writes c's entry without the first prefix bytes of its key to out, and returns its length.
func (b *Builder) putEntry(out []byte, c *Change, prefix int) int {
	suffix := c.Key[prefix:]
	switch {
	case b.inline:
		binary.LittleEndian.PutUint64(out, uint64(c.Version))
		putU16(out, 8, len(suffix))
		copy(out[inlinePayload+len(suffix):], c.Value)
	case b.level == 0:
		putAddr(out, 0, c.Addr)
		out[addrSize] = byte(c.Class)
	default:
		putAddr(out, 0, c.Addr)
	}
	copy(out[b.payload:], suffix)
	return b.length(c) - slotSize - prefix
}
