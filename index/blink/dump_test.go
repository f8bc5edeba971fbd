package blink_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"txnode/index/blink"
	"txnode/memory/layout"
)

// TestDump pins the bytes of nodes.
//
//	node [level=<n>] low=<text> [high=<text> right=<n>]
//	<key> <number of the block>
//
// makes the node with these entries. Block n is at seg 1 +64n; rows have class 3.
func TestDump(t *testing.T) {
	datadriven.RunTest(t, "testdata/node", func(t *testing.T, d *datadriven.TestData) string {
		c := contents{open: !d.HasArg("high")}
		d.MaybeScanArgs(t, "level", &c.level)
		d.MaybeScanArgs(t, "low", &c.low)
		d.MaybeScanArgs(t, "high", &c.high)
		if !c.open {
			var n int
			d.ScanArgs(t, "right", &n)
			c.right = addrOf(n)
		}
		g := fit(t, blink.Geometry{MaxKey: 32})
		var changes []blink.Change
		for line := range strings.Lines(d.Input) {
			var key string
			var n int
			fmt.Sscan(line, &key, &n)
			e := blink.Change{Op: blink.Put, Key: []byte(strings.Trim(key, "'")), Addr: addrOf(n)}
			if c.level == 0 {
				e.Class = layout.Class(3)
			}
			changes = append(changes, e)
		}
		if c.level > 0 { // an inner node has its first child from the beginning
			c.entries, changes = changes[:1], changes[1:]
		}
		var b blink.Builder
		if images, err := b.Apply(g, decode(t, g, c.encode()), changes); err != nil || images != 1 {
			t.Fatalf("%d images, %v", images, err)
		}
		image := b.AppendImage(nil, 0, 0)
		return annotated(decode(t, g, image))
	})
}

// annotated is a hex dump of a node, piece by piece.
func annotated(n blink.Node) string {
	var out strings.Builder
	at := 0
	piece := func(size int, format string, a ...any) {
		if size == 0 {
			return
		}
		fmt.Fprintf(&out, "%04x  %-36s %s\n", at, hex.EncodeToString(n.Bytes()[at:at+size]), fmt.Sprintf(format, a...))
		at += size
	}
	high, bounded := n.High()
	piece(1, "level %d", n.Level())
	piece(1, "flags: none")
	piece(2, "%d entries", n.Count())
	piece(2, "prefix %q", n.Prefix())
	piece(2, "low fence of %d bytes", len(n.Low()))
	piece(2, "high fence of %d bytes, bounded %v", len(high), bounded)
	piece(2, "end %#x", len(n.Bytes()))
	piece(6, "right link %v", n.Right())
	piece(len(n.Low()), "low fence %q", n.Low())
	piece(len(high), "high fence %q", high)
	for i := range n.Count() {
		piece(2, "slot of %q", n.AppendKey(nil, i))
	}
	for i := range n.Count() {
		if n.Level() == 0 {
			piece(7, "row %v, class %d", n.Addr(i), n.Class(i))
		} else {
			piece(6, "child %v", n.Addr(i))
		}
		piece(len(n.Suffix(i)), "suffix %q", n.Suffix(i))
	}
	return out.String()
}
