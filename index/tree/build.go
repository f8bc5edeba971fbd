package tree

import (
	"txnode/index/blink"
	"txnode/index/bucket"
	"txnode/memory/layout"
)

// HashesOf is the geometry of an index of hashes whose leaves have blocks of a class.
func HashesOf(leaf layout.Class, o Options) Hashes {
	g := hashGeometry
	g.MaxEntries = o.MaxEntries
	return Hashes{Leaf: leaf, Node: g, Leaves: o.Leaves}
}

// Hashed is a block that Build links, 16 bytes.
type Hashed = bucket.Linked

// Link says that a key with this hash, of package record, is in the block at a.
func Link(hash uint64, a layout.Addr, class layout.Class) Hashed {
	return bucket.NewLinked(bucket.HashOf(hash), a, class)
}

// Write hands out n blocks of a class for nodes that nothing leads to yet, writes them, and returns
// where they are. image appends the value of node i to dst. It needs to know at[i] and what follows
// in at, so blocks can be handed out, and written, a few at a time, the last ones first. It may be
// called again for other blocks.
type Write func(class layout.Class, n int,
	image func(dst []byte, i int, at []layout.Addr) []byte) (at []layout.Addr, err error)

// Build makes an index of hashes bottom up: leaves that link the blocks of a list, which is in the
// order of bucket.Linked.Compare, each block once; the nodes above, which are as full as can be;
// and the root. All are new, and each is written before what leads to it. The leaves are those
// that inserts make. So they are as full, some 69 % full on average.
//
// An error wraps that of write, or bucket.ErrFull, bucket.ErrChange. Then the blocks are left that
// write has handed out.
func Build(g Hashes, list []Hashed, write Write) (root layout.Addr, err error) {
	g.Node.MaxKey = bucket.MaxDepth / 8
	var leaves bucket.Builder
	n, err := leaves.Load(g.room(), list)
	if err != nil {
		return 0, err
	}
	at, err := write(g.Leaf, n, func(dst []byte, i int, at []layout.Addr) []byte {
		return leaves.AppendBody(leaves.AppendHead(dst, i, behind(at, i)), i)
	})
	if err != nil {
		return 0, err
	}
	low, level := func(i int) []byte { return leaves.Low(i).AppendSeparator(nil) }, 0
	for len(at) > 1 {
		children := make([]blink.Change, len(at))
		for i := range children {
			children[i] = blink.Change{Key: low(i), Addr: at[i]}
		}
		var nodes blink.Builder
		level++
		if n, err = nodes.Load(g.Node, level, children); err != nil {
			return 0, err
		}
		if at, err = write(g.Node.Class, n, func(dst []byte, i int, at []layout.Addr) []byte {
			return nodes.AppendImage(dst, i, behind(at, i))
		}); err != nil {
			return 0, err
		}
		low = nodes.Low
	}
	top := blink.Root{Addr: at[0], Level: level}
	at, err = write(0, 1, func(dst []byte, _ int, _ []layout.Addr) []byte { return top.Append(dst) })
	if err != nil {
		return 0, err
	}
	return at[0], nil
}

// behind is where the node is that follows node i, 0 if that is the last one.
func behind(at []layout.Addr, i int) layout.Addr {
	if i+1 < len(at) {
		return at[i+1]
	}
	return 0
}
