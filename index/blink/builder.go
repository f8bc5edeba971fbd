package blink

import (
	"bytes"
	"fmt"
	"slices"

	"txnode/memory/layout"
)

// Builder makes the new images of nodes. Apply, or Merge, plans them. Images, Size, Low and
// AppendImage then say what they are, until the next Apply or Merge. Until then nodes and changes
// must stay as they are.
//
// The zero Builder is ready. It is for one goroutine at a time. It keeps its work space, so a
// Builder that is reused does not allocate.
type Builder struct {
	geometry Geometry
	// Of the nodes: of those that are read and of those that are made.
	level   int
	payload int
	// What the images make up together: the range from low to high, and the right link behind it.
	low   []byte
	high  fence
	right layout.Addr

	// The new contents are the runs, one after the other, out of these nodes and changes.
	nodes   [2]Node
	changes []Change
	runs    []run
	count   int

	images []image
	// Of splits only (split.go).
	sums       []int
	separators []byte
	keys       [2][]byte
}

// run is a number of consecutive entries of one source. An image is made run by run, because most
// of what a change leaves as it is can be copied at once.
type run struct {
	source   source
	from, to int // in the source
	at       int // in the new contents
}

// source is where a run comes from.
type source uint8

const (
	firstNode source = iota
	secondNode
	changeList
)

// image is a node that is to be made: the entries from, ..., to-1 of the new contents.
type image struct {
	from, to int
	low      []byte
	high     fence
	prefix   int
	size     int
	reserve  int // bytes that are to stay free
}

// Apply plans what becomes of the node by the changes, and returns the number of images: one, or as
// many as a split makes. Image 0 is for the node's own block, the others are for new ones. The
// changes are in order of their keys, each key once, all between the fences. The geometry is valid.
//
// One change makes at most two images. Where a node is cut depends on the changes. Entries behind
// all old ones fill one image after the other, and entries before all old ones get an image of
// their own, because more of their kind may follow. Other entries leave two images of about the
// same size, with some freedom for the sake of a short separator.
//
// Apply checks the node (Node.Check), so that damage does not spread. Errors wrap ErrMalformed,
// ErrNotHere, ErrExists, ErrMissing or ErrChange; there are no images then.
func (b *Builder) Apply(g Geometry, n Node, changes []Change) (images int, err error) {
	b.reset(g, n, changes)
	if err := n.Check(g); err != nil {
		return 0, err
	}
	b.right, b.high = n.Right(), n.high()
	var previous []byte
	at := 0
	for k := range changes {
		c := &changes[k]
		if err := b.checkChange(n, previous, c); err != nil {
			return 0, err
		}
		previous = c.Key
		i, found := n.Search(c.Key)
		switch {
		case found && c.Op == Insert:
			return 0, fmt.Errorf("%w: insert of %x", ErrExists, c.Key)
		case !found && (c.Op == Replace || c.Op == Delete):
			return 0, fmt.Errorf("%w: %v of %x", ErrMissing, c.Op, c.Key)
		case c.Op == Delete && i == 0 && b.level > 0:
			return 0, fmt.Errorf("%w: delete of the first separator, %x", ErrChange, c.Key)
		}
		b.add(firstNode, at, i)
		if c.Op != Delete {
			b.add(changeList, k, k+1)
		}
		at = i
		if found {
			at++
		}
	}
	b.add(firstNode, at, n.count)
	return b.plan()
}

// Merge plans the one image of left, into which its right neighbour is merged: contents and range
// of both, and the right link of right. at is the address of right's block, which becomes free. The
// nodes may be of any level. The same transaction deletes right's separator from the parent, if it
// has been posted. If that is the parent's first entry, the merge must not be.
//
// Errors wrap ErrMalformed; ErrNeighbours, if left's right link and high fence do not lead to
// right; or ErrFull, if the two do not fit one node. Even an empty node can be too much, because
// the wider range may have a shorter common prefix.
func (b *Builder) Merge(g Geometry, left, right Node, at layout.Addr) error {
	b.reset(g, left, nil)
	for _, n := range [...]Node{left, right} {
		if err := n.Check(g); err != nil {
			return err
		}
	}
	b.right, b.high = right.Right(), right.high()
	h := left.high()
	if left.Right() != at || at == 0 || h.open || !bytes.Equal(h.key, right.Low()) ||
		left.Level() != right.Level() {
		return fmt.Errorf("%w: the left one has level %d and high fence %x, and leads to %v; the right one has level "+
			"%d and low fence %x, and is at %v",
			ErrNeighbours, left.Level(), h.key, left.Right(), right.Level(), right.Low(), at)
	}
	b.nodes[secondNode] = right
	b.add(firstNode, 0, left.count)
	b.add(secondNode, 0, right.count)
	im := b.image(0, b.count, b.low, b.high, b.bytes())
	if !b.fits(im) {
		return fmt.Errorf("%w: %d entries, %d bytes; the room is %d", ErrFull, b.count, im.size, g.Room())
	}
	b.images = append(b.images, im)
	return nil
}

func (b *Builder) reset(g Geometry, n Node, changes []Change) {
	b.geometry, b.changes = g, changes
	b.nodes = [2]Node{firstNode: n}
	b.level, b.payload, b.low = n.Level(), n.payload, n.Low()
	b.runs, b.count = b.runs[:0], 0
	b.images, b.separators = b.images[:0], b.separators[:0]
}

// add appends entries of a source to the new contents.
func (b *Builder) add(s source, from, to int) {
	if from == to {
		return
	}
	if last := len(b.runs) - 1; last >= 0 && b.runs[last].source == s && b.runs[last].to == from {
		b.runs[last].to = to
	} else {
		b.runs = append(b.runs, run{source: s, from: from, to: to, at: b.count})
	}
	b.count += to - from
}

// bytes is the length of the new contents with their slots, if no prefix were cut off.
func (b *Builder) bytes() int {
	sum := 0
	for _, r := range b.runs {
		if r.source == changeList {
			for k := r.from; k < r.to; k++ {
				sum += b.length(&b.changes[k])
			}
			continue
		}
		n := &b.nodes[r.source]
		sum += n.start(r.to) - n.start(r.from) + (r.to-r.from)*(slotSize+n.prefix)
	}
	return sum
}

// image returns the image of some entries, of so many bytes without a prefix cut off,
// between two fences.
func (b *Builder) image(from, to int, low []byte, high fence, bytes int) image {
	im := image{from: from, to: to, low: low, high: high}
	switch {
	case !high.open:
		im.prefix = commonPrefix(low, high.key)
	case b.level == 0 && to > from:
		b.keys[0] = b.appendKey(b.keys[0][:0], to-1)
		im.prefix = commonPrefix(low, b.keys[0])
		im.reserve = im.prefix // for the high fence after a split (longest)
	}
	im.size = headerSize + len(low) + len(high.key) + bytes - (to-from)*im.prefix
	return im
}

// fits reports whether a node can have the image.
func (b *Builder) fits(im image) bool { return !b.geometry.full(im.to-im.from, im.size+im.reserve) }

// Images is the number of images.
func (b *Builder) Images() int { return len(b.images) }

// Size is the length of image i in bytes.
func (b *Builder) Size(i int) int { return b.images[i].size }

// Count is the number of entries of image i.
func (b *Builder) Count(i int) int { return b.images[i].to - b.images[i].from }

// Low is the low fence of image i: for all but the first, the separator that is to be posted to the
// parent. It is good until the next Apply or Merge.
func (b *Builder) Low(i int) []byte { return b.images[i].low }

// AppendImage appends image i to dst and returns the extended slice. right is the address of the
// block that image i+1 is for. The last image keeps the old right link, and right is ignored. dst
// must not overlap nodes and changes. If it has room for Size(i) bytes, nothing is allocated.
func (b *Builder) AppendImage(dst []byte, i int, right layout.Addr) []byte {
	im := &b.images[i]
	if i == len(b.images)-1 {
		right = b.right
	}
	start := len(dst)
	dst = slices.Grow(dst, im.size)[:start+im.size]
	out := dst[start:]
	slot := putHeader(out, header{
		level: b.level, count: im.to - im.from, prefix: im.prefix, low: im.low, high: im.high, right: right,
	})
	pos := slot + slotSize*(im.to-im.from)
	for _, r := range b.runs {
		from, to := max(r.from, r.from+im.from-r.at), min(r.to, r.from+im.to-r.at)
		if from >= to {
			continue
		}
		if r.source == changeList {
			for k := from; k < to; k++ {
				putU16(out, slot, pos)
				slot += slotSize
				pos += b.putEntry(out[pos:], &b.changes[k], im.prefix)
			}
			continue
		}
		pos += b.nodes[r.source].copyEntries(out, slot, pos, from, to, im.prefix)
		slot += slotSize * (to - from)
	}
	return dst
}

// copyEntries copies entries of n to out, and their slots to slot, with another prefix cut off
// their keys. It returns their length.
func (n Node) copyEntries(out []byte, slot, pos, from, to, prefix int) int {
	start := pos
	if prefix == n.prefix {
		first := n.start(from)
		for i := from; i < to; i++ {
			putU16(out, slot, u16(n.b, n.slots+slotSize*i)-first+pos)
			slot += slotSize
		}
		return copy(out[pos:], n.b[first:n.start(to)])
	}
	more := n.Prefix()[min(prefix, n.prefix):] // what the suffixes gain
	less := max(prefix-n.prefix, 0)            // what they lose
	for i := from; i < to; i++ {
		putU16(out, slot, pos)
		slot += slotSize
		at, end := n.entry(i)
		pos += copy(out[pos:], n.b[at:at+n.payload])
		pos += copy(out[pos:], more)
		pos += copy(out[pos:], n.b[at+n.payload+less:end])
	}
	return pos - start
}
