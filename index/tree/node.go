package tree

import (
	"fmt"

	"txnode/index"
	"txnode/index/blink"
	"txnode/index/bucket"
	"txnode/memory/layout"
)

// node is a view of a node of either kind: one of package blink, or, in an index of hashes, a leaf
// of package bucket.
type node struct {
	blink.Node
	leaf   bucket.Leaf
	bucket bool
	body   []byte
}

// decode returns the view of a node.
func (t *Tree) decode(body []byte) (n node, err error) {
	n.body = body
	if !t.hashed || len(body) < bucket.HeadSize || !blink.IsLeaf(body) {
		n.Node, err = blink.Decode(body)
		return n, err
	}
	n.bucket = true
	n.leaf, err = bucket.Decode(body[:bucket.HeadSize], body[bucket.HeadSize:])
	return n, err
}

// bucketOf is the view of a leaf that decode has accepted.
func bucketOf(body []byte) bucket.Leaf {
	return bucket.Accepted(body[:bucket.HeadSize], body[bucket.HeadSize:])
}

// Leaf returns the view of a leaf of hashes, which is checked, and what blink.Verify must know of it.
func Leaf(image []byte) (l bucket.Leaf, f blink.Fences, err error) {
	if len(image) < bucket.HeadSize {
		return l, f, fmt.Errorf("%w: %d bytes", bucket.ErrMalformed, len(image))
	}
	if l, err = bucket.Decode(image[:bucket.HeadSize], image[bucket.HeadSize:]); err == nil {
		err = l.Check()
	}
	if err != nil {
		return l, f, err
	}
	high, bounded := l.High()
	f = blink.Fences{
		Low: l.Low().AppendSeparator(nil), High: high.AppendSeparator(nil), Open: !bounded, Right: l.Right(),
		Entries: l.Count(),
	}
	return l, f, nil
}

func (n *node) level() int {
	if n.bucket {
		return 0
	}
	return n.Level()
}

func (n *node) right() layout.Addr {
	if n.bucket {
		return n.leaf.Right()
	}
	return n.Right()
}

// low is where the node's range begins.
func (n *node) low() []byte {
	if n.bucket {
		return n.leaf.Low().AppendSeparator(nil)
	}
	return n.Low()
}

// high is where it ends.
func (n *node) high() (key []byte, bounded bool) {
	if n.bucket {
		h, bounded := n.leaf.High()
		return h.AppendSeparator(nil), bounded
	}
	return n.High()
}

// where says where p is, seen from the node.
func (n *node) where(p index.Place) blink.Place {
	switch {
	case !n.bucket:
		return where(n.Node, p)
	case p.Below:
		return places[n.leaf.Below(position(p.Bound))]
	}
	return places[n.leaf.Above(position(p.Bound))]
}

var places = [...]blink.Place{bucket.Here: blink.Here, bucket.GoRight: blink.GoRight, bucket.NotHere: blink.NotHere}

// position is the lowest hash above a bound.
func position(b index.Bound) bucket.Hash {
	switch {
	case b.End:
		return 1 << bucket.MaxDepth
	case b.After:
		return bucket.HashAt(b.Key) + 1
	}
	return bucket.HashAt(b.Key)
}

// halfIsLeft reports of a leaf of hashes whether the leaf that was split into it and another one
// has the other one to its left.
func (n *node) halfIsLeft() bool {
	return n.leaf.Low()>>(bucket.MaxDepth-n.leaf.Depth())&1 != 0
}

// bound is a bound as inner nodes have it: there the zeros that end a hash are left out.
func (t *Tree) bound(b index.Bound) index.Bound {
	for n := len(b.Key); t.hashed && n > 0 && b.Key[n-1] == 0; n-- {
		b.Key = b.Key[:n-1]
	}
	return b
}

// LeafClass is the class of the leaves of an index of hashes: blocks of 320 bytes. See package bucket.
const LeafClass layout.Class = 4

// hashGeometry is the geometry of the inner nodes of an index of hashes.
var hashGeometry = func() blink.Geometry {
	g, err := blink.Geometry{MaxKey: bucket.MaxDepth / 8}.Fit()
	if err != nil {
		panic(err)
	}
	return g
}()

// Hashes is the geometry of an index of hashes.
type Hashes struct {
	Leaf layout.Class   // of leaves
	Node blink.Geometry // of inner nodes
	// Leaves is how many leaves a process remembers the addresses of, at most.
	Leaves int
}

// NewHashed returns a handle on an index of hashes: keys are those of bucket.Hash.
func NewHashed(s index.Space, g Hashes, table uint16, root layout.Addr) (*Tree, error) {
	g.Node.MaxKey = bucket.MaxDepth / 8
	if g.Leaf >= layout.NumClasses || bucket.Capacity(blink.Geometry{Class: g.Leaf}.Room()-bucket.HeadSize, 0) < 2 {
		return nil, fmt.Errorf("%w: table %d: leaves of class %d", index.ErrCorrupt, table, g.Leaf)
	}
	t, err := New(s, g.Node, table, root)
	if err != nil {
		return nil, err
	}
	t.hashed, t.leafClass, t.leafRoom = true, g.Leaf, g.room()
	t.directory = bucket.NewDirectory(g.Leaves)
	return t, nil
}

// room is how many bytes the entries of a leaf can have.
func (g Hashes) room() int {
	n := blink.Geometry{Class: g.Leaf}.Room() - bucket.HeadSize
	if most := g.Node.MaxEntries; most > 0 {
		n = min(n, bucket.Room(most))
	}
	return n
}

// EmptyHashed is Empty of an index of hashes.
func EmptyHashed(a layout.Addr) (leaf, root []byte) {
	return bucket.AppendEmpty(nil), blink.Root{Addr: a}.Append(nil)
}

// hint tells the directory what an inner node of level 1 knows of leaves.
func (t *Tree) hint(n blink.Node) {
	for i := range n.Count() {
		low := bucket.HashAt(n.AppendKey(nil, i))
		high := bucket.Hash(1 << bucket.MaxDepth)
		if i+1 < n.Count() {
			high = bucket.HashAt(n.AppendKey(nil, i+1))
		} else if key, bounded := n.High(); bounded {
			high = bucket.HashAt(key)
		}
		t.directory.Hint(low, high, n.Addr(i))
	}
}

// bucketEntries is Entries of a leaf of hashes. Blocks of one hash are not parted.
func bucketEntries(dst []index.Candidate, l bucket.Leaf, from, to index.Bound, down bool,
	most int) (blocks []index.Candidate, rest index.Place, more bool) {
	i, j := l.Rank(position(from)), l.Rank(position(to))
	if j-i > most {
		more = true
		if down {
			i = l.Rank(l.Block(j - most).Hash)
			rest = index.Place{Bound: index.Bound{Key: l.Block(i).Hash.AppendKey(nil)}, Below: true}
		} else {
			h := l.Block(i + most - 1).Hash
			j = l.Rank(h + 1)
			rest = index.Place{Bound: index.Bound{Key: h.AppendKey(nil), After: true}}
		}
	}
	if down {
		for k := j - 1; k >= i; k-- {
			dst = append(dst, index.Candidate{Addr: l.Block(k).Addr, Class: l.Block(k).Class})
		}
		if more {
			return dst, rest, true
		}
		if l.Low() <= position(from) {
			return dst, rest, false
		}
		return dst, index.Place{Bound: index.Bound{Key: l.Low().AppendKey(nil)}, Below: true}, true
	}
	for k := i; k < j; k++ {
		dst = append(dst, index.Candidate{Addr: l.Block(k).Addr, Class: l.Block(k).Class})
	}
	if more {
		return dst, rest, true
	}
	high, bounded := l.High()
	if !bounded || high >= position(to) {
		return dst, rest, false
	}
	return dst, index.Place{Bound: index.Bound{Key: high.AppendKey(nil)}}, true
}
