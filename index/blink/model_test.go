package blink_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"txnode/index/blink"
	"txnode/memory/layout"
)

// contents is what a node says, in the plainest form.
type contents struct {
	level     int
	low, high string
	open      bool // no high fence
	right     layout.Addr
	entries   []blink.Change // Op has no meaning
}

// contentsOf reads a node through its methods.
func contentsOf(n blink.Node) contents {
	c := contents{level: n.Level(), low: string(n.Low()), right: n.Right()}
	high, bounded := n.High()
	c.high, c.open = string(high), !bounded
	for i := range n.Count() {
		c.entries = append(c.entries, blink.Change{Key: n.AppendKey(nil, i), Addr: n.Addr(i), Class: n.Class(i)})
	}
	return c
}

// encode is the slow twin of the Builder: it writes the layout of doc.go down piece by piece.
func (c contents) encode() []byte {
	prefix, high := 0, c.high
	if c.open && c.level == 0 && len(c.entries) > 0 {
		high = string(c.entries[len(c.entries)-1].Key)
	}
	for prefix < len(c.low) && prefix < len(high) && c.low[prefix] == high[prefix] {
		prefix++
	}
	var slots, entries []byte
	at := 18 + len(c.low) + len(c.high) + 2*len(c.entries)
	for _, e := range c.entries {
		slots = binary.LittleEndian.AppendUint16(slots, uint16(at+len(entries)))
		entries = append(entries, binary.LittleEndian.AppendUint64(nil, uint64(e.Addr))[:6]...)
		if c.level == 0 {
			entries = append(entries, byte(e.Class))
		}
		entries = append(entries, e.Key[prefix:]...)
	}
	b := []byte{byte(c.level), 0}
	bounded := len(c.high)
	if c.open {
		bounded = 0xffff
	}
	for _, v := range []int{len(c.entries), prefix, len(c.low), bounded, at + len(entries)} {
		b = binary.LittleEndian.AppendUint16(b, uint16(v))
	}
	b = append(b, binary.LittleEndian.AppendUint64(nil, uint64(c.right))[:6]...)
	b = append(append(b, c.low...), c.high...)
	return append(append(b, slots...), entries...)
}

// decode decodes a good image, and checks all that can be said about it.
func decode(t testing.TB, g blink.Geometry, b []byte) blink.Node {
	t.Helper()
	n, err := blink.Decode(b)
	if err == nil {
		err = n.Check(g)
	}
	if err != nil {
		t.Fatalf("%v\n%x", err, b)
	}
	if again := contentsOf(n).encode(); !bytes.Equal(again, b) {
		t.Fatalf("the image is not the one of its contents:\n%x\n%x", b, again)
	}
	return n
}

// addrOf is the address of the i-th block, from 1.
func addrOf(i int) layout.Addr {
	return layout.MakeAddr(1+layout.SegmentID(i>>16), uint32(i&0xffff)*64)
}

// payloadFor sets a payload that tells the number.
func payloadFor(c *blink.Change, number int) {
	c.Addr, c.Class = addrOf(number), layout.Class(number%layout.NumClasses)
}

func equalPayload(a, b blink.Change) bool { return a.Addr == b.Addr && a.Class == b.Class }

// level is the nodes of one level of a tree, from left to right: what splits leave, without
// parents.
type level struct {
	g     blink.Geometry
	nodes []blink.Node
	addrs []layout.Addr
	next  int // number of the next block
}

func newLevel(t testing.TB, g blink.Geometry) level {
	return level{
		g: g, nodes: []blink.Node{decode(t, g, blink.AppendLeaf(nil))}, addrs: []layout.Addr{addrOf(1)}, next: 2,
	}
}

func (l level) clone() level {
	l.nodes, l.addrs = slices.Clone(l.nodes), slices.Clone(l.addrs)
	return l
}

// find is the number of the node that is responsible for the key.
func (l level) find(key []byte) int {
	i := 0
	for l.nodes[i].Cover(key) == blink.GoRight {
		i++
	}
	return i
}

// apply applies changes to node i, and puts what becomes of it in its place.
func (l *level) apply(t testing.TB, b *blink.Builder, i int, changes []blink.Change) error {
	t.Helper()
	images, err := b.Apply(l.g, l.nodes[i], changes)
	if err != nil {
		if images != 0 || b.Images() != 0 {
			t.Fatalf("%d images beside %v", b.Images(), err)
		}
		return err
	}
	if images != b.Images() || len(changes) <= 1 && images > 2 {
		t.Fatalf("%d images (%d) of %d changes", images, b.Images(), len(changes))
	}
	addrs := []layout.Addr{l.addrs[i]}
	for range images - 1 {
		addrs = append(addrs, addrOf(l.next))
		l.next++
	}
	addrs = append(addrs, 0)
	var nodes []blink.Node
	for k := range images {
		image := b.AppendImage(nil, k, addrs[k+1])
		if len(image) != b.Size(k) {
			t.Fatalf("image %d has %d bytes, announced were %d", k, len(image), b.Size(k))
		}
		n := decode(t, l.g, image)
		if !bytes.Equal(n.Low(), b.Low(k)) {
			t.Fatalf("image %d begins at %x, announced was %x", k, n.Low(), b.Low(k))
		}
		if images > 1 && n.Count() == 0 {
			t.Fatalf("a split left image %d empty", k)
		}
		nodes = append(nodes, n)
	}
	checkSeparators(t, nodes)
	l.nodes = slices.Replace(l.nodes, i, i+1, nodes...)
	l.addrs = slices.Replace(l.addrs, i, i+1, addrs[:images]...)
	return nil
}

// checkSeparators checks that the fence between each two of the nodes is the shortest there is.
func checkSeparators(t testing.TB, nodes []blink.Node) {
	t.Helper()
	for k := 1; k < len(nodes); k++ {
		left, right := nodes[k-1], nodes[k]
		separator, first := right.Low(), right.AppendKey(nil, 0)
		if right.Level() > 0 {
			continue // Check says that it is the first key
		}
		last := left.AppendKey(nil, left.Count()-1)
		if bytes.Compare(last, separator) >= 0 || bytes.Compare(separator, first) > 0 {
			t.Fatalf("separator %x between %x and %x", separator, last, first)
		}
		// No shorter key is between them: the longest that is not above first is first's own
		// prefix.
		if shorter := first[:len(separator)-1]; bytes.Compare(last, shorter) < 0 {
			t.Fatalf("separator %x between %x and %x, where %x is enough", separator, last, first, shorter)
		}
	}
}

// merge merges node i into its left neighbour; false if they do not fit.
func (l *level) merge(t testing.TB, b *blink.Builder, i int) bool {
	t.Helper()
	if err := b.Merge(l.g, l.nodes[i-1], l.nodes[i], l.addrs[i]); err != nil {
		if !errors.Is(err, blink.ErrFull) || b.Images() != 0 {
			t.Fatalf("merge: %v", err)
		}
		return false
	}
	if b.Images() != 1 {
		t.Fatalf("%d images of a merge", b.Images())
	}
	l.nodes[i-1] = decode(t, l.g, b.AppendImage(nil, 0, 0))
	l.nodes, l.addrs = slices.Delete(l.nodes, i, i+1), slices.Delete(l.addrs, i, i+1)
	return true
}

// check compares the level with a map, and checks that the nodes tile the key space.
func (l level) check(t testing.TB, want map[string]blink.Change) {
	t.Helper()
	low, count := []byte{}, 0
	for i, n := range l.nodes {
		if !bytes.Equal(n.Low(), low) {
			t.Fatalf("node %d begins at %x, the one before it ends at %x", i, n.Low(), low)
		}
		high, bounded := n.High()
		if bounded != (i < len(l.nodes)-1) || bounded && n.Right() != l.addrs[i+1] {
			t.Fatalf("node %d of %d ends at %x, %v, and leads to %v", i, len(l.nodes), high, bounded, n.Right())
		}
		low = high
		for _, e := range contentsOf(n).entries {
			if w, ok := want[string(e.Key)]; !ok || !equalPayload(e, w) {
				t.Fatalf("node %d has %+v, the map %+v", i, e, w)
			}
			count++
		}
	}
	if count != len(want) {
		t.Fatalf("the nodes have %d keys, the map has %v", count, slices.Sorted(maps.Keys(want)))
	}
}

// step is one change of a model and of a level; it expects the errors that the model predicts.
func (l *level) step(t testing.TB, b *blink.Builder, want map[string]blink.Change, c blink.Change) {
	t.Helper()
	_, found := want[string(c.Key)]
	err := l.apply(t, b, l.find(c.Key), []blink.Change{c})
	var expected error
	switch {
	case c.Op == blink.Insert && found:
		expected = blink.ErrExists
	case (c.Op == blink.Replace || c.Op == blink.Delete) && !found:
		expected = blink.ErrMissing
	case c.Op == blink.Delete:
		delete(want, string(c.Key))
	default:
		want[string(c.Key)] = c
	}
	if !errors.Is(err, expected) {
		t.Fatalf("%v of %x: %v, expected was %v", c.Op, c.Key, err, expected)
	}
}

// sortChanges puts a list of changes in order.
func sortChanges(changes []blink.Change) {
	slices.SortFunc(changes, func(a, b blink.Change) int { return bytes.Compare(a.Key, b.Key) })
}

func fit(t testing.TB, g blink.Geometry) blink.Geometry {
	t.Helper()
	g, err := g.Fit()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func kindName(g blink.Geometry) string {
	return fmt.Sprintf("keys to %d, %d entries", g.MaxKey, g.MaxEntries)
}
