package bucket

import (
	"cmp"
	"fmt"

	"txnode/memory/layout"
)

// NewLinked is the entry of a block whose key has a hash: 16 bytes.
func NewLinked(h Hash, a layout.Addr, c layout.Class) Linked { return Linked{h, wordOf(a, c)} }

// Hash is the hash of the key.
func (e Linked) Hash() Hash { return e.hash }

// Addr is where the block is.
func (e Linked) Addr() layout.Addr { return e.addr() }

// Class is that of the block.
func (e Linked) Class() layout.Class { return e.class() }

// Compare orders entries as leaves have them: by hash, then address.
func (e Linked) Compare(f Linked) int {
	if e.hash != f.hash {
		return cmp.Compare(e.hash, f.hash)
	}
	return cmp.Compare(e.addr(), f.addr())
}

// Load plans the leaves of a new index that links the blocks of a list, in the order of Compare,
// each block once. They are those that inserts make, in whatever order, so they are as full:
// ranges are halved until each has room. It returns their number. The list is the builder's from
// now on.
//
// Errors wrap ErrChange or ErrFull; there are no images then.
func (b *Builder) Load(room int, list []Linked) (images int, err error) {
	b.images, b.entries, b.right = b.images[:0], list, 0
	for i, e := range list {
		switch {
		case e.hash >= 1<<MaxDepth || !blockAt(e.addr()) || e.class() >= layout.NumClasses:
			return 0, fmt.Errorf("%w: hash %x with a block of class %d at %v", ErrChange, uint64(e.hash),
				e.class(), e.addr())
		case i > 0 && list[i-1].Compare(e) >= 0:
			return 0, fmt.Errorf("%w: %010x at %v, behind %010x at %v", ErrChange, uint64(e.hash), e.addr(),
				uint64(list[i-1].hash), list[i-1].addr())
		}
	}
	if err := b.split(room, image{to: len(list)}); err != nil {
		b.images = b.images[:0]
		return 0, err
	}
	return len(b.images), nil
}
