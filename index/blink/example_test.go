package blink_test

import (
	"fmt"

	"txnode/index/blink"
	"txnode/memory/layout"
)

// An insert is a function from a node's bytes to the bytes of one node, or of two if it splits. The
// caller has blocks for them, writes them, and posts the separator to the parent.
func Example() {
	g, err := blink.Geometry{MaxKey: 16, MaxEntries: 3}.Fit()
	if err != nil {
		fmt.Println(err)
		return
	}
	leaf, _ := blink.Decode(blink.AppendLeaf(nil))
	block := func(i uint32) layout.Addr { return layout.MakeAddr(1, i*layout.BlockAlign) }

	var b blink.Builder
	images, err := b.Apply(g, leaf, []blink.Change{
		{Op: blink.Insert, Key: []byte("blade"), Addr: block(1)},
		{Op: blink.Insert, Key: []byte("epoch"), Addr: block(2)},
		{Op: blink.Insert, Key: []byte("fence"), Addr: block(3)},
		{Op: blink.Insert, Key: []byte("guard"), Addr: block(4)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(images, "images, separator", string(b.Low(1)))
	left, _ := blink.Decode(b.AppendImage(nil, 0, block(10)))
	right, _ := blink.Decode(b.AppendImage(nil, 1, 0))

	key := []byte("guard")
	fmt.Println("guard is", left.Cover(key), "of the left node:", left.Right() == block(10))
	i, found := right.Search(key)
	fmt.Println(i, found, right.Addr(i) == block(4))

	from, to := blink.After([]byte("blade")), blink.End()
	for i := left.Rank(from); i < left.Rank(to); i++ {
		fmt.Println(string(left.AppendKey(nil, i)))
	}
	fmt.Println("the scan goes on:", left.Below(to) == blink.GoRight, right.Below(to) == blink.GoRight)
	// Output:
	// 2 images, separator g
	// guard is to the right of the left node: true
	// 0 true true
	// epoch
	// fence
	// the scan goes on: true false
}
