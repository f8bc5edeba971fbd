package bucket

import (
	"encoding/binary"
	"fmt"
	"slices"

	"txnode/memory/layout"
)

// Op is what a change does.
type Op uint8

// Changes.
const (
	Link   Op = iota // the leaf links Addr from now on
	Relink           // it links Addr instead of Old
	Unlink           // it links Old no more
)

// Change is a change of one entry.
type Change struct {
	Op    Op
	Hash  Hash
	Old   layout.Addr
	Addr  layout.Addr
	Class layout.Class
}

// Builder makes the new images of leaves. Apply, or Merge, plans them; the other methods say what
// they are, until the next plan. Until then leaves must stay as they are.
//
// The zero Builder is ready. It is for one goroutine at a time. It keeps its work space, so a
// Builder that is reused does not allocate.
type Builder struct {
	entries []entry
	images  []image
	right   layout.Addr
}

// image is a leaf that is to be made: of the entries from, ..., to-1.
type image struct {
	from, to int
	low      Hash
	depth    int
}

// Apply plans what becomes of a leaf by changes, and returns the number of images: one, or as many
// as a split makes. Image 0 is for the leaf's own block, the others, in the order of their ranges,
// are for new ones. room is what the blocks have for a body, in bytes. The changes may be in any
// order; they are all of the leaf's range, and no block is in two of them.
//
// Errors wrap ErrMalformed, ErrNotHere, ErrExists, ErrMissing, ErrChange or ErrFull; there
// are no images then.
func (b *Builder) Apply(room int, l Leaf, changes []Change) (images int, err error) {
	b.images = b.images[:0]
	if err := b.read(l, 0); err != nil {
		return 0, err
	}
	for i := range changes {
		if err := b.apply(l, &changes[i]); err != nil {
			return 0, err
		}
	}
	b.right = l.Right()
	if err := b.split(room, image{to: len(b.entries), low: l.low, depth: l.depth}); err != nil {
		b.images = b.images[:0]
		return 0, err
	}
	return len(b.images), nil
}

// read appends the entries of a leaf to the first n of b. It checks the leaf, so that
// damage does not spread.
func (b *Builder) read(l Leaf, n int) (err error) {
	b.entries, err = l.appendEntries(b.entries[:n])
	return err
}

// apply makes one change of the entries of a leaf.
func (b *Builder) apply(l Leaf, c *Change) error {
	if l.Where(c.Hash) != Here {
		return fmt.Errorf("%w: %010x, in a leaf of depth %d from %010x", ErrNotHere, uint64(c.Hash),
			l.depth, uint64(l.low))
	}
	if c.Op > Unlink || c.Op != Unlink && (!blockAt(c.Addr) || c.Class >= layout.NumClasses) {
		return fmt.Errorf("%w: operation %d with a block of class %d at %v", ErrChange, c.Op, c.Class, c.Addr)
	}
	if c.Op != Link {
		at, found := b.find(entry{hash: c.Hash, word: wordOf(c.Old, 0)})
		if !found {
			return fmt.Errorf("%w: %010x at %v", ErrMissing, uint64(c.Hash), c.Old)
		}
		b.entries = slices.Delete(b.entries, at, at+1)
	}
	if c.Op != Unlink {
		e := entry{hash: c.Hash, word: wordOf(c.Addr, c.Class)}
		at, found := b.find(e)
		if found {
			return fmt.Errorf("%w: %010x at %v", ErrExists, uint64(c.Hash), c.Addr)
		}
		b.entries = slices.Insert(b.entries, at, e)
	}
	return nil
}

// find is where an entry of a hash and address is, or would be.
func (b *Builder) find(e entry) (at int, found bool) {
	i, j := 0, len(b.entries)
	for i < j {
		m := (i + j) / 2
		if b.entries[m].before(e) {
			i = m + 1
		} else {
			j = m
		}
	}
	return i, i < len(b.entries) && b.entries[i].hash == e.hash && b.entries[i].addr() == e.addr()
}

// split appends an image, or, if a leaf has no room for it, its halves.
func (b *Builder) split(room int, im image) error {
	n := im.to - im.from
	if n <= Capacity(room, im.depth) {
		b.images = append(b.images, im)
		return nil
	}
	if first, last := b.entries[im.from], b.entries[im.to-1]; first.hash == last.hash && n > Capacity(room, MaxDepth) {
		return fmt.Errorf("%w: %010x, %d blocks", ErrFull, uint64(first.hash), n)
	}
	left, right := im, im
	left.depth++
	right.depth++
	right.low |= width(right.depth)
	left.to = im.from
	for left.to < im.to && b.entries[left.to].hash < right.low {
		left.to++
	}
	right.from = left.to
	if err := b.split(room, left); err != nil {
		return err
	}
	return b.split(room, right)
}

// Merge plans the one image of two leaves that are the halves of one. fits is false if that has no
// room for the entries of both. at is the block of right, which becomes free.
func (b *Builder) Merge(room int, left, right Leaf, at layout.Addr) (fits bool, err error) {
	b.images = b.images[:0]
	if err := b.read(left, 0); err != nil {
		return false, err
	}
	if left.depth != right.depth || left.depth == 0 || right.low != left.low|width(left.depth) ||
		right.low == left.low || left.Right() != at {
		return false, fmt.Errorf("%w: depth %d from %010x, which leads to %v, and depth %d from %010x at %v",
			ErrBuddies, left.depth, uint64(left.low), left.Right(), right.depth, uint64(right.low), at)
	}
	if err := b.read(right, len(b.entries)); err != nil {
		return false, err
	}
	if len(b.entries) > Capacity(room, left.depth-1) {
		return false, nil
	}
	b.right = right.Right()
	b.images = append(b.images, image{to: len(b.entries), low: left.low, depth: left.depth - 1})
	return true, nil
}

// Images is the number of images.
func (b *Builder) Images() int { return len(b.images) }

// Low is the lowest hash of image i: for all but the first, that of the separator which
// inner nodes are to get.
func (b *Builder) Low(i int) Hash { return b.images[i].low }

// Depth is that of image i.
func (b *Builder) Depth(i int) int { return b.images[i].depth }

// Size is the length of the body of image i in bytes.
func (b *Builder) Size(i int) int {
	im := b.images[i]
	return (im.to - im.from) * entrySize(im.depth)
}

// AppendHead appends the head of image i to dst. right is the block that image i+1 is for; the last
// one keeps the old right link.
func (b *Builder) AppendHead(dst []byte, i int, right layout.Addr) []byte {
	im := b.images[i]
	if i == len(b.images)-1 {
		right = b.right
	}
	return appendHead(dst, im.low, im.depth, im.to-im.from, right)
}

func appendHead(dst []byte, low Hash, depth, count int, right layout.Addr) []byte {
	dst = low.AppendKey(append(dst, 0, leafFlag, byte(count), byte(depth)))
	dst = append(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(right))
	return binary.LittleEndian.AppendUint16(dst, uint16(right>>32))
}

// AppendBody appends the body of image i to dst.
func (b *Builder) AppendBody(dst []byte, i int) []byte {
	im := b.images[i]
	size := entrySize(im.depth)
	n := len(dst)
	// A store may reach 2 bytes into what comes next.
	dst = slices.Grow(dst, b.Size(i)+2)
	out := dst[n : n+b.Size(i)+2]
	for _, e := range b.entries[im.from:im.to] {
		binary.BigEndian.PutUint64(out, uint64(e.hash)<<(64-8*uint(size-wordBytes)))
		binary.LittleEndian.PutUint64(out[size-wordBytes:], e.word)
		out = out[size:]
	}
	return dst[:n+b.Size(i)]
}

// AppendEmpty appends the head of a leaf that is the only one of its index, and links nothing.
func AppendEmpty(dst []byte) []byte { return appendHead(dst, 0, 0, 0, 0) }
