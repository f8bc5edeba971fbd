package blink

import (
	"bytes"
	"fmt"
)

// Load plans the nodes of an inner level of a new tree, which lead to all nodes of the level below.
// children are these, in order of their separators, of which the first is empty. It returns the
// number of images, each as full as can be; the last one has no right link. The geometry is valid.
//
// Errors wrap ErrChange or ErrGeometry; there are no images then.
func (b *Builder) Load(g Geometry, level int, children []Change) (images int, err error) {
	b.geometry, b.nodes, b.changes = g, [2]Node{}, children
	b.level, b.payload = level, childPayload
	b.low, b.high, b.right = nil, fence{open: true}, 0
	b.runs, b.count = b.runs[:0], 0
	b.images, b.separators = b.images[:0], b.separators[:0]
	if level < 1 || level > MaxLevel || len(children) == 0 || len(children[0].Key) > 0 {
		return 0, fmt.Errorf("%w: a level %d of %d nodes", ErrChange, level, len(children))
	}
	for i := range children {
		c := &children[i]
		if !blockAt(c.Addr) || len(c.Key) > g.MaxKey || i > 0 && bytes.Compare(children[i-1].Key, c.Key) >= 0 {
			return 0, fmt.Errorf("%w: separator %x of a node at %v", ErrChange, c.Key, c.Addr)
		}
	}
	b.add(changeList, 0, len(children))
	b.sum()
	if err := b.fill(); err != nil {
		b.images = b.images[:0]
		return 0, err
	}
	return len(b.images), nil
}
